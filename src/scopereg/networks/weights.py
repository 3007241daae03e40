"""Networks to and from safetensors files: the weights, and in the header which network they belong to.

A file may hold only the weights that differ from those of another, its base: the header names that one and its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from scopereg import networks
from scopereg.errors import ScopeRegError, did_you_mean
from scopereg.io.records import USUAL, Record, parse_json
from scopereg.io.tensors import read_header, read_tensors, write_tensors
from scopereg.networks.fine import FineStage
from scopereg.provenance import tensors_sha256

FORMAT = "scopereg-1"
SHIPPED = files("scopereg") / "weights"
FINE = ".fine.safetensors"  # of the fine stage that belongs to weights, beside them
SUMS = "SHA256SUMS"  # beside the weights of the package, as `sha256sum -c` reads it
_MADE_BY = "scopereg (networks.weights.save_network)"
_FIX = "use weights that scopereg wrote, or make them again"
_MOST_SIZES, _MOST_SIZE = 8, 4096
_KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (float, int)),
    str: ("a word", (str,)),
    tuple: ("a list", (list,)),
}
_MOST = {"looks": 32, "steps": 64}  # decoding passes of SCoPE-Reg and steps of DreamReg: each costs a pass


class Stored(NamedTuple):
    """What a weights file holds: all that it takes to make its network."""

    network: str
    options: dict[str, Any]
    facts: dict[str, Any]
    tensors: dict[str, torch.Tensor]  # all of the network, those of the base included
    base: dict[str, str]  # name and sha256 of the weights that the file builds on; empty where it holds all
    own: frozenset[str]  # what the file itself holds


def save_network(
    network: nn.Module,
    path: Path | str,
    *,
    name: str,
    options: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """Write a network made by `create(name, **options)`; `facts` (data, seed, versions) travel in the header.

    `dtype` (such as torch.float16) stores floating weights in fewer bytes.
    """
    tensors = {key: _packed(value, dtype) for key, value in network.state_dict().items()}
    return write_tensors(path, tensors, _header(network, name, options or {}, facts or {}))


def save_changes(
    network: nn.Module,
    path: Path | str,
    *,
    base: Path | str,
    changed: Collection[str],
    options: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write the weights `changed` of a network in half precision; all others stay those of the `base`.

    The base is a model of the package by name, or a file. Where that one builds on another, so does the new file, and
    holds the changes of both. `options` are those that the network was created with otherwise than its base.
    """
    with weights_file(base) as place:
        under = read_stored(place)
    base_facts = under.base or {"name": str(base), "sha256": weights_sha256(under.tensors)}
    state = network.state_dict()
    # Statistics of the norms are few, and may lie far apart: they stay as they are.
    weights = dict(network.named_parameters())
    kept = set(changed) | (under.own if under.base else set())
    tensors = {key: _packed(state[key], torch.float16 if key in weights else None) for key in sorted(kept)}
    header = _header(network, under.network, {**under.options, **(options or {})}, facts or {})
    header["base"] = json.dumps(base_facts)
    return write_tensors(path, tensors, header)


def load_network(path: Path | str, device: torch.device | str = "cpu") -> nn.Module:
    """The network of a file, in float32 and ready for inference."""
    return network_of(read_stored(path), path).to(device)


def network_of(stored: Stored, path: Path | str) -> nn.Module:
    """The network of what was read from `path`."""
    tensors, network = stored.tensors, _created(stored, path)
    wanted = network.state_dict()
    problems = [f"{key} is missing" for key in wanted.keys() - tensors.keys()]
    problems += [f"{key} is not part of it" for key in tensors.keys() - wanted.keys()]
    problems += [
        f"{key} has shape {tuple(tensors[key].shape)} instead of {tuple(wanted[key].shape)}"
        for key in wanted.keys() & tensors.keys()
        if tensors[key].shape != wanted[key].shape
    ]
    if problems:
        raise ScopeRegError(
            f"does not hold a {stored.network}: {sorted(problems)[0]}, {len(problems)} differences in all",
            where=str(path),
            fix="use weights that this version of scopereg wrote, or install the version that wrote them",
        )
    if any(value.is_meta for value in wanted.values()):
        network = networks.create(stored.network, **stored.options)
    network.load_state_dict({key: value.to(wanted[key].dtype) for key, value in tensors.items()})
    return network.eval()


