"""Datasets by name: phantoms, CAMUS, mu-RegPro, a folder of volumes, or a set that was stored before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from scopereg.data.camus import load_camus
from scopereg.data.cases import Progress
from scopereg.data.folder import Shape, load_folder
from scopereg.data.muregpro import load_muregpro
from scopereg.data.phantom.anatomy import ANATOMIES
from scopereg.data.phantom.sets import make_phantoms
from scopereg.data.store import MANIFEST, VolumeSet, open_set, save_set
from scopereg.data.worlds.sets import NAME as WORLDS
from scopereg.data.worlds.sets import USUAL_SHAPE, make_worlds
from scopereg.errors import ScopeRegError, did_you_mean

PUBLISHED = {
    "camus": ("CAMUS", "https://www.creatis.insa-lyon.fr/Challenge/camus/"),
    "muregpro": ("mu-RegPro", "https://muregpro.github.io/"),
}
NAMES = (*ANATOMIES, WORLDS, *PUBLISHED, "folder")


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

    Phantoms are stored in `keep`. `count`, `frames` and `magnitude` are for what is made, `size` is for CAMUS, `shape`
    for what is made and for folders. A folder that `save_set` wrote is opened as it is.
    """
    if name not in NAMES:
        raise ScopeRegError(
            f"unknown dataset {name!r}{did_you_mean(name, NAMES)}",
            where="load_dataset(name)",
            fix=f"use one of {', '.join(NAMES)}",
        )
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
    elif path is None:
        raise no_path(name, f"scopereg train {name} --data FOLDER")
    elif name == "camus":
        volumes = load_camus(path, size=size, labels=labels, skip_bad=skip_bad, progress=progress)
    elif name == "muregpro":
        volumes = load_muregpro(path, labels=labels, skip_bad=skip_bad, progress=progress)
    else:
        volumes = load_folder(path, shape=shape, labels=labels, skip_bad=skip_bad, progress=progress)
    return volumes if labels else replace(volumes, labels=None)


def _open_named(name: str, path: Path) -> VolumeSet:
    volumes = open_set(path)
    kind = _kind(volumes)
    if name != "folder" and not kind.startswith(name):
        known = next((known for known in NAMES if kind.startswith(known)), "folder")
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
            fix="leave the folder out, name one that save_set wrote, or name the dataset: camus, muregpro or folder",
        )


def no_path(name: str, command: str) -> ScopeRegError:
    """What to say when the folder of a dataset is missing; `command` shows how to pass it."""
    if name in PUBLISHED:
        title, address = PUBLISHED[name]
        fix = f"get {title} from {address}, unpack it and pass its folder: {command}"
    else:
        fix = f"pass the folder with your volumes: {command}"
    return ScopeRegError("its folder is not given", where=f"dataset {name}", fix=fix)
