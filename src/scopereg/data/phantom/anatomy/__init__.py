"""Anatomies: patients made of formulas. `scopereg.data.registry` lists them."""

from scopereg.data.phantom.anatomy.base import Anatomy
from scopereg.data.registry import ANATOMIES, register_anatomy

__all__ = ["ANATOMIES", "Anatomy", "register_anatomy"]
