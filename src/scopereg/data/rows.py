"""Rows: voxels of a set in the making, written case by case into .npy files that end in .part until all are done."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from scopereg.data.cases import CaseFiles, CaseRecord, LoadedVolume, load_case, source_hashes
from scopereg.errors import ScopeRegError
from scopereg.io.arrays import read_npy_header
from scopereg.io.files import atomic_path

PART = ".part"


@dataclass(frozen=True)
class RowFiles:
    """One file of `count` volumes for each of `names`, all of one shape and uint8."""

    folder: Path
    names: tuple[str, ...]  # images, labels
    count: int
    shape: tuple[int, ...]  # of one volume

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape)

    def part(self, name: str) -> Path:
        """The file while it is in the making."""
        return self.folder / f"{name}.npy{PART}"

    def whole(self, name: str) -> Path:
        """The file when it is done."""
        return self.folder / f"{name}.npy"

    def open(self, *, resumed: bool = False) -> None:
        """Make files that are not there, as large as they will be.

        If `resumed`, files that had got their final names already, just before the end, are in the making again.
        """
        for name in self.names:
            if resumed and self.whole(name).is_file() and not self.part(name).exists():
                self.whole(name).replace(self.part(name))
            if not self._fits(name):
                self._check_space(name)
                np.lib.format.open_memmap(self.part(name), "w+", np.uint8, (self.count, *self.shape)).flush()

    def write(self, row: int, name: str, voxels: npt.NDArray[np.uint8]) -> None:
        """Put a volume into its row."""
        assert voxels.shape == self.shape
        assert voxels.dtype == np.uint8
        with self.part(name).open("r+b") as file:  # not through a memory map, whose pages would count as memory
            file.seek(self._start(name) + row * self.row_bytes)
            file.write(np.ascontiguousarray(voxels).data)

    def sha256(self, rows: Iterable[int]) -> str:
        """Hash of rows of every file."""
        digest = hashlib.sha256()
        picked = list(rows)
        for name in self.names:
            for content in self._read(name, picked):
                digest.update(content)
        return digest.hexdigest()

    def finish(self, rows: Sequence[int]) -> dict[str, dict[str, Any]]:
        """Give the files their final names, with these rows alone, and tell shape, dtype and hash of each."""
        stored = {}
        for name in self.names:
            digest = hashlib.sha256()
            if list(rows) == list(range(self.count)):
                for content in self._read(name, rows):
                    digest.update(content)
                self.part(name).replace(self.whole(name))
            else:
                self._copy(name, rows, digest)
            stored[name] = {"shape": [len(rows), *self.shape], "dtype": "uint8", "sha256": digest.hexdigest()}
        return stored

    def remove(self) -> None:
        """Remove what is in the making."""
        for name in self.names:
            self.part(name).unlink(missing_ok=True)

    def _copy(self, name: str, rows: Sequence[int], digest: Any) -> None:
        # The file in the making stays until the set is whole: closing its gaps, and being killed, would leave a mess.
        with atomic_path(self.whole(name)) as temporary, temporary.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (len(rows), *self.shape)}
            np.lib.format.write_array_header_1_0(file, header)
            for content in self._read(name, rows):
                digest.update(content)
                file.write(content)

    def _read(self, name: str, rows: Sequence[int]) -> Iterator[bytes]:
        start = self._start(name)
        with self.part(name).open("rb") as file:
            for row in rows:
                file.seek(start + row * self.row_bytes)
                yield file.read(self.row_bytes)

    def _start(self, name: str) -> int:
        """Bytes before the first row."""
        return self.part(name).stat().st_size - self.count * self.row_bytes

    def _fits(self, name: str) -> bool:
        try:
            with self.part(name).open("rb") as file:
                found = read_npy_header(file)
            whole = self.part(name).stat().st_size == found.offset + found.size
        except (OSError, ValueError):
            return False
        return whole and found[:2] == (np.dtype(np.uint8), (self.count, *self.shape))

    def _check_space(self, name: str) -> None:
        needed, free = self.count * self.row_bytes, shutil.disk_usage(self.folder).free
        if needed > free:
            raise ScopeRegError(
                f"{name} need {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
                where=str(self.folder),
                fix="choose a folder on another disk (output=), a smaller size=, or make room",
            )


class Task(NamedTuple):
    """A case, and its place among the cases of the set."""

    place: int
    case: CaseFiles


class Done(NamedTuple):
    """Outcome of a case: an entry for the journal, or the error that it is bad."""

    entry: dict[str, Any] | None
    error: ScopeRegError | None = None


@dataclass(frozen=True)
class Job:
    """Work on the cases of one set: to read them and write their rows."""

    load: Callable[[CaseFiles], list[LoadedVolume]]
    root: Path
    rows: RowFiles
    volumes_per_case: int

    @property
    def array_shape(self) -> tuple[int, ...]:
        return self.rows.count, *self.rows.shape

    def write_case(self, task: Task) -> Done:
        """Read a case and write its rows."""
        try:
            volumes, record = load_case(self, task.case)
        except ScopeRegError as error:
            return Done(None, error)
        for row, volume in zip(self._rows(task.place), volumes, strict=True):
            for name, voxels in zip(("images", "labels"), (volume.image, volume.labels), strict=True):
                if voxels is not None:
                    self.rows.write(row, name, voxels)
        return Done({**asdict(record), "voxels_sha256": self.rows.sha256(self._rows(task.place))})

    def state(self, task: tuple[Task, dict[str, Any]]) -> Literal["good", "changed", "damaged"]:
        """State of a case of the journal: made of the same files, its rows as they were written, or not."""
        (place, case), entry = task
        try:
            same = source_hashes(case, self.root) == entry["sources"]
        except ScopeRegError:
            same = False
        if not same:
            return "changed"
        return "good" if self.rows.sha256(self._rows(place)) == entry["voxels_sha256"] else "damaged"

    def _rows(self, place: int) -> range:
        return range(place * self.volumes_per_case, (place + 1) * self.volumes_per_case)


def record_of(entry: dict[str, Any]) -> CaseRecord:
    """Record of a case, from its entry in the journal."""
    values = {key: value for key, value in entry.items() if key != "voxels_sha256"}
    return CaseRecord(**{**values, "volumes": tuple(entry["volumes"]), "orientation": tuple(entry["orientation"])})
