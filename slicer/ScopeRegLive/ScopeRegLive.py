"""ScopeRegLive: shows in 3D Slicer where `scopereg live` finds each ultrasound frame, and whether the pose is reliable.

scopereg runs in a process of its own and sends its results over OpenIGTLink, so that neither torch nor anything else of
it is needed in here. Recordings are handed to such a process as files. This file is the panel; all else is in
ScopeRegLiveLib.
"""

from __future__ import annotations

import ctk
import numpy as np
import qt
import slicer
import vtk
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)
from slicer.util import VTKObservationMixin

from ScopeRegLiveLib.address import HOST, OFF, PORT, address_of
from ScopeRegLiveLib.errand_panel import ErrandPanel, selector
from ScopeRegLiveLib.landmarks_panel import LandmarksPanel, points_of
from ScopeRegLiveLib.logic import FRAME, ScopeRegLiveLogic
from ScopeRegLiveLib.sequences import Chain, image_of, recording_of
from ScopeRegLiveLib.view import VIEWS

TICK_MS = 100


class ScopeRegLive(ScriptedLoadableModule):
    """What 3D Slicer lists."""

    def __init__(self, parent):
        ScriptedLoadableModule.__init__(self, parent)
        parent.title = "ScopeReg Live"
        parent.categories = ["IGT"]
        parent.dependencies = []  # SlicerOpenIGTLink is asked for by name in the panel, not by a module that is missing
        parent.contributors = ["The scopereg developers"]
        parent.helpText = (
            "Shows untracked 2D ultrasound frames in their place in a 3D volume, as <code>scopereg live</code> finds"
            " them, and a light that tells whether the pose is reliable. Start"
            " <code>scopereg live VOLUME --source ...</code>, load the same volume here, press Connect. Tracked"
            " recordings are compounded to a volume, or registered together in one, by scopereg as well."
        )
        parent.acknowledgementText = "Not a medical device."


class ScopeRegLiveWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    """The panel: the light on top, then the connection, the volume and the view."""

    def __init__(self, parent=None):
        VTKObservationMixin.__init__(self)
        ScriptedLoadableModuleWidget.__init__(self, parent)  # without a parent it calls setup

    def setup(self):
        ScriptedLoadableModuleWidget.setup(self)
        self.logic = ScopeRegLiveLogic()
        self._set_up_light()
        self._set_up_connection(self._form("Connection"))
        self._set_up_volume(self._form("Volume"))
        self._set_up_view(self._form("View"))
        self.errand_panel = ErrandPanel(self._form("Recording", collapsed=True), self.logic)
        self.landmarks_panel = LandmarksPanel(self._form("Landmarks", collapsed=True), self.logic)
        self.layout.addStretch(1)
        self._restore()
        self.volume_selector.connect("currentNodeChanged(vtkMRMLNode*)", self.on_settings)
        self.on_settings()
        self.addObserver(slicer.mrmlScene, slicer.mrmlScene.StartCloseEvent, self.on_scene_closing)
        self.addObserver(slicer.mrmlScene, slicer.mrmlScene.EndCloseEvent, self.on_scene_closed)
        self.timer = qt.QTimer()
        self.timer.setInterval(TICK_MS)
        self.timer.connect("timeout()", self.tick)
        self.timer.start()
        self.tick()

    def cleanup(self):
        """Called when the module is unloaded."""
        self.timer.stop()
        self.removeObservers()
        self.errand_panel.close()
        self.logic.close()

    def tick(self):
        """Look for new nodes, and show how it stands now: a light goes out although nothing happens."""
        self.logic.look()
        light = self.logic.light()
        self.light_label.text, self.reason_label.text = light.word, light.reason
        if self.light_label.styleSheet != light.style:
            self.light_label.styleSheet = light.style
        report = self.logic.watch.report
        self.details_label.text = report.details if report is not None else ""
        self.state_label.text = self.logic.state_in_words()
        self.connect_button.text = "Connect" if self.logic.state() == OFF else "Disconnect"
        self.hint_label.text = self.logic.hint()
        self.errand_panel.tick()
        self.landmarks_panel.tick()

    def on_connect(self):
        if self.logic.state() != OFF:
            self.logic.disconnect()
        else:
            try:
                address = address_of(self.host_edit.text, self.port_box.value)
                self.logic.connect(address)
            except (ValueError, RuntimeError) as error:
                slicer.util.errorDisplay(str(error))
                return
            self.host_edit.text, self.port_box.value = address
            self._keep()
        self.tick()

    def on_load(self):
        """Load the file that was chosen and show it."""
        try:
            volume = slicer.util.loadVolume(self.path_edit.currentPath)
        except RuntimeError as error:
            slicer.util.errorDisplay(f"The volume cannot be loaded: {error}")
            return
        self.volume_selector.setCurrentNode(volume)

    def on_settings(self, *_):
        """Some control was moved."""
        self.logic.volume = self.volume_selector.currentNode()
        self.logic.opacity = self.opacity_slider.value
        self.logic.view.name = self.view_box.currentText
        self.logic.follows = self.follow_box.checked
        self.logic.in_3d = self.solid_box.checked
        self.logic.renders = self.render_box.checked
        self.logic.show()
        self._keep()

    def on_scene_closing(self, *_):
        self.errand_panel.close()
        self.logic.close()

    def on_scene_closed(self, *_):
        self._restore()

    def _form(self, title, *, collapsed=False):
        section = ctk.ctkCollapsibleButton()
        section.text, section.collapsed = title, collapsed
        self.layout.addWidget(section)
        return qt.QFormLayout(section)

    def _set_up_light(self):
        self.light_label, self.reason_label, self.details_label, self.hint_label = (qt.QLabel() for _ in range(4))
        self.light_label.setAlignment(qt.Qt.AlignCenter)
        for label in (self.light_label, self.reason_label, self.details_label, self.hint_label):
            label.wordWrap = True
            self.layout.addWidget(label)

    def _set_up_connection(self, form):
        self.host_edit = qt.QLineEdit(HOST)
        self.port_box = qt.QSpinBox()
        self.port_box.setRange(1, 65535)
        self.port_box.value = PORT
        self.connect_button = qt.QPushButton("Connect")
        self.connect_button.connect("clicked()", self.on_connect)
        self.state_label = qt.QLabel()
        self.state_label.wordWrap = True
        for name, field in (("Host", self.host_edit), ("Port", self.port_box)):
            form.addRow(name, field)
        form.addRow(self.connect_button)
        form.addRow(self.state_label)

    def _set_up_volume(self, form):
        self.volume_selector = selector(["vtkMRMLScalarVolumeNode"])
        self.path_edit = ctk.ctkPathLineEdit()
        self.path_edit.filters = ctk.ctkPathLineEdit.Files
        self.load_button = qt.QPushButton("Load this file")
        self.load_button.connect("clicked()", self.on_load)
        self.render_box = self._check_box("Volume rendering", False)
        form.addRow("Volume that scopereg reads", self.volume_selector)
        form.addRow("File", self.path_edit)
        form.addRow(self.load_button)
        form.addRow(self.render_box)

    def _set_up_view(self, form):
        self.view_box = qt.QComboBox()
        self.view_box.addItems(list(VIEWS))
        self.view_box.connect("currentIndexChanged(int)", self.on_settings)
        self.opacity_slider = ctk.ctkSliderWidget()
        self.opacity_slider.minimum, self.opacity_slider.maximum, self.opacity_slider.singleStep = 0, 1, 0.05
        self.opacity_slider.value = 1
        self.opacity_slider.connect("valueChanged(double)", self.on_settings)
        self.follow_box = self._check_box("The view follows the frame", True)
        self.solid_box = self._check_box("Show it in 3D", True)
        self.fit_button = qt.QPushButton("Fit the view to the frame")
        self.fit_button.connect("clicked()", self.logic.fit)
        form.addRow("Slice view", self.view_box)
        form.addRow("Frame over volume", self.opacity_slider)
        for field in (self.follow_box, self.solid_box, self.fit_button):
            form.addRow(field)

    def _check_box(self, text, checked):
        box = qt.QCheckBox(text)
        box.checked = checked
        box.connect("toggled(bool)", self.on_settings)
        return box

    def _keep(self):
        """Keep the address and the volume in the scene, so that a saved scene knows them."""
        node = self.logic.getParameterNode()
        node.SetParameter("host", self.host_edit.text)
        node.SetParameter("port", str(self.port_box.value))
        node.SetNodeReferenceID("volume", self.logic.volume.GetID() if self.logic.volume is not None else None)

    def _restore(self):
        node = self.logic.getParameterNode()
        if node.GetParameter("host"):
            self.host_edit.text, self.port_box.value = node.GetParameter("host"), int(node.GetParameter("port"))
        self.volume_selector.setCurrentNode(node.GetNodeReference("volume"))


