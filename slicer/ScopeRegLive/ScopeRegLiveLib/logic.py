"""Logic: connects, listens to what arrives, and moves the view; what 3D Slicer calls the logic of a module."""

from __future__ import annotations

import time

import slicer
import vtk
from slicer.ScriptedLoadableModule import ScriptedLoadableModuleLogic
from slicer.util import VTKObservationMixin

from ScopeRegLiveLib.address import CONNECTED, HOST, MISSING, OFF, PORT, WAITING, Address, state_in_words
from ScopeRegLiveLib.outline import Outline
from ScopeRegLiveLib.placement import placement_of, same_extent
from ScopeRegLiveLib.view import View, render
from ScopeRegLiveLib.watch import Watch

CONNECTOR = "ScopeReg"
# What is listened to, as scopereg names it, and the class of the node that SlicerOpenIGTLink makes of it.
FRAME, TEXT, STATUS = "Image_Volume", "RegistrationInfo", "Registration"
CLASSES = {FRAME: "vtkMRMLVolumeNode", TEXT: "vtkMRMLTextNode", STATUS: "vtkMRMLIGTLStatusNode"}


class ScopeRegLiveLogic(ScriptedLoadableModuleLogic, VTKObservationMixin):
    """Connects, listens to the nodes that arrive, and moves the view and the outline of the frame."""

    def __init__(self):
        ScriptedLoadableModuleLogic.__init__(self)
        VTKObservationMixin.__init__(self)
        self.watch, self.view, self.outline = Watch(), View(), Outline()
        self.address = Address(HOST, PORT)
        self.placement = None
        self._fitted = None  # the placement that the view was last fitted to
        self.volume, self.opacity = None, 1.0
        self.follows, self.in_3d, self.renders = True, True, False
        self._connector = None
        self._has_rendered = False
        self._nodes = {}  # by name, those that have arrived

    def connect(self, address):
        """Connect now and whenever scopereg is there again; a RuntimeError in words if that cannot be."""
        if not hasattr(slicer, "vtkMRMLIGTLConnectorNode"):
            raise RuntimeError(MISSING)
        self.close()
        self.address = address
        self._connector = slicer.util.getFirstNodeByClassByName("vtkMRMLIGTLConnectorNode", CONNECTOR)
        if self._connector is None:
            self._connector = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLIGTLConnectorNode", CONNECTOR)
        self._connector.Stop()  # one from a scene that was loaded may run already
        self._connector.SetTypeClient(address.host, address.port)
        self._connector.Start()

    def disconnect(self):
        """End the connection; what is on the screen stays."""
        if self._connector is not None:
            self._connector.Stop()

    def close(self):
        """End the connection and listen to nothing more; the nodes stay in the scene."""
        self.disconnect()
        self.removeObservers()
        self.watch.forget()
        self.outline.forget()
        self._nodes, self.placement, self._fitted, self._connector = {}, None, None, None

    def state(self):
        """OFF, WAITING or CONNECTED."""
        if self._connector is None:
            return OFF
        node = slicer.vtkMRMLIGTLConnectorNode
        return {node.StateConnected: CONNECTED, node.StateWaitConnection: WAITING}.get(self._connector.GetState(), OFF)

    def state_in_words(self):
        if not hasattr(slicer, "vtkMRMLIGTLConnectorNode"):
            return MISSING
        return state_in_words(self.state(), self.address)

    def light(self):
        return self.watch.light(time.monotonic(), connected=self.state() == CONNECTED)

    def look(self):
        """Listen to what has arrived for the first time, and colour the outline as the light is now."""
        count = self._connector.GetNumberOfIncomingMRMLNodes() if self._connector is not None else 0
        for node in [self._connector.GetIncomingMRMLNode(index) for index in range(count)]:
            name = node.GetName() if node is not None else None
            if name in CLASSES and node.IsA(CLASSES[name]) and self._nodes.get(name) is not node:
                self.listen_to(name, node)
        self.outline.look(self.light().rgb, self.in_3d)

    def listen_to(self, name, node):
        """Take what a node says, now and whenever it changes."""
        hear = {FRAME: self.on_frame, TEXT: self.on_text, STATUS: self.on_status}[name]
        self.removeObservers(hear)
        self._nodes[name] = node
        self.addObserver(node, vtk.vtkCommand.ModifiedEvent, hear)
        hear(node)
        if name == FRAME:
            self.show()
            self.fit()

    def on_text(self, node, *_):
        self.watch.hear_text(node.GetText(), time.monotonic())

    def on_status(self, node, *_):
        self.watch.hear_status(node.GetCode(), node.GetSubCode(), node.GetStatusString(), time.monotonic())

    def on_frame(self, node, *_):
        """Move the view and the outline to where the frame is now."""
        image, matrix = node.GetImageData(), vtk.vtkMatrix4x4()
        node.GetIJKToRASMatrix(matrix)
        size = image.GetDimensions() if image is not None else (0, 0, 0)
        self.placement = placement_of(slicer.util.arrayFromVTKMatrix(matrix), size)
        if self.placement is not None:
            self.outline.move(self.placement.corners_ras)
            if self.follows:
                self.view.lie_on(self.placement)
                if self._fitted is not None and not same_extent(self._fitted, self.placement):  # another depth
                    self.fit()

    def fit(self):
        if self.placement is not None:
            self._fitted = self.placement
            self.view.fit(self.placement)

    def show(self):
        """Everything as it is set."""
        if FRAME in self._nodes:
            self.view.show(self._nodes[FRAME], self.volume, self.opacity, self.in_3d)
        if self.volume is not None and (self.renders or self._has_rendered):  # else it is as the user has it
            render(self.volume, self.renders)
            self._has_rendered = True

    def hint(self):
        """What scopereg asks, or what is likely to be wrong with what is on the screen, or has just changed."""
        report = self.watch.report
        if report is not None and report.asks:
            return f"{report.asks} Answer on the page of scopereg, or where it runs."
        return self._doubt() or (report.notice if report is not None else "")

    def _doubt(self):
        frame = self._nodes.get(FRAME)
        if frame is None:
            return ""
        if self.placement is None:
            return f"{FRAME} has no place: its matrix is not that of a plane."
        if frame.GetParentTransformNode() is not None:
            return f"{FRAME} is in its place already: take it out from under its transform."
        if self.view.driven_elsewhere:
            return f"The {self.view.name} view is moved by Volume Reslice Driver: this module leaves it alone."
        if self.volume is None or self.volume is frame:
            return "Choose or load the volume that scopereg live was given."
        bounds_ras = [0.0] * 6
        self.volume.GetRASBounds(bounds_ras)
        if not self.placement.lies_in(bounds_ras):
            return f"The frame lies outside of {self.volume.GetName()}: is it the volume that scopereg live was given?"
        return ""
