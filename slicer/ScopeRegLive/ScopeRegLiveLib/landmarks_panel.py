"""LandmarksPanel: landmarks to and from the files of scopereg, and how far they lie from the frame that is shown."""

from __future__ import annotations

from pathlib import Path

import ctk
import numpy as np
import qt
import slicer
import vtk

from ScopeRegLiveLib.errand_panel import button, selector
from ScopeRegLiveLib.landmarks import ENDING, FIDUCIAL, LINE, distances, in_words, landmarks_text, named
from ScopeRegLiveLib.recording import write_whole


class LandmarksPanel:
    """`form` is the layout of the section that it fills, `logic` knows the volume and where the frame lies."""

    def __init__(self, form, logic):
        self._logic = logic
        self.selector = selector(["vtkMRMLMarkupsFiducialNode", "vtkMRMLMarkupsLineNode"])
        self.path_edit = ctk.ctkPathLineEdit()
        self.path_edit.filters = ctk.ctkPathLineEdit.Files | ctk.ctkPathLineEdit.Writable
        self.distance_label = qt.QLabel()
        self.distance_label.wordWrap = True
        form.addRow("Landmarks", self.selector)
        form.addRow("File (.mrk.json)", self.path_edit)
        form.addRow(button("Save them for scopereg", self.on_save))
        form.addRow(button("Load from this file", self.on_load))
        form.addRow("From the frame", self.distance_label)

    def tick(self):
        """The distances to the frame as it lies now, the nearest first."""
        node, placement = self.selector.currentNode(), self._logic.placement
        text = ""
        if node is not None and placement is not None:
            try:
                text = in_words(distances(placement, points_of(node)))
            except ValueError as error:
                text = str(error)
        self.distance_label.text = text

    def on_save(self):
        """In the space of the volume, whatever transforms it and the landmarks lie under."""
        node, typed = self.selector.currentNode(), self.path_edit.currentPath.strip()
        try:
            if node is None:
                raise ValueError("No landmarks are chosen: choose a point list or a line.")
            if not typed.lower().endswith(ENDING):
                raise ValueError(f"Name a file that ends in {ENDING}.")
            points_ras = points_of(node, self._parent())
            kind = LINE if node.IsA("vtkMRMLMarkupsLineNode") else FIDUCIAL
            content = landmarks_text(points_ras, kind=kind, name=node.GetName())
            write_whole(Path(typed), [content.encode()])
        except (OSError, ValueError) as error:
            slicer.util.errorDisplay(str(error))

    def on_load(self):
        """3D Slicer reads its own format; they go under what the volume lies under."""
        try:
            node = slicer.util.loadMarkups(self.path_edit.currentPath)
        except RuntimeError as error:
            slicer.util.errorDisplay(f"The landmarks cannot be loaded: {error}")
            return
        parent = self._parent()
        node.SetAndObserveTransformNodeID(parent.GetID() if parent is not None else None)
        self.selector.setCurrentNode(node)

    def _parent(self):
        return self._logic.volume.GetParentTransformNode() if self._logic.volume is not None else None


def points_of(node, space=None):
    """Points by their names, RAS mm, of the world or of what lies under a transform; a ValueError in words."""
    matrix = vtk.vtkMatrix4x4()
    if not slicer.vtkMRMLTransformNode.GetMatrixTransformBetweenNodes(None, space, matrix):
        raise ValueError("The volume lies under a transform that is not linear: harden it.")
    world_to_space = slicer.util.arrayFromVTKMatrix(matrix)
    world = np.asarray(slicer.util.arrayFromMarkupsControlPoints(node, world=True)).reshape(-1, 3)
    points = world @ world_to_space[:3, :3].T + world_to_space[:3, 3]
    defined = slicer.vtkMRMLMarkupsNode.PositionDefined
    rows = [row for row in range(len(points)) if node.GetNthControlPointPositionStatus(row) == defined]
    return named([node.GetNthControlPointLabel(row) for row in rows], points[rows])
