"""Stand-ins for sequences, markups and the loading of files in 3D Slicer; see fakes.py.

Volumes are read by ITK, as 3D Slicer reads them, and turned from its LPS to RAS.
"""
# ruff: noqa: N802  the names are those of 3D Slicer

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import SimpleITK as sitk
from fake_nodes import ImageData, Matrix, Node, TransformableNode, VolumeNode

LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])
_TOLERANCE = 0.001  # of numeric index values


class Collection:
    """vtkCollection"""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def GetNumberOfItems(self) -> int:
        return len(self.items)

    def GetItemAsObject(self, row: int) -> Any:
        return self.items[row]


class SequenceNode(Node):
    """vtkMRMLSequenceNode: data nodes by index values, which are text."""

    def __init__(self, name: str, items: dict[str, Node] | None = None) -> None:
        super().__init__(name, "vtkMRMLSequenceNode")
        self.items = {} if items is None else items

    def SetDataNodeAtValue(self, node: Node, value: str) -> None:
        """Keeps a copy in a scene of its own."""
        kept = copy.copy(node)
        kept.scene = None
        self.items[value] = kept

    def GetNumberOfDataNodes(self) -> int:
        return len(self.items)

    def GetNthDataNode(self, row: int) -> Node:
        return list(self.items.values())[row]

    def GetNthIndexValue(self, row: int) -> str:
        return list(self.items)[row]

    def GetItemNumberFromIndexValue(self, value: str, exact: bool) -> int:
        assert exact  # else it is the item before
        near = [row for row, own in enumerate(self.items) if abs(float(own) - float(value)) <= _TOLERANCE]
        return near[0] if near else -1


class BrowserNode(Node):
    """vtkMRMLSequenceBrowserNode: sequences, and the proxy nodes in the scene that show them."""

    def __init__(self, name: str, shown: list[tuple[Node, SequenceNode]] | None = None) -> None:
        super().__init__(name, "vtkMRMLSequenceBrowserNode")
        self.shown = [] if shown is None else shown
        self._synchronized: list[str] = []

    def AddSynchronizedSequenceNodeID(self, node_id: str) -> None:
        self._synchronized.append(node_id)

    def AddProxyNode(self, node: Node, sequence: SequenceNode, copied: bool) -> None:
        assert not copied
        assert sequence.GetID() in self._synchronized
        self.shown.append((node, sequence))

    def GetSequenceNode(self, proxy: Node) -> SequenceNode | None:
        return next((sequence for node, sequence in self.shown if node is proxy), None)

    def GetAllProxyNodes(self, collection: Collection) -> None:
        collection.items = [node for node, _ in self.shown]


class MarkupsNode(TransformableNode):
    """vtkMRMLMarkupsFiducialNode or vtkMRMLMarkupsLineNode; points in its own space, RAS."""

    PositionUndefined, PositionPreview, PositionDefined, PositionMissing = range(4)

    def __init__(
        self, name: str, points: Sequence[tuple[str, tuple[float, float, float] | None]] = (), kind: str = "Fiducial"
    ) -> None:
        super().__init__(name, f"vtkMRMLMarkups{kind}Node")
        self.points = list(points)

    def SetNthControlPointLabel(self, row: int, label: str) -> None:
        self.points[row] = (label, self.points[row][1])

    def points_ras(self, *, world: bool) -> np.ndarray:
        own = np.array([place or (0.0, 0.0, 0.0) for _, place in self.points]).reshape(-1, 3)
        if not world or self.parent_transform is None:
            return own
        to_world = self.parent_transform.to_world
        return own @ to_world[:3, :3].T + to_world[:3, 3]

    def GetNthControlPointLabel(self, row: int) -> str:
        return self.points[row][0]

    def GetNthControlPointPositionStatus(self, row: int) -> int:
        return self.PositionUndefined if self.points[row][1] is None else self.PositionDefined


def volume_node(name: str, pixels: np.ndarray, ijk_to_ras: np.ndarray) -> VolumeNode:
    """A volume node of voxels (K, J, I), or with colours (K, J, I, C)."""
    node, image, matrix = VolumeNode(name), ImageData(), Matrix()
    image.SetDimensions(*pixels.shape[2::-1])
    image.pixels = pixels
    matrix._values = np.array(ijk_to_ras, dtype=float)
    node.SetAndObserveImageData(image)
    node.SetIJKToRASMatrix(matrix)
    return node


def array_from_volume(node: VolumeNode) -> np.ndarray:
    image = node.GetImageData()
    assert image is not None  # else 3D Slicer fails without a word
    if node._kind != "vtkMRMLScalarVolumeNode":
        raise RuntimeError(f"Unsupported volume type: {node._kind}")
    return image.pixels


def load_volume(scene: Any, path: str, properties: dict[str, Any]) -> VolumeNode:
    if not Path(path).is_file():
        raise RuntimeError(f"Failed to load node from file: {path}")
    read = sitk.ReadImage(path)
    matrix = np.eye(4)
    matrix[:3, :3] = np.reshape(read.GetDirection(), (3, 3)) * read.GetSpacing()
    matrix[:3, 3] = read.GetOrigin()
    node = volume_node(properties["name"], sitk.GetArrayFromImage(read), LPS_TO_RAS @ matrix)
    node.storage = scene.add(Node(f"{path} storage", "vtkMRMLVolumeArchetypeStorageNode"))
    scene.add(node)
    return node


def update_markups(node: MarkupsNode, points: np.ndarray) -> None:
    node.points = [(f"F-{number}", tuple(place)) for number, place in enumerate(points.tolist(), 1)]


def load_markups(scene: Any, path: str) -> MarkupsNode:
    if not Path(path).is_file():
        raise RuntimeError(f"Failed to load node from file: {path}")
    (markup,) = json.loads(Path(path).read_text())["markups"]
    turn = {"LPS": (-1, -1, 1), "RAS": (1, 1, 1)}[markup["coordinateSystem"]]
    points = [
        (point["label"], tuple(np.multiply(turn, point["position"]).tolist())) for point in markup["controlPoints"]
    ]
    node: MarkupsNode = scene.add(MarkupsNode(markup.get("name", Path(path).name), points, markup["type"]))
    return node
