"""Datasets by name: phantoms, worlds, a dataset as published, a folder of volumes, or a set that was stored before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.registry import ANATOMIES, DATASETS, WORLDS, check_dataset, dataset_names
from scopereg.data.seeds import stream_seed
from scopereg.data.store import MANIFEST, VolumeSet, open_set, save_set
from scopereg.data.worlds.sets import USUAL_SHAPE, make_worlds
from scopereg.errors import ScopeRegError

if TYPE_CHECKING:  # with readers of images, which stored sets and what is made do without
    from scopereg.data.cases import Progress
    from scopereg.data.dataset import Shape


def load_dataset(
    name: str,
    path: Path | str | None = None,
    *,
    count: int = 400,
    frames: int = 32,
    magnitude: float = 10.0,
    shape: Shape | None = None,
    size: int = 128,
    labels: bool = True,
    skip_bad: bool = False,
    device: torch.device | str = "cpu",
    keep: Path | None = None,
    progress: Progress | None = None,
) -> VolumeSet:
    """The volumes of a dataset: read from `path`, or if they are phantoms or worlds made on `device`.

    Phantoms and sets made of files are stored in `keep`, and opened there the next time; an interrupted one is gone on
    with. Without it files are read into memory. `count`, `frames` and `magnitude` are for what is made, `size` is for
    CAMUS, `shape` for what is made and for folders. A folder that `save_set` wrote is opened as it is.
    """
    check_dataset(name, "load_dataset(name)")
    if path is not None and (Path(path) / MANIFEST).is_file():
        volumes = _open_named(name, Path(path))
    elif name in ANATOMIES:
        _refuse_path(name, path)
        wanted = {"count": count, "frames": frames, "magnitude": magnitude, "shape": shape}
        volumes = _kept_phantoms(name, wanted, device, keep, progress)
    elif name == WORLDS:
        _refuse_path(name, path)
        sizes: dict[str, Any] = {"frames": frames, "magnitude": magnitude, "shape": shape or USUAL_SHAPE}
        volumes = make_worlds(count, **sizes, device=device, progress=progress)
    else:
        volumes = _read(name, path, {"size": size, "shape": shape}, labels, skip_bad, keep, progress)
    return volumes if labels else replace(volumes, labels=None)


def kept_name(name: str, path: Path | str | None, **options: Any) -> str:
    """A name for the set made of a folder with some options, where sets of several are kept side by side."""
    folder = "" if path is None else str(Path(path).resolve())
    return f"{name}-{stream_seed(f'set of {folder} {sorted(options.items())}'):08x}"


def _read(
    name: str,
    path: Path | str | None,
    grid: dict[str, Any],
    labels: bool,
    skip_bad: bool,
    keep: Path | None,
    progress: Progress | None,
) -> VolumeSet:
    """A dataset of files; of the options of its grid those that it takes."""
    from scopereg.data.builder import build_set

    dataset = DATASETS[name]
    if path is None:
        raise dataset.no_path()
    given = {key: value for key, value in grid.items() if key == dataset.sized_by and value is not None}
    plan = dataset.plan(path, labels=labels, skip_bad=skip_bad, **given)
    return build_set(plan, keep, skip_bad=skip_bad, protocol=False, progress=progress)


def _open_named(name: str, path: Path) -> VolumeSet:
    volumes = open_set(path)
    kind = _kind(volumes)
    if name != "folder" and not kind.startswith(name):
        known = next((known for known in dataset_names() if kind.startswith(known)), "folder")
        raise ScopeRegError(
            f"the set there is of {volumes.name}, not of {name}",
            where=str(path),
            fix=f"name the dataset {known}, or another folder",
        )
    return volumes


def _kind(volumes: VolumeSet) -> str:
    """The dataset that a set was made of, whatever name it goes by."""
    made_of = str(volumes.facts.get("dataset", volumes.name))
    return str(volumes.facts.get("anatomy", made_of)).lower().replace("-", "")


def _kept_phantoms(
    anatomy: str, wanted: dict[str, Any], device: torch.device | str, keep: Path | None, progress: Progress | None
) -> VolumeSet:
    """The phantoms stored in `keep` if they are those wanted; made, and stored there, if there are none."""
    if keep is None or not (keep / MANIFEST).is_file():
        volumes = make_phantoms(anatomy, device=device, progress=progress, **wanted)
        if keep is not None:
            save_set(volumes, keep)
        return volumes
    volumes = open_set(keep)
    usual = tuple(wanted["shape"] or ANATOMIES[anatomy].usual_shape)
    asked = {"anatomy": anatomy, **wanted, "shape": usual}
    found = {**volumes.facts, "count": len(volumes), "shape": volumes.shape}
    changed = [f"{key} ({found.get(key)} there)" for key, value in asked.items() if found.get(key) != value]
    if changed:
        raise ScopeRegError(
            f"the phantoms there were made with other options: {', '.join(changed)}",
            where=str(keep),
            fix="use the same options, another folder (output=), or remove that one",
        )
    return volumes


def _refuse_path(name: str, path: Path | str | None) -> None:
    if path is not None:
        raise ScopeRegError(
            f"there is no stored set, and phantoms ({name}) are made, not read",
            where=str(path),
            fix=f"leave the folder out, name one that save_set wrote, or name the dataset: {', '.join(DATASETS)}",
        )
