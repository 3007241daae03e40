"""The volumes of a run: read once per process, and phantoms made once per grid."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from scopereg.data.datasets import kept_name, load_dataset
from scopereg.data.registry import ANATOMIES
from scopereg.data.store import VolumeSet
from scopereg.devices import resolve_device
from scopereg.errors import ScopeRegError
from scopereg.grid.folder import DATA
from scopereg.grid.plan import Run
from scopereg.io.lock import locked
from scopereg.progress import counting

_SIZE = "{size}"


def load_volumes(run: Run, data: str | None, output: Path, device: str, *, quiet: bool = True) -> VolumeSet:
    """The volumes of a run, of the size that it asks for."""
    path = data_path(run, data)
    if run.phantoms and path is None:
        wanted = (run.dataset, run.size, run.magnitude, run.phantoms["count"], run.phantoms["frames"])
        return _phantoms(*wanted, output / DATA, device, quiet)
    volumes = _read(run.dataset, path, run.size, output / DATA, quiet)
    width = volumes.shape[-1]
    if run.size not in (None, width):
        raise ScopeRegError(
            f"its volumes have {width} pixels along a side, the plan asks for {run.size}",
            where=str(path),
            fix=f"prepare the data at {run.size} pixels (scopereg data prepare), one folder for each resolution, "
            f"and pass their names as in data=sets/camus-{_SIZE}",
        )
    return volumes


def data_path(run: Run, data: str | None) -> Path | None:
    """The folder of the data, with the resolution where `{size}` stands."""
    if data is None:
        return None
    if _SIZE in data and run.size is None:
        raise ScopeRegError(
            "the plan names no resolutions", where=f"data= {data}", fix=f"add them to the plan, or leave {_SIZE} out"
        )
    return Path(data.replace(_SIZE, str(run.size)))


@lru_cache(maxsize=1)  # runs of one resolution stand together, and a set may have gigabytes
def _read(dataset: str, path: Path | None, size: int | None, keep: Path, quiet: bool) -> VolumeSet:
    """A stored set, or one made of the files of a dataset; the first process makes it, others wait for it."""
    options: dict[str, Any] = {} if size is None else {"size": size}
    try:
        with counting("reading volumes", quiet) as progress:
            kept = keep / kept_name(dataset, path, **options)
            return load_dataset(dataset, path, keep=kept, progress=progress, **options)
    except ModuleNotFoundError as error:  # machines without readers of images
        raise ScopeRegError(
            f"{error.name} is not installed",
            where=f"dataset {dataset}",
            fix="pip install scopereg, or pass a set prepared elsewhere: scopereg data prepare",
        ) from None


@lru_cache(maxsize=1)
def _phantoms(
    anatomy: str,
    size: int | None,
    magnitude: float,
    count: int,
    frames: int,
    keep: Path,
    device: str,
    quiet: bool,
) -> VolumeSet:
    """Phantoms with frames of one magnitude; the first process makes them, others wait for it."""
    shape = None if size is None else (ANATOMIES[anatomy].usual_shape[0], size, size)
    name = f"{anatomy}-pm{magnitude:g}" + ("" if size is None else f"-{size}")
    with locked(keep / f"{name}.lock", patience_s=float("inf")), counting("making phantoms", quiet) as progress:
        return load_dataset(
            anatomy,
            count=count,
            frames=frames,
            magnitude=magnitude,
            shape=shape,
            device=resolve_device(device),
            keep=keep / name,
            progress=progress,
        )