class ScopeRegLiveTest(ScriptedLoadableModuleTest):
    """Runs inside of 3D Slicer (Reload and Test of the panel); what needs no Slicer is tested in the repository."""

    def setUp(self):
        slicer.mrmlScene.Clear()

    def runTest(self):  # noqa: N802
        for test in (
            self.test_the_view_lies_on_the_frame,
            self.test_a_recording_is_read,
            self.test_landmarks_are_read,
        ):
            self.setUp()
            test()

    def frame(self, name):
        """A frame of 5 x 3 pixels of 2 mm x 1 mm in the plane of R and S."""
        matrix = slicer.util.vtkMatrixFromArray(
            np.array([(2, 0, 0, 10), (0, 0, 1, 20), (0, -1, 0, 30), (0, 0, 0, 1)], dtype=float)
        )
        image = vtk.vtkImageData()
        image.SetDimensions(5, 3, 1)
        image.AllocateScalars(vtk.VTK_UNSIGNED_CHAR, 1)
        frame = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", name)
        frame.SetAndObserveImageData(image)
        frame.SetIJKToRASMatrix(matrix)
        frame.CreateDefaultDisplayNodes()
        return frame

    def test_the_view_lies_on_the_frame(self):
        logic = ScopeRegLiveLogic()
        logic.listen_to(FRAME, self.frame(FRAME))
        found = slicer.app.layoutManager().sliceWidget(VIEWS[0]).sliceLogic().GetSliceNode().GetSliceToRAS()
        expected = ((1, 0, 0, 14), (0, 0, -1, 20), (0, 1, 0, 29), (0, 0, 0, 1))
        for row in range(4):
            for column in range(4):
                assert abs(found.GetElement(row, column) - expected[row][column]) < 1e-6, (row, column)
        logic.close()
        self.delayDisplay("The view lies on the frame")

    def test_a_recording_is_read(self):
        """Three frames, 4 mm apart along S; of the last the tracker knows nothing."""
        image = self.frame("Image")
        probe = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode", "ProbeToReference")
        image.SetAndObserveTransformNodeID(probe.GetID())
        browser = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "Sweep")
        for node in (image, probe):
            sequence = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSequenceNode", node.GetName())
            browser.AddSynchronizedSequenceNodeID(sequence.GetID())
            browser.AddProxyNode(node, sequence, False)
            for time_s, s_mm in ((0.0, 4.0), (0.5, 8.0), (1.0, 0.0)):
                step = np.eye(4)
                step[2, 3] = s_mm
                probe.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(step))
                sequence.SetDataNodeAtValue(node, str(time_s))
        found = image_of(browser, None)
        assert found.GetID() == image.GetID()
        chain = Chain(browser, found)
        assert chain.reference is None
        recording = recording_of(browser, found, chain)
        assert list(recording.placed) == [True, True, False]
        assert list(recording.times_s) == [0.0, 0.5, 1.0]
        assert recording.images.shape == (3, 3, 5)
        expected = ((2, 0, 0, 10), (0, 0, 1, 20), (0, -1, 0, 38), (0, 0, 0, 1))
        assert np.allclose(recording.pixel_to_reference_ras[1], expected)
        self.delayDisplay("A recording is read")

    def test_landmarks_are_read(self):
        """A point under a transform that shifts it by 5 mm along A."""
        shift = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode", "Shift")
        matrix = np.eye(4)
        matrix[1, 3] = 5
        shift.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "ruler")
        slicer.util.updateMarkupsControlPointsFromArray(node, np.array([[1.0, 2.0, 3.0]]))
        node.SetNthControlPointLabel(0, "apex")
        node.SetAndObserveTransformNodeID(shift.GetID())
        assert np.allclose(points_of(node)["apex"], (1, 7, 3))
        assert np.allclose(points_of(node, shift)["apex"], (1, 2, 3))
        self.delayDisplay("Landmarks are read")
