"""Registry: datasets and anatomies that every verb knows by name, those of the package and those from outside.

What the package brings is listed here and imported when it is asked for: names are known without torch and without
readers of images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from scopereg.errors import ScopeRegError, did_you_mean

if TYPE_CHECKING:
    from scopereg.data.dataset import Dataset
    from scopereg.data.phantom.anatomy.base import Anatomy

SWEEP = "sweep"  # a tracked sweep, which `evaluate` takes too
WORLDS = "worlds"  # random anatomies: no dataset, and no anatomy that could be told apart
Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name, in the order in which they came."""

    def __init__(self, kind: str, **built_in: str) -> None:
        """`built_in` are places (module:name) by the names of entries."""
        self.kind = kind
        self._entries: dict[str, Entry | str] = dict(built_in)
        self._from_outside: set[str] = set()

    def __getitem__(self, name: str) -> Entry:
        entry = self._entries[name]
        if isinstance(entry, str):
            module, attribute = entry.split(":")
            self._entries[name] = entry = getattr(import_module(module), attribute)
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries  # without importing it

    def add(self, name: str, entry: Entry, where: str) -> None:
        """Another entry; an error if the name is taken, in this registry or another, or is no word."""
        taken = [*DATASETS, *ANATOMIES, WORLDS, SWEEP]
        if not (isinstance(name, str) and name.replace("-", "_").isidentifier()) or name in taken:
            raise ScopeRegError(
                f"the name is {name!r}" + (", which is taken" if name in taken else ""),
                where=where,
                fix=f"choose a word that is none of {', '.join(taken)}",
            )
        self._entries[name] = entry
        self._from_outside.add(name)

    def added(self, name: str) -> Entry | None:
        """The entry of that name if it was added from outside."""
        return self._entries[name] if name in self._from_outside else None  # type: ignore[return-value]

    def remove(self, name: str) -> None:
        """Forget an entry that was added."""
        self._from_outside.remove(name)
        del self._entries[name]

    def find(self, name: str, where: str) -> Entry:
        """The entry of that name, an error with the nearest one if there is none."""
        if name not in self._entries:
            raise ScopeRegError(
                f"unknown {self.kind} {name!r}{did_you_mean(str(name), self)}",
                where=where,
                fix=f"use one of {', '.join(self)}",
            )
        return self[name]


DATASETS: Registry[Dataset] = Registry(
    "dataset",
    camus="scopereg.data.camus:CAMUS",
    muregpro="scopereg.data.muregpro:MUREGPRO",
    folder="scopereg.data.folder:FOLDER",
)
ANATOMIES: Registry[type[Anatomy]] = Registry(
    "anatomy",
    echo="scopereg.data.phantom.anatomy.echo:Echo",
    prostate="scopereg.data.phantom.anatomy.prostate:Prostate",
    abdomen="scopereg.data.phantom.anatomy.abdomen:Abdomen",
)


def register_dataset(dataset: Dataset) -> None:
    """Make a dataset known by its name: to `load_dataset`, data check and prepare, train and evaluate."""
    DATASETS.add(dataset.name, dataset, "register_dataset(dataset)")


def register_anatomy(anatomy: type[Anatomy]) -> type[Anatomy]:
    """Make an anatomy known by its name, to `phantom.create` and to all verbs; also a decorator of its class."""
    ANATOMIES.add(anatomy.name, anatomy, "register_anatomy(anatomy)")
    return anatomy


def dataset_names() -> tuple[str, ...]:
    """Every word that stands for data: anatomies, worlds, datasets."""
    return (*ANATOMIES, WORLDS, *DATASETS)


def check_dataset(name: str, where: str) -> None:
    """An error unless it is one of these words."""
    names = dataset_names()
    if name not in names:
        folder = f"; of your own volumes: folder, and data={name}" if Path(name).is_dir() else ""
        raise ScopeRegError(
            f"unknown dataset {name!r}{did_you_mean(str(name), names)}",
            where=where,
            fix=f"use one of {', '.join(names)}{folder}",
        )
