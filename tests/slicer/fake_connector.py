"""A stand-in for the connector of SlicerOpenIGTLink, and for the scene it puts its nodes in; see fakes.py.

It reads a real socket and makes nodes of what comes as SlicerOpenIGTLink does: by name, in RAS whatever the message
says, the origin of an image shifted from its middle to its first pixel.
"""
# ruff: noqa: N802  the names are those of 3D Slicer

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from fake_nodes import ImageData, ModelNode, Node, StatusNode, TextNode, TransformNode, VolumeNode
from fake_recording import BrowserNode, MarkupsNode, SequenceNode

START_CLOSE, END_CLOSE = "StartCloseEvent", "EndCloseEvent"


class Connector(Node):
    """vtkMRMLIGTLConnectorNode, as a client. `PeriodicProcess` takes what has come, as a timer of 3D Slicer does."""

    StateOff, StateWaitConnection, StateConnected = range(3)

    def __init__(self, name: str) -> None:
        super().__init__(name, "vtkMRMLIGTLConnectorNode")
        self._state, self._address = self.StateOff, ("", 0)
        self._socket: socket.socket | None = None
        self._bytes = b""
        self._incoming: dict[tuple[str, str], Node] = {}

    def SetTypeClient(self, host: str, port: int) -> int:
        assert self._state == self.StateOff
        self._address = host, port
        return 1

    def Start(self) -> int:
        self._state = self.StateWaitConnection
        return 1

    def Stop(self) -> int:
        self._hang_up()
        self._state = self.StateOff
        return 1

    def GetState(self) -> int:
        return self._state

    def GetNumberOfIncomingMRMLNodes(self) -> int:
        return len(self._incoming)

    def GetIncomingMRMLNode(self, index: int) -> Node:
        return list(self._incoming.values())[index]

    def PeriodicProcess(self) -> None:
        if self._state == self.StateWaitConnection:
            with suppress(OSError):
                self._socket = socket.create_connection(self._address, 0.2)
                self._socket.setblocking(False)
                self._state = self.StateConnected
        if self._socket is None:
            return
        try:
            while piece := self._socket.recv(2**16):
                self._bytes += piece
            self._hang_up()
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up()
        self._take()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._state = None, self.StateWaitConnection
        self._bytes = b""

    def _take(self) -> None:
        """Make nodes of the messages that are whole."""
        while len(self._bytes) >= 58:
            _, kind, name, _, size, _ = struct.unpack(">H12s20sQQQ", self._bytes[:58])
            if len(self._bytes) < 58 + size:
                return
            body, self._bytes = self._bytes[58 : 58 + size], self._bytes[58 + size :]
            kind, name = (text.rstrip(b"\x00").decode() for text in (kind, name))
            fill = {"IMAGE": _image, "STATUS": _status, "STRING": _string, "TRANSFORM": _transform}[kind]
            make = {"IMAGE": VolumeNode, "STATUS": StatusNode, "STRING": TextNode, "TRANSFORM": TransformNode}[kind]
            if (kind, name) not in self._incoming:
                assert self.scene is not None
                self._incoming[kind, name] = self.scene.add(make(name))
            fill(self._incoming[kind, name], body)
            self._incoming[kind, name].Modified()


def _image(node: Any, body: bytes) -> None:
    columns, rows, planes, *numbers = struct.unpack(">3H12f", body[6:60])
    matrix = np.eye(4)
    matrix[:3] = np.reshape(numbers, (4, 3)).T
    matrix[:3, 3] -= matrix[:3, :3] @ ((columns - 1) / 2, (rows - 1) / 2, (planes - 1) / 2)
    image = ImageData()
    image.SetDimensions(columns, rows, planes)
    image.pixels = np.frombuffer(body[72:], np.uint8).reshape(planes, rows, columns)
    node._image = image
    node._matrix._values = matrix


def _transform(node: Any, body: bytes) -> None:
    node.matrix[:3] = np.reshape(struct.unpack(">12f", body), (4, 3)).T


def _status(node: Any, body: bytes) -> None:
    code, subcode, _ = struct.unpack(">Hq20s", body[:30])
    node.said = code, subcode, body[30:].rstrip(b"\x00").decode()


def _string(node: Any, body: bytes) -> None:
    _, size = struct.unpack(">HH", body[:4])
    node.text = body[4 : 4 + size].decode()


class Scene(Node):
    """vtkMRMLScene"""

    StartCloseEvent, EndCloseEvent = START_CLOSE, END_CLOSE
    made: ClassVar = {
        "vtkMRMLIGTLConnectorNode": Connector,
        "vtkMRMLLinearTransformNode": TransformNode,
        "vtkMRMLMarkupsFiducialNode": MarkupsNode,
        "vtkMRMLModelNode": ModelNode,
        "vtkMRMLSequenceBrowserNode": BrowserNode,
        "vtkMRMLSequenceNode": SequenceNode,
        "vtkMRMLScalarVolumeNode": VolumeNode,
    }

    def __init__(self) -> None:
        super().__init__("Scene", "vtkMRMLScene")
        self.nodes: list[Node] = []

    def add(self, node: Any) -> Any:
        self.nodes.append(node)
        node.scene = self
        return node

    def AddNewNodeByClass(self, kind: str, name: str) -> Any:
        return self.add(self.made[kind](name))

    def RemoveNode(self, node: Node) -> None:
        self.nodes.remove(node)

    def Clear(self) -> None:
        self.InvokeEvent(START_CLOSE)
        self.nodes.clear()
        self.InvokeEvent(END_CLOSE)

    def close_connectors(self) -> None:
        for node in self.nodes:
            if isinstance(node, Connector):
                node.Stop()
