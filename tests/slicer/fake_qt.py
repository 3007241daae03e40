"""Stand-ins for the widgets of Qt, CTK and 3D Slicer that ScopeRegLive uses, as PythonQt shows them; see fakes.py."""
# ruff: noqa: N802  the names are those of Qt

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from fake_nodes import Node


class Widget:
    """Any widget of Qt or CTK: the properties and signals of its class, and no others."""

    properties: ClassVar[dict[str, Any]] = {}
    signals: tuple[str, ...] = ()

    def __init__(self, text: str = "") -> None:
        values = dict(self.properties)
        if text:
            values["text"] = text
        self.__dict__.update(values, _slots={}, items=[])

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.properties:
            raise AttributeError(f"{type(self).__name__} has no property {name}")
        before, self.__dict__[name] = self.__dict__[name], value
        signal = {"checked": "toggled(bool)", "value": "valueChanged(double)"}.get(name)
        if before != value and signal in self.signals:
            self.emit(signal)

    def connect(self, signal: str, slot: Callable[..., None]) -> None:
        assert signal in self.signals, f"{type(self).__name__} has no signal {signal}"
        self._slots[signal] = slot

    def emit(self, signal: str) -> None:
        if signal in self._slots:
            self._slots[signal]()


class Label(Widget):
    properties: ClassVar = {"text": "", "wordWrap": False, "styleSheet": ""}

    def setAlignment(self, alignment: int) -> None:
        pass


class Button(Widget):
    properties: ClassVar = {"text": "", "enabled": True}
    signals = ("clicked()",)


class CheckBox(Widget):
    properties: ClassVar = {"text": "", "checked": False}
    signals = ("toggled(bool)",)


class LineEdit(Widget):
    properties: ClassVar = {"text": ""}


class SpinBox(Widget):
    properties: ClassVar = {"value": 0}

    def setRange(self, low: int, high: int) -> None:
        pass


class DoubleSpinBox(SpinBox):
    properties: ClassVar = {"value": 0.0}


class ComboBox(Widget):
    properties: ClassVar = {"currentText": ""}
    signals = ("currentIndexChanged(int)",)

    def addItems(self, items: list[str]) -> None:
        assert isinstance(items, list)
        self.items.extend(items)
        self.__dict__["currentText"] = items[0]


class Slider(Widget):
    properties: ClassVar = {"minimum": 0.0, "maximum": 99.0, "singleStep": 1.0, "value": 0.0}
    signals = ("valueChanged(double)",)


class PathEdit(Widget):
    Files, Writable = 0x002, 0x020
    properties: ClassVar = {"filters": 0, "currentPath": ""}


class Section(Widget):
    properties: ClassVar = {"text": "", "collapsed": False}


class NodeSelector(Widget):
    """qMRMLNodeComboBox"""

    properties: ClassVar = {
        "nodeTypes": [],
        "addEnabled": True,
        "removeEnabled": True,
        "noneEnabled": False,
        "selectNodeUponCreation": True,
    }
    signals = ("currentNodeChanged(vtkMRMLNode*)",)

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["_node"] = None

    def setMRMLScene(self, scene: Any) -> None:
        pass

    def currentNode(self) -> Node | None:
        return self._node

    def setCurrentNode(self, node: Node | None) -> None:
        before, self.__dict__["_node"] = self._node, node
        if before is not node:
            self.emit("currentNodeChanged(vtkMRMLNode*)")


class Layout:
    def __init__(self, owner: Any = None) -> None:
        self.rows: list[Any] = []

    def addWidget(self, widget: Any) -> None:
        self.rows.append(widget)

    def addRow(self, *row: Any) -> None:
        self.rows.append(row)

    def addStretch(self, stretch: int) -> None:
        pass


class Settings:
    """QSettings: of the application, whoever asks for them."""

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    def value(self, name: str, default: Any) -> Any:
        return self._kept.get(name, default)

    def setValue(self, name: str, value: Any) -> None:
        self._kept[name] = value


class Timer:
    """QTimer; it never runs out by itself."""

    running = False

    def setInterval(self, ms: int) -> None:
        self.interval_ms = ms

    def connect(self, signal: str, slot: Callable[..., None]) -> None:
        assert signal == "timeout()"
        self.slot = slot

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False
