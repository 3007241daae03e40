"""PLUS configurations out: one calibrated transform put into a new file, or into a copy of one that there is.

Of a file that there is nothing else changes, no comment and no line: the transform is replaced in its text.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np

from scopereg.errors import ScopeRegError
from scopereg.io.files import write_bytes
from scopereg.io.plus import Link, Matrix, configuration_bytes, matrix_of, parsed_configuration

DEFINITIONS, TRANSFORM = "CoordinateDefinitions", "Transform"
_VERSION = "2.9"  # of PLUS, whose configurations look so
_NEW = f"""<PlusConfiguration version="{_VERSION}">
  <DataCollection StartupDelaySec="1.0">
    <DeviceSet Name="Calibrated probe" Description="ImageToProbe found by scopereg; devices are to be added" />
  </DataCollection>
  <{DEFINITIONS}>
  </{DEFINITIONS}>
</PlusConfiguration>
"""
_DATE = "%m%d%y_%H%M%S"  # as PLUS has it


class _Tag(NamedTuple):
    """A start tag in the text."""

    start: int
    end: int  # behind it
    attributes: dict[str, str]


def write_calibration(
    path: Path | str,
    link: Link,
    matrix: Matrix,
    *,
    configuration: Path | str | None = None,
    error_mm: float | None = None,
    made: datetime | None = None,
) -> Path:
    """Write a PLUS configuration with the transform `link` (from, to); that of `configuration` is kept but for it.

    `matrix` (4, 4) takes pixels to mm where it begins at the image. It is read back equal to the last digit.
    """
    if np.shape(matrix) != (4, 4):
        raise ScopeRegError("it is no 4 x 4 matrix", where="write_calibration(matrix)", fix="pass one")
    matrix_of(_rows(matrix), "write_calibration(matrix)")  # what could not be read back is not written
    content = _NEW.encode() if configuration is None else configuration_bytes(configuration)
    where = str(configuration or path)
    facts = {"From": link[0], "To": link[1], "Matrix": _rows(matrix)}
    facts |= {} if error_mm is None else {"Error": f"{error_mm:.4g}"}
    facts["Date"] = (made or datetime.now()).strftime(_DATE)
    changed = _with_transform(content, link, facts, where)
    _check_kept(parsed_configuration(content, where), parsed_configuration(changed, where), link, where)
    return write_bytes(path, changed)


def _rows(matrix: Matrix) -> str:
    rows = (" ".join(repr(float(number) + 0.0) for number in row) for row in matrix)
    return "\n        ".join(rows)


def _with_transform(content: bytes, link: Link, facts: dict[str, str], where: str) -> bytes:
    """The content with the transform replaced, or added to the definitions, which are added where there are none."""
    tags = _tags(content, where)
    own = [tag for tag in tags[TRANSFORM] if _link_of(tag) == link]
    if len(own) > 1 or any(_link_of(tag) == link[::-1] for tag in tags[TRANSFORM]):
        raise ScopeRegError(
            f"it holds the transform between {link[0]} and {link[1]} more than once, or the other way round",
            where=where,
            fix=f"keep one from {link[0]} to {link[1]}, or none",
        )
    if own:
        (tag,) = own
        closing = b"/>" if content[tag.start : tag.end].endswith(b"/>") else b">"
        kept = {name: value for name, value in tag.attributes.items() if name not in facts}
        return content[: tag.start] + _tag(facts | kept, closing) + content[tag.end :]
    added = b"\n    " + _tag(facts, b"/>")
    if tags[DEFINITIONS]:
        return _opened(content, tags[DEFINITIONS][0], DEFINITIONS, added)
    section = f"\n  <{DEFINITIONS}>".encode() + added + f"\n  </{DEFINITIONS}>".encode()
    return _opened(content, tags[""][0], _name_at(content, tags[""][0]), section)


def _opened(content: bytes, tag: _Tag, name: str, inner: bytes) -> bytes:
    """The content with something put behind a start tag, which is opened where it is empty."""
    if not content[tag.start : tag.end].endswith(b"/>"):
        return content[: tag.end] + inner + content[tag.end :]
    head = content[: tag.end].removesuffix(b"/>").rstrip() + b">"
    return head + inner + f"\n</{name}>".encode() + content[tag.end :]


def _name_at(content: bytes, tag: _Tag) -> str:
    return content[tag.start + 1 : tag.end].split()[0].rstrip(b"/>").decode()


def _tag(attributes: dict[str, str], closing: bytes) -> bytes:
    """The start tag of a transform; lines within its matrix are spaces to whoever parses it."""
    words = " ".join(
        f'{name}="{value}"' if name == "Matrix" else _quoted(name, value) for name, value in attributes.items()
    )
    return f"<{TRANSFORM} {words} ".encode("ascii", "xmlcharrefreplace") + closing


def _quoted(name: str, value: str) -> str:
    return f"{name}={quoteattr(value)}"


def _link_of(tag: _Tag) -> Link:
    return tag.attributes.get("From", ""), tag.attributes.get("To", "")


def _tags(content: bytes, where: str) -> dict[str, list[_Tag]]:
    """Start tags of transforms and of their section, and under an empty name the root's."""
    parsed_configuration(content, where)  # tells what is wrong with it
    if b"\0" in content:
        raise ScopeRegError("its letters take two bytes each", where=where, fix="save it as UTF-8")
    found: dict[str, list[_Tag]] = {"": [], DEFINITIONS: [], TRANSFORM: []}
    parser = expat.ParserCreate()

    def begin(name: str, attributes: dict[str, str]) -> None:
        start = parser.CurrentByteIndex
        tag = _Tag(start, _end_of_tag(content, start), attributes)
        if not found[""]:
            found[""].append(tag)
        elif name in found:
            found[name].append(tag)

    parser.StartElementHandler = begin
    parser.Parse(content, True)
    return found


def _end_of_tag(content: bytes, start: int) -> int:
    """Behind the `>` of a tag; one within quotes is none."""
    quote = 0
    for place in range(start, len(content)):
        letter = content[place]
        if quote:
            quote = 0 if letter == quote else quote
        elif letter in b"\"'":
            quote = letter
        elif letter == ord(">"):
            return place + 1
    raise AssertionError("a parser has found its end")


def _check_kept(before: ElementTree.Element, after: ElementTree.Element, link: Link, where: str) -> None:
    """An error where anything but the transform was changed."""

    def others(root: ElementTree.Element) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        every = ((entry.tag, tuple(sorted(entry.attrib.items()))) for entry in root.iter() if entry.tag != DEFINITIONS)
        wanted = {("From", link[0]), ("To", link[1])}
        return [(tag, facts) for tag, facts in every if tag != TRANSFORM or not wanted <= set(facts)]

    if others(before) != others(after):
        raise ScopeRegError(
            "the transform cannot be put into it without a change of something else",
            where=where,
            fix="write a new file, and copy the transform from it",
        )
