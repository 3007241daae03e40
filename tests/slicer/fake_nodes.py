"""Stand-ins for the classes of VTK and for the nodes of MRML that ScopeRegLive uses; see fakes.py."""
# ruff: noqa: N802  the names are those of VTK

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MODIFIED = "ModifiedEvent"


class Matrix:
    """vtkMatrix4x4"""

    def __init__(self) -> None:
        self._values = np.eye(4)

    def GetElement(self, row: int, column: int) -> float:
        return float(self._values[row, column])

    def SetElement(self, row: int, column: int, value: float) -> None:
        self._values[row, column] = value

    def DeepCopy(self, other: Matrix) -> None:
        self._values = other._values.copy()


class Points:
    """vtkPoints"""

    def __init__(self) -> None:
        self.all: list[tuple[float, float, float]] = []

    def InsertNextPoint(self, x: float, y: float, z: float) -> None:
        self.all.append((x, y, z))


class Cells:
    """vtkCellArray"""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.points: list[int] = []

    def InsertNextCell(self, size: int) -> None:
        self.sizes.append(size)

    def InsertCellPoint(self, point: int) -> None:
        self.points.append(point)


class PolyData:
    """vtkPolyData"""

    def SetPoints(self, points: Points) -> None:
        self.points = points.all

    def SetLines(self, lines: Cells) -> None:
        assert sum(lines.sizes) == len(lines.points)
        self.line = lines.points


class ImageData:
    """vtkImageData"""

    def SetDimensions(self, x: int, y: int, z: int) -> None:
        self._size = x, y, z

    def GetDimensions(self) -> tuple[int, int, int]:
        return self._size

    def AllocateScalars(self, kind: int, components: int) -> None:
        self.pixels = np.zeros(self._size[::-1], np.uint8)


class Node:
    """vtkMRMLNode"""

    def __init__(self, name: str = "", kind: str = "vtkMRMLNode") -> None:
        self._name, self._kind = name, kind
        self._attributes: dict[str, str] = {}
        self._observers: list[tuple[str, Callable[..., None]]] = []

    def GetName(self) -> str:
        return self._name

    def GetID(self) -> str:
        return f"{self._kind}:{self._name}"

    def IsA(self, kind: str) -> bool:
        return kind in (self._kind, {"vtkMRMLScalarVolumeNode": "vtkMRMLVolumeNode"}.get(self._kind))

    def GetAttribute(self, name: str) -> str | None:
        return self._attributes.get(name)

    def SetAttribute(self, name: str, value: str) -> None:
        self._attributes[name] = value

    scene: Any = None  # that it was added to

    def Modified(self) -> None:
        self.InvokeEvent(MODIFIED)

    def InvokeEvent(self, event: str) -> None:
        for observed, tell in list(self._observers):
            if observed == event:
                tell(self, event)


class TransformableNode(Node):
    """vtkMRMLTransformableNode"""

    parent_transform: TransformNode | None = None

    def GetParentTransformNode(self) -> TransformNode | None:
        return self.parent_transform

    def SetAndObserveTransformNodeID(self, node_id: str | None) -> None:
        found = [node for node in self.scene.nodes if node.GetID() == node_id]
        assert len(found) == (node_id is not None)
        self.parent_transform = found[0] if found else None


class VolumeNode(TransformableNode):
    """vtkMRMLScalarVolumeNode"""

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLScalarVolumeNode")
        self._image: ImageData | None = None
        self._matrix = Matrix()
        self.storage: Node | None = None

    def GetStorageNode(self) -> Node | None:
        return self.storage

    def GetImageData(self) -> ImageData | None:
        return self._image

    def SetAndObserveImageData(self, image: ImageData) -> None:
        self._image = image

    def GetIJKToRASMatrix(self, matrix: Matrix) -> None:
        matrix.DeepCopy(self._matrix)

    def SetIJKToRASMatrix(self, matrix: Matrix) -> None:
        self._matrix.DeepCopy(matrix)
        self.Modified()

    def CreateDefaultDisplayNodes(self) -> None:
        pass

    def GetRASBounds(self, bounds: list[float]) -> None:
        assert self._image is not None
        size = self._image.GetDimensions()
        corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in size])).reshape(3, -1)
        places = self._matrix._values[:3, :3] @ corners + self._matrix._values[:3, 3:]
        bounds[:] = np.column_stack([places.min(1), places.max(1)]).ravel().tolist()


class TextNode(Node):
    """vtkMRMLTextNode"""

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLTextNode")
        self.text = ""

    def GetText(self) -> str:
        return self.text


