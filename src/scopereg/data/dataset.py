"""Dataset: how the cases of a dataset are found, checked and read, and how they become a set.

`registry.register_dataset` makes one from outside the package known. Reading needs numpy and the readers of images
alone, not torch: processes that do nothing else start quickly and stay small.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scopereg.data.cases import CaseFiles, LoadedVolume, Progress, SetPlan, existing_folder
from scopereg.errors import ScopeRegError
from scopereg.io.formats import ImageHeader

if TYPE_CHECKING:
    from scopereg.data.splits import Split
    from scopereg.data.store import VolumeSet

Shape = tuple[int, int, int]


class Dataset(ABC):
    """A dataset as it is published. At the least a name, a grid, `find` and `read`."""

    name: ClassVar[str]
    """Word that commands take."""
    title: ClassVar[str] = ""
    """Name that people know, and the page where they get it."""
    address: ClassVar[str] = ""
    options: ClassVar[tuple[str, ...]] = ()
    """Of `plan`, those that `data prepare` offers: size, frames, shape, spacing_mm, margin, probe, any_orientation."""
    sized_by: ClassVar[Literal["size", "shape"] | None] = None
    """The option of these that `train` and `evaluate` hand on."""
    orientation: ClassVar[str | None] = None
    """Directions of the axes in its files (LPS is left, posterior, superior); None: anywhere."""
    highest_label: ClassVar[int | None] = 255
    """Greatest class number in label files; None: any number above 0 is the one class."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings to train networks with where it is published that they differ from the usual ones, by network."""
    epochs: ClassVar[Mapping[str, int]] = {}
    """Length of training under the preset `paper` where it differs, by network."""

    shape: Shape
    """Voxels D, H, W of the reference field, for datasets with one grid."""
    spacing_mm: float
    margin: Shape = (0, 0, 0)
    """Voxels of surroundings kept on each side of it."""

    @abstractmethod
    def find(self, root: Path, labels: bool = True) -> list[CaseFiles]:
        """Every case below a folder, an error that tells what was looked for if there is none."""

    def read(self, case: CaseFiles) -> list[LoadedVolume]:
        """The volumes of a case, uint8, of `shape` with the margin around it; called in several processes."""
        raise NotImplementedError(f"{type(self).__name__} has neither `read` nor a `plan` of its own")

    def found(self, root: Path) -> bool:
        """True where a folder holds this dataset, so that `data check` knows it."""
        return False

    def check(self, case: CaseFiles, header: ImageHeader) -> None:
        """An error if by the header of its image a case cannot be used."""
        check_volume(header.size, case.image)

    def split(self, patients: Sequence[str], fold: int) -> Split | None:
        """The publishers' split, None where there is none for these patients: then patients are dealt out."""
        return None

    def facts(self) -> dict[str, Any]:
        """JSON to keep with a set: the names of the classes, and all that decides its voxels."""
        return {}

    def published_grid(self) -> tuple[Shape, float, str] | None:
        """Shape and spacing in mm to train it with, and by which rule; None: what the files have in common."""
        return (self.shape, self.spacing_mm, "as published") if hasattr(self, "shape") else None

    def plan(
        self, folder: Path | str, *, labels: bool = True, skip_bad: bool = False, name: str | None = None
    ) -> SetPlan:
        """The cases and how they are read, before any voxel is; datasets with options of their own take these too."""
        root = existing_folder(folder)
        return SetPlan(
            name or self.name,
            root,
            spacing_mm=self.spacing_mm,
            shape=self.shape,
            margin=self.margin,
            facts={"dataset": self.title or self.name, **self.facts()},
            cases=tuple(self.find(root, labels)),
            load=self.read,
            orientation=self.orientation,
            split=self.split,
        ).labelled_alike(skip_bad)

    def load(
        self, folder: Path | str, *, skip_bad: bool = False, progress: Progress | None = None, **options: Any
    ) -> VolumeSet:
        """The volumes in memory; `options` are those of `plan`."""
        from scopereg.data.builder import build_set  # with torch, which processes that only read have no use for

        return build_set(self.plan(folder, skip_bad=skip_bad, **options), skip_bad=skip_bad, progress=progress)

    def no_path(self) -> ScopeRegError:
        """The error for a missing folder, with the place to get the data from."""
        got = f"get {self.title} from {self.address}, unpack it and pass its folder" if self.address else ""
        return ScopeRegError(
            "its folder is not given",
            where=f"dataset {self.name}",
            fix=f"{got or 'pass the folder with your volumes'}: path=FOLDER",
        )


def check_volume(size: Sequence[int], path: Path) -> None:
    """An error unless an image of this size, x first, is one volume."""
    if len(size) < 3 or min(size[:3]) < 2 or any(n > 1 for n in size[3:]):
        raise ScopeRegError(
            f"it has {' x '.join(map(str, size))} voxels: no volume",
            where=str(path),
            fix="store one volume of at least two slices in each file",
        )
