"""Outline: a line around the frame in the 3D views, in the colour of the light."""

from __future__ import annotations

import slicer
import vtk

NAME = "Image_Volume outline"
_WIDTH_PX = 4


class Outline:
    """Made when it is first moved; it stays in the scene and is found again by its name."""

    def __init__(self):
        self._node = None
        self._rgb, self._visible = (0.5, 0.5, 0.5), True

    def move(self, corners_ras):
        """Draw it around four corners."""
        points, line, outline = vtk.vtkPoints(), vtk.vtkCellArray(), vtk.vtkPolyData()
        for corner in corners_ras:
            points.InsertNextPoint(*corner)
        line.InsertNextCell(5)
        for index in (0, 1, 2, 3, 0):
            line.InsertCellPoint(index)
        outline.SetPoints(points)
        outline.SetLines(line)
        if self._node is None:
            self._node = slicer.util.getFirstNodeByClassByName("vtkMRMLModelNode", NAME) or self._create()
            self._show()
        self._node.SetAndObservePolyData(outline)

    def look(self, rgb, visible):
        """Its colour, and whether it is to be seen."""
        self._rgb, self._visible = rgb, visible
        if self._node is not None:
            self._show()

    def forget(self):
        self._node = None

    def _create(self):
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLModelNode", NAME)
        node.SetSaveWithScene(False)
        node.CreateDefaultDisplayNodes()
        node.GetDisplayNode().SetLineWidth(_WIDTH_PX)
        node.GetDisplayNode().SetLighting(False)  # a colour that means something must not be shaded
        return node

    def _show(self):
        self._node.GetDisplayNode().SetColor(*self._rgb)
        self._node.GetDisplayNode().SetVisibility(self._visible)
