"""Anatomies: patients made of formulas."""

from types import MappingProxyType

from scopereg.data.phantom.anatomy.abdomen import Abdomen
from scopereg.data.phantom.anatomy.base import Anatomy
from scopereg.data.phantom.anatomy.echo import Echo
from scopereg.data.phantom.anatomy.prostate import Prostate

_CLASSES: tuple[type[Anatomy], ...] = (Echo, Prostate, Abdomen)
ANATOMIES = MappingProxyType({anatomy.name: anatomy for anatomy in _CLASSES})

__all__ = ["ANATOMIES", "Anatomy"]
