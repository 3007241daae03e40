"""Modality: whether a volume is ultrasound, MR or CT, by what its file says, else by its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from scopereg.image_fields import CT, MR, US, as_modality
from scopereg.io.stored import StoredVolume

AUTO = "auto"
_WORDS = {
    **dict.fromkeys(("us", "ultrasound", "ivus", "met_mod_us"), US),
    **dict.fromkeys(("mr", "mri", "dwmri", "met_mod_mr"), MR),
    **dict.fromkeys(("ct", "met_mod_ct"), CT),
}
_AIR_HU, _BONE_HU, _LEAST_HU = -500, 300, -4100  # between which the values of a CT lie: air below, bone above
_FROM = {"given": "as given", "header": "as its header says", "values": "by its values, Hounsfield units"}


def named(word: str) -> str:
    """The modality that a word of a header names; empty where it names none that is known here."""
    return _WORDS.get(word.strip().lower(), "")


def with_modality(volume: StoredVolume, told: str = AUTO) -> StoredVolume:
    """The volume with its modality, and in its facts where that is from: given, header, values, or nothing tells it.

    What nothing tells is taken for ultrasound.
    """
    if told != AUTO:
        return _with(volume, as_modality(told, "read_volume(modality)"), "given")
    said = named(str(volume.facts.get("modality", "")))
    if said:
        return _with(volume, said, "header")
    return _with(volume, CT, "values") if looks_like_ct(volume.array) else _with(volume, US, "")


def looks_like_ct(values: torch.Tensor) -> bool:
    """Whether values are Hounsfield units: whole numbers from air to bone."""
    low, high = float(values.min()), float(values.max())
    if not (_LEAST_HU <= low <= _AIR_HU and high >= _BONE_HU):
        return False
    some = values.flatten()[:: max(values.numel() // 100_000, 1)]
    return bool((some == some.round()).all())


def words_of(facts: Mapping[str, Any], modality: str) -> str:
    """The modality of a volume and where it is told, in words."""
    source = str(facts.get("modality_from", ""))
    if not source:
        return (
            "taken for ultrasound: nothing in the file tells another modality" if modality == US else modality.upper()
        )
    return f"{'ultrasound' if modality == US else modality.upper()}, {_FROM[source]}"


def _with(volume: StoredVolume, modality: str, source: str) -> StoredVolume:
    return replace(volume, modality=modality, facts={**volume.facts, "modality_from": source})