class StatusNode(Node):
    """vtkMRMLIGTLStatusNode"""

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLIGTLStatusNode")
        self.said: tuple[int, int, str] = (0, 0, "")

    def GetCode(self) -> int:
        return self.said[0]

    def GetSubCode(self) -> int:
        return self.said[1]

    def GetStatusString(self) -> str:
        return self.said[2]


class TransformNode(TransformableNode):
    """vtkMRMLLinearTransformNode"""

    def __init__(self, name: str, matrix: np.ndarray | None = None) -> None:
        super().__init__(name, "vtkMRMLLinearTransformNode")
        self.matrix = np.eye(4) if matrix is None else matrix
        self.linear = True

    def IsLinear(self) -> bool:
        return self.linear

    def GetMatrixTransformToParent(self, matrix: Matrix) -> int:
        matrix._values = self.matrix.copy()
        return 1

    def SetMatrixTransformToParent(self, matrix: Matrix) -> int:
        self.matrix = matrix._values.copy()
        return 1

    @property
    def to_world(self) -> np.ndarray:
        above = self.parent_transform
        return self.matrix if above is None else above.to_world @ self.matrix

    @staticmethod
    def GetMatrixTransformBetweenNodes(source: TransformNode | None, target: TransformNode | None, m: Matrix) -> int:
        if any(node is not None and not node.linear for node in (source, target)):
            return 0
        there = np.eye(4) if source is None else source.to_world
        m._values = there if target is None else np.linalg.inv(target.to_world) @ there
        return 1


class ModelDisplay:
    """vtkMRMLModelDisplayNode"""

    def SetLineWidth(self, width: int) -> None:
        self.width = width

    def SetLighting(self, lighting: bool) -> None:
        self.lighting = lighting

    def SetColor(self, red: float, green: float, blue: float) -> None:
        self.colour = red, green, blue

    def SetVisibility(self, visible: bool) -> None:
        self.visible = visible


class ModelNode(Node):
    """vtkMRMLModelNode"""

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLModelNode")
        self.saved, self.display, self.shape = True, None, None

    def SetSaveWithScene(self, saved: bool) -> None:
        self.saved = saved

    def CreateDefaultDisplayNodes(self) -> None:
        self.display = ModelDisplay()

    def GetDisplayNode(self) -> ModelDisplay | None:
        return self.display

    def SetAndObservePolyData(self, shape: PolyData) -> None:
        self.shape = shape


class ParameterNode(Node):
    """vtkMRMLScriptedModuleNode"""

    def __init__(self, scene: Any) -> None:
        super().__init__("ScopeRegLive", "vtkMRMLScriptedModuleNode")
        self._scene, self._values, self._references = scene, {}, {}

    def SetParameter(self, name: str, value: str) -> None:
        assert isinstance(value, str)
        self._values[name] = value

    def GetParameter(self, name: str) -> str:
        return self._values.get(name, "")

    def SetNodeReferenceID(self, role: str, node_id: str | None) -> None:
        self._references[role] = node_id

    def GetNodeReference(self, role: str) -> Node | None:
        return next((node for node in self._scene.nodes if node.GetID() == self._references.get(role)), None)


class SliceNode(Node):
    """vtkMRMLSliceNode"""

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLSliceNode")
        self._slice_to_ras = Matrix()
        self.updates, self.visible = 0, False
        self.field_of_view: tuple[float, ...] = (250.0, 250.0, 1.0)

    def GetSliceToRAS(self) -> Matrix:
        return self._slice_to_ras

    def UpdateMatrices(self) -> None:
        self.updates += 1

    def GetDimensions(self) -> tuple[int, int, int]:
        return 400, 300, 1

    def GetFieldOfView(self) -> tuple[float, ...]:
        return self.field_of_view

    def SetFieldOfView(self, x: float, y: float, z: float) -> None:
        self.field_of_view = x, y, z

    def SetSliceVisible(self, visible: bool) -> None:
        self.visible = visible


class CompositeNode:
    """vtkMRMLSliceCompositeNode"""

    background: str | None = None
    foreground: str | None = None
    opacity = 0.0

    def SetBackgroundVolumeID(self, node_id: str | None) -> None:
        self.background = node_id

    def SetForegroundVolumeID(self, node_id: str | None) -> None:
        self.foreground = node_id

    def SetForegroundOpacity(self, opacity: float) -> None:
        self.opacity = opacity


class SliceWidget:
    """qMRMLSliceWidget and, since nobody looks, its vtkMRMLSliceLogic"""

    def __init__(self, name: str) -> None:
        self._node, self._layers = SliceNode(name), CompositeNode()

    def sliceLogic(self) -> SliceWidget:
        return self

    def GetSliceNode(self) -> SliceNode:
        return self._node

    def GetSliceCompositeNode(self) -> CompositeNode:
        return self._layers
