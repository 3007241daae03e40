"""View: a slice view that lies on the frame and shows it over the volume, and the volume rendered in 3D."""

from __future__ import annotations

import slicer

from ScopeRegLiveLib.placement import field_of_view_mm

VIEWS = ("Red", "Yellow", "Green")
_OTHER_DRIVER = "VolumeResliceDriver.Driver"  # attribute of a slice node that the module of this name moves


class View:
    """The slice view of a name; where 3D Slicer runs without views, nothing happens."""

    def __init__(self, name=VIEWS[0]):
        self.name = name

    @property
    def driven_elsewhere(self):
        """Whether Volume Reslice Driver moves it, which must not be fought over."""
        logic = self._logic()
        return logic is not None and bool(logic.GetSliceNode().GetAttribute(_OTHER_DRIVER))

    def lie_on(self, placement):
        """Put it on the plane of the frame, the frame upright in its middle."""
        logic = self._logic()
        if logic is not None and not self.driven_elsewhere:
            node = logic.GetSliceNode()
            node.GetSliceToRAS().DeepCopy(slicer.util.vtkMatrixFromArray(placement.slice_to_ras))
            node.UpdateMatrices()

    def fit(self, placement):
        """Zoom so that all of the frame is in it."""
        logic = self._logic()
        if logic is not None:
            node = logic.GetSliceNode()
            width_mm, height_mm = field_of_view_mm(placement.extent_mm, node.GetDimensions())
            node.SetFieldOfView(width_mm, height_mm, node.GetFieldOfView()[2])

    def show(self, frame, volume, opacity, in_3d):
        """Frame over volume, here and as a plane in the 3D views."""
        logic = self._logic()
        if logic is not None:
            layers = logic.GetSliceCompositeNode()
            layers.SetBackgroundVolumeID(volume.GetID() if volume is not None else None)
            layers.SetForegroundVolumeID(frame.GetID())
            layers.SetForegroundOpacity(opacity)
            logic.GetSliceNode().SetSliceVisible(in_3d)

    def _logic(self):
        layout = slicer.app.layoutManager()
        widget = layout.sliceWidget(self.name) if layout is not None else None
        return widget.sliceLogic() if widget is not None else None


def render(volume, visible):
    """Render the volume in the 3D views, or no longer."""
    rendering = slicer.modules.volumerendering.logic()
    display = rendering.GetFirstVolumeRenderingDisplayNode(volume)
    if display is None and visible:
        display = rendering.CreateDefaultVolumeRenderingNodes(volume)
    if display is not None:
        display.SetVisibility(visible)
