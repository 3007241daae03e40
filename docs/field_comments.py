"""Comments beside the fields of a class are what the site tells of them: the code has no docstrings below fields."""

from __future__ import annotations

import re
from typing import Any

import griffe

COMMENT = re.compile(r"\s{2}#\s(.+)$")


class FieldComments(griffe.Extension):
    """Gives each field without a docstring the comment of its line."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Where the field's source ends in a comment, and it belongs to a class."""
        if attr.docstring is None and attr.parent is not None and attr.parent.is_class and attr.lineno:
            lines = attr.lines_collection[attr.filepath]
            last = lines[(attr.endlineno or attr.lineno) - 1]
            if found := COMMENT.search(last):
                text = found[1][0].upper() + found[1][1:]
                attr.docstring = griffe.Docstring(text if text.endswith(".") else f"{text}.", parent=attr)
