"""Source: where an evaluation read its images, written beside its results so that a report finds them again.

It decides no result, and whoever uses it checks that the images are the same: data move, and results are passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from scopereg.io.files import is_here

KEY = "source"  # in the facts of a results file


@dataclass(frozen=True)
class Source:
    """Names of files and what reading them took; phantoms have none, their seeds are in the names of their cases."""

    dataset: str = ""
    path: str = ""  # absolute: of the dataset, or the file of a sweep
    kept: str = ""  # folder with the prepared set, from that of the results
    size: int = 128
    skip_bad: bool = False
    calibration: str = ""  # these of a sweep
    spacing_mm: float = 0.0
    held_out: tuple[int, int] = (5, 5)
    shape: tuple[int, int, int] = (0, 0, 0)

    def facts(self) -> dict[str, Any]:
        """Ready for JSON, what is as usual left out."""
        usual = asdict(Source())
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    def kept_beside(self, results: Path) -> Path | None:
        """The prepared set beside a results file; None where none is named, or its name leads elsewhere."""
        parts = PurePosixPath(self.kept).parts
        if not parts or ".." in parts or self.kept.startswith("/") or ":" in self.kept or "\\" in self.kept:
            return None
        return results.parent.joinpath(*parts)


def source_of(facts: Mapping[str, Any]) -> Source:
    """What a file says; an empty source where it says nothing, or nothing that can be used."""
    told = facts.get(KEY)
    if not isinstance(told, Mapping):
        return Source()
    usual = Source()
    known = {field.name: told[field.name] for field in fields(Source) if field.name in told}
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
    if any(not _alike(value, getattr(usual, name)) for name, value in found.items()):
        return Source()
    source = Source(**found)
    return source if is_here(source.path) and is_here(source.calibration) else Source()


def told_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a file as a page shows them: names of files without the folders of this machine."""
    told = dict(facts)
    if isinstance(told.get(KEY), Mapping):
        names = {key: Path(str(value)).name for key, value in told[KEY].items() if key in ("path", "calibration")}
        told[KEY] = {**told[KEY], **names}
    return told


def _alike(value: Any, usual: object) -> bool:
    if isinstance(usual, tuple):
        whole = isinstance(value, tuple) and len(value) == len(usual)
        return whole and all(type(number) is int and number > 0 for number in value)
    if isinstance(usual, float):
        return type(value) in (int, float) and 0 < float(value) < 1e3
    return type(value) is type(usual)
