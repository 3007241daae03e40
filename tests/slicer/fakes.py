"""A stand-in for 3D Slicer, which cannot run here: the few classes of it, of Qt and of VTK that ScopeRegLive uses.

They have the methods and properties that the module uses and no others, under the names that the headers of 3D Slicer,
SlicerOpenIGTLink, CTK and Qt give them, so that a misspelt one fails. Whether those names and what they do are right
cannot be shown here: `ScopeRegLiveTest` of the module is for that, inside of 3D Slicer.
"""
# ruff: noqa: N802  the names are those of 3D Slicer

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from fake_connector import Connector, Scene
from fake_nodes import (
    MODIFIED,
    Cells,
    ImageData,
    Matrix,
    Node,
    ParameterNode,
    Points,
    PolyData,
    SliceWidget,
    TransformNode,
)
from fake_qt import (
    Button,
    CheckBox,
    ComboBox,
    DoubleSpinBox,
    Label,
    Layout,
    LineEdit,
    NodeSelector,
    PathEdit,
    Section,
    Settings,
    Slider,
    SpinBox,
    Timer,
)
from fake_recording import Collection, MarkupsNode, array_from_volume, load_markups, load_volume, update_markups


class RenderingDisplay:
    visible = False

    def SetVisibility(self, visible: bool) -> None:
        self.visible = visible


class RenderingLogic:
    """vtkSlicerVolumeRenderingLogic"""

    def __init__(self) -> None:
        self.displays: dict[str, RenderingDisplay] = {}

    def GetFirstVolumeRenderingDisplayNode(self, volume: Node) -> RenderingDisplay | None:
        return self.displays.get(volume.GetID())

    def CreateDefaultVolumeRenderingNodes(self, volume: Node) -> RenderingDisplay:
        return self.displays.setdefault(volume.GetID(), RenderingDisplay())


class VTKObservationMixin:
    def __init__(self) -> None:
        self._observed: list[tuple[Node, str, Callable[..., None]]] = []

    def addObserver(self, node: Node, event: str, method: Callable[..., None]) -> None:
        self._observed.append((node, event, method))
        node._observers.append((event, method))

    def removeObservers(self, method: Callable[..., None] | None = None) -> None:
        for node, event, observer in list(self._observed):
            if method is None or observer == method:
                self._observed.remove((node, event, observer))
                node._observers.remove((event, observer))


class ScriptedLoadableModule:
    def __init__(self, parent: Any) -> None:
        self.parent = parent


class ScriptedLoadableModuleWidget:
    def __init__(self, parent: Any = None) -> None:
        self.layout = Layout()

    def setup(self) -> None:
        pass


class ScriptedLoadableModuleLogic:
    parameters: ParameterNode

    def __init__(self, parent: Any = None) -> None:
        pass

    def getParameterNode(self) -> ParameterNode:
        return self.parameters


class ScriptedLoadableModuleTest(unittest.TestCase):
    def delayDisplay(self, message: str) -> None:
        pass


def _vtk_matrix(values: np.ndarray) -> Matrix:
    matrix = Matrix()
    matrix._values = np.array(values, dtype=float)
    return matrix


def modules(*, with_igtl: bool = True) -> dict[str, Any]:
    """The modules that ScopeRegLive imports, by name. `slicer.errors` are the messages shown."""
    scene, views = Scene(), {name: SliceWidget(name) for name in ("Red", "Yellow", "Green")}
    slicer = ModuleType("slicer")
    slicer.errors = []
    slicer.mrmlScene = scene
    slicer.qMRMLNodeComboBox = NodeSelector
    slicer.app = SimpleNamespace(layoutManager=lambda: SimpleNamespace(sliceWidget=views.get))
    rendering = RenderingLogic()
    slicer.modules = SimpleNamespace(volumerendering=SimpleNamespace(logic=lambda: rendering))
    slicer.vtkMRMLTransformNode, slicer.vtkMRMLMarkupsNode = TransformNode, MarkupsNode
    if with_igtl:
        slicer.vtkMRMLIGTLConnectorNode = Connector
    slicer.util = util = ModuleType("slicer.util")
    util.VTKObservationMixin = VTKObservationMixin
    util.arrayFromVTKMatrix = lambda matrix: matrix._values.copy()
    util.vtkMatrixFromArray = _vtk_matrix
    util.errorDisplay = slicer.errors.append
    util.startupEnvironment = lambda: dict(os.environ)
    util.arrayFromVolume = array_from_volume
    util.arrayFromMarkupsControlPoints = lambda node, world: node.points_ras(world=world)
    util.updateMarkupsControlPointsFromArray = update_markups
    util.loadVolume = lambda path, properties=None: load_volume(scene, path, properties or {})
    util.loadMarkups = lambda path: load_markups(scene, path)
    util.getFirstNodeByClassByName = lambda kind, name: next(
        (node for node in scene.nodes if node.IsA(kind) and node.GetName() == name), None
    )
    scripted = ModuleType("slicer.ScriptedLoadableModule")
    parameters = ParameterNode(scene)
    logic = type("ScriptedLoadableModuleLogic", (ScriptedLoadableModuleLogic,), {"parameters": parameters})
    scripted.ScriptedLoadableModule = ScriptedLoadableModule
    scripted.ScriptedLoadableModuleWidget = ScriptedLoadableModuleWidget
    scripted.ScriptedLoadableModuleLogic = logic
    scripted.ScriptedLoadableModuleTest = ScriptedLoadableModuleTest
    qt = ModuleType("qt")
    for name, kind in {
        "QLabel": Label,
        "QPushButton": Button,
        "QCheckBox": CheckBox,
        "QLineEdit": LineEdit,
        "QSpinBox": SpinBox,
        "QDoubleSpinBox": DoubleSpinBox,
        "QComboBox": ComboBox,
        "QFormLayout": Layout,
        "QTimer": Timer,
    }.items():
        setattr(qt, name, kind)
    qt.Qt = SimpleNamespace(AlignCenter=0x84)
    kept: dict[str, Any] = {}
    qt.QSettings = lambda: Settings(kept)
    ctk = ModuleType("ctk")
    ctk.ctkCollapsibleButton, ctk.ctkPathLineEdit, ctk.ctkSliderWidget = Section, PathEdit, Slider
    vtk = ModuleType("vtk")
    vtk.vtkMatrix4x4, vtk.vtkPoints, vtk.vtkCellArray = Matrix, Points, Cells
    vtk.vtkCollection = Collection
    vtk.vtkPolyData, vtk.vtkImageData, vtk.VTK_UNSIGNED_CHAR = PolyData, ImageData, 3
    vtk.vtkCommand = SimpleNamespace(ModifiedEvent=MODIFIED)
    return {
        "slicer": slicer,
        "slicer.util": util,
        "slicer.ScriptedLoadableModule": scripted,
        "qt": qt,
        "ctk": ctk,
        "vtk": vtk,
    }