def _created(stored: Stored, path: Path | str) -> nn.Module:
    """The network; one that grows with its shape without memory, until that is known to be the file's."""
    try:
        with torch.device("meta" if "shape" in stored.options else torch.get_default_device()):
            return networks.create(stored.network, **stored.options)
    except ScopeRegError as error:
        raise ScopeRegError(error.what, where=str(path), fix=error.fix) from None
    except (TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ScopeRegError(
            f"its options make no {stored.network}: {str(error).splitlines()[0]}", where=str(path), fix=_FIX
        ) from None


def read_facts(path: Path | str) -> dict[str, Any]:
    """What the header of a weights file says of its making."""
    return _facts(_header_of(Path(path)), path)


def read_base(path: Path | str) -> dict[str, str]:
    """Name and hash of the weights that a file builds on; empty where it holds all."""
    return _base(_header_of(Path(path)), path)


def read_stored(path: Path | str) -> Stored:
    """Everything that a file holds, with the weights of its base where it has one."""
    path = Path(path)
    header, own = _read(path)
    base = _base(header, path)
    tensors = {**_base_tensors(base, path), **own} if base else own
    return Stored(_name(header, path), _options(header, path), _facts(header, path), tensors, base, frozenset(own))


def shipped() -> tuple[str, ...]:
    """Models that come with the package."""
    found = (Path(entry.name) for entry in SHIPPED.iterdir() if not entry.name.endswith(FINE))
    return tuple(sorted(path.stem for path in found if path.suffix == ".safetensors"))


def fine_beside(weights: Path | str) -> Path:
    """Where the fine stage of a network is looked for."""
    return Path(weights).with_suffix(FINE)


def bases_of(path: Path | str) -> tuple[str, ...]:
    """What weights were adapted from: the latest first, the whole ones that the file builds on last."""
    base = read_base(path)
    if not base:
        return ()
    return tuple(dict.fromkeys([str(read_facts(path).get("settings", {}).get("base", base["name"])), base["name"]]))


def load_fine_stage(weights: Path | str, device: torch.device | str = "cpu") -> FineStage | None:
    """The fine stage beside weights, or beside those that they were adapted from."""
    names: tuple[Path | str, ...] = (weights, *bases_of(weights))
    for name in names:
        with weights_file(name) as place:
            beside = fine_beside(place)
            if not beside.is_file():
                continue
            network = load_network(beside, device)
        if not isinstance(network, FineStage):
            raise ScopeRegError(
                f"it holds a {type(network).__name__}", where=str(beside), fix="put a fine stage there, or remove it"
            )
        return network
    return None


@contextmanager
def weights_file(name: Path | str) -> Iterator[Path]:
    """The file of a model of the package by its name; any other name is a path already."""
    entry = SHIPPED / f"{name}.safetensors"
    if Path(name).suffix == ".safetensors" or not entry.is_file():
        yield Path(name)
        return
    with as_file(entry) as path:
        yield path


def weights_sha256(tensors: dict[str, torch.Tensor]) -> str:
    """Hash of weights, whatever the file says besides."""
    return tensors_sha256(*(tensors[key] for key in sorted(tensors)))


def _base_tensors(base: dict[str, str], path: Path) -> dict[str, torch.Tensor]:
    """The weights that a file builds on, if they are there and still the same."""
    name = base["name"]
    with weights_file(name) as place:
        beside = path.parent / f"{place.name.removesuffix('.safetensors')}.safetensors"  # also of a model shipped once
        found = place if place.is_file() else beside
        if not found.is_file():
            raise ScopeRegError(
                f"it holds changes of {name}, which is not there",
                where=str(path),
                fix=f"put {beside.name} beside it, or adapt again (scopereg adapt)",
            )
        header, tensors = _read(found)
    if _base(header, found):  # `save_changes` names the weights below all: a chain could be a ring
        raise ScopeRegError(
            f"it holds changes of {name}, which holds changes itself",
            where=str(path),
            fix="adapt again (scopereg adapt), which writes one file of both",
        )
    if weights_sha256(tensors) != base["sha256"]:
        raise ScopeRegError(
            f"it holds changes of {name}, whose weights are others by now",
            where=str(path),
            fix="bring back the weights that it was made from, with the version of scopereg that had them, or adapt "
            "again (scopereg adapt)",
        )
    return tensors


def _header(network: nn.Module, name: str, options: dict[str, Any], facts: dict[str, Any]) -> dict[str, str]:
    if not networks.is_network(network, name, options):
        raise ScopeRegError(
            f"the network is no {name}: a {type(network).__name__} with other settings",
            where="save_network(name)",
            fix="pass the name and options that the network was created with",
        )
    return {"format": FORMAT, "network": name, "options": json.dumps(options), "facts": json.dumps(facts)}


def _packed(value: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    value = value.detach().cpu()
    return (value.to(dtype) if dtype is not None and value.is_floating_point() else value).contiguous()


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    _check_shipped(path)
    return read_tensors(path, FORMAT, made_by=_MADE_BY)


def _header_of(path: Path) -> dict[str, str]:
    return read_header(path, FORMAT, made_by=_MADE_BY)


def checksums() -> dict[str, str]:
    """SHA-256 of the files that come with the package, by their names."""
    lines = (SHIPPED / SUMS).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}


def _check_shipped(path: Path) -> None:
    """An error where weights of the package are not those that it came with; they hold no hash themselves."""
    if path.parent != Path(str(SHIPPED)) or not path.is_file():
        return
    if checksums().get(path.name) not in (None, hashlib.sha256(path.read_bytes()).hexdigest()):
        raise ScopeRegError(
            "it is damaged: it is not the file that the package came with",
            where=str(path),
            fix="install scopereg again",
        )


# what the header says, each part by its kind and within limits


def _name(header: dict[str, str], path: Path) -> str:
    name = Record(header, str(path), _FIX).text("network", most=200)
    if name not in networks.names():
        raise ScopeRegError(
            f"it holds a {name!r}, which is no network here{did_you_mean(name, networks.names())}",
            where=str(path),
            fix="install the version that has it, or register it first (networks.register_network)",
        )
    return name


def _options(header: dict[str, str], path: Path) -> dict[str, Any]:
    """Options of the network, each of the kind that it has there and no larger than any network is."""
    options, usual = _part(header, "options", path), networks.usual_options(_name(header, path))
    for key, value in options.values.items():
        sizes, most = value if isinstance(value, list) else [value], _MOST.get(key, _MOST_SIZE)
        good = len(sizes) <= _MOST_SIZES and all(isinstance(size, str | bool | int | float) for size in sizes)
        if not good or any(isinstance(size, int | float) and abs(size) > most for size in sizes):
            raise options.wrong(key, f"a size, number or word of a network (at most {most})")
        wanted, kinds = _KINDS.get(type(usual.get(key)), ("", (type(value),)))
        if type(value) not in kinds:
            raise options.wrong(key, f"{wanted}, as {usual[key]!r} is")
    return dict(options.values)


def _facts(header: dict[str, str], path: Path | str) -> dict[str, Any]:
    facts = _part(header, "facts", path)
    if facts.has("spacing_mm"):
        facts.number("spacing_mm", 1e-6, 1e3)
    for key in ("shape", "window"):
        if facts.has(key) and not all(n == int(n) and 0 < n <= _MOST_SIZE for n in facts.numbers(key, 3)):
            raise facts.wrong(key, "three sizes in voxels")
    for key in ("minutes", "minutes_before"):
        if facts.has(key):
            facts.number(key, 0)
    if facts.has("settings"):
        settings = facts.record("settings")
        if settings.has("magnitude"):
            settings.number("magnitude", 0, _MOST_SIZE)
        if settings.has("base"):
            settings.text("base")
    return dict(facts.values)


def _base(header: dict[str, str], path: Path | str) -> dict[str, str]:
    if "base" not in header:
        return {}
    base = _part(header, "base", path)
    return {"name": base.text("name", most=4096), "sha256": base.text("sha256", most=64)} if base.values else {}


def _part(header: dict[str, str], key: str, path: Path | str) -> Record:
    """A part of the header, which is JSON within JSON."""
    text = Record(header, str(path), _FIX).text(key, most=USUAL.size)
    return Record.of(parse_json(text, f"{path}: {key}", _FIX, finite=False), f"{path}: {key}", _FIX)
