"""Runs on Ray: a task for each. A worker that is lost is replaced, and its run goes on from its checkpoint."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.grid.plan import Run
from scopereg.grid.show import Show
from scopereg.grid.work import Outcome, Place, attempt

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing about the user leaves the machine

try:
    import ray
except ModuleNotFoundError:
    raise ScopeRegError("ray is not installed", where="ray=", fix="pip install 'scopereg[cluster]'") from None

_PATIENCE_S = 60.0  # a worker that lost its driver may take a moment to end
_KNOCK_S = 5.0
_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # by its name of two systems; 0 keeps any to this machine
_TOKENS = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@dataclass(frozen=True)
class Share:
    """What a run gets of the cluster."""

    cpus: float | None = None  # None: 1
    gpus: float | None = None  # None: 1 where the cluster has any; runs that train nothing get none
    retries: int = 3  # times that a lost worker is replaced


def run_on_ray(
    runs: Sequence[Run],
    place: Place,
    show: Show,
    address: str | None = None,
    share: Share | None = None,
    *,
    open_to_all: bool = False,
) -> list[Outcome]:
    """How each run ended, on the cluster at `address`, or on one that is started on this machine.

    One that is started asks for a token, and listens on loopback, or with `open_to_all` on all addresses.
    Output and data must lie where every machine of the cluster sees them under the same path.
    """
    share = share or Share()
    place = replace(place, output=place.output.resolve(), quiet=True, patience_s=_PATIENCE_S)
    if place.data is not None:
        place = replace(place, data=os.path.abspath(place.data))
    with _cluster(address, open_to_all=open_to_all):
        shares = {run.name: _resources(run, share) for run in runs}
        _check(shares.values())
        task = ray.remote(_task)
        pending: dict[Any, Run] = {}
        for run in runs:
            chosen = task.options(name=run.name, max_retries=share.retries, **shares[run.name])
            pending[chosen.remote(run, place, sys.argv)] = run
        return _wait(pending, share, show)


def _task(run: Run, place: Place, command: list[str]) -> Outcome:
    """In a worker: what is written down shall tell the command of the user, not that of the worker."""
    import torch

    sys.argv = list(command)
    cpus = ray.get_runtime_context().get_assigned_resources().get("CPU", 1)
    threads = max(1, int(cpus))
    torch.set_num_threads(threads)
    os.environ["ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS"] = str(threads)
    return attempt(run, place)


def _wait(pending: dict[Any, Run], share: Share, show: Show) -> list[Outcome]:
    outcomes = []
    while pending:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=1.0)
        for reference in ready:
            run = pending.pop(reference)
            outcomes.append(_outcome(reference, run, share))
            show.finished(outcomes[-1])
        show.waiting(len(pending))
    return outcomes


def _outcome(reference: Any, run: Run, share: Share) -> Outcome:
    try:
        found: Outcome = ray.get(reference)
        return found
    except ray.exceptions.RayError as error:
        said = str(error).strip().partition("\n")[0]
        return Outcome(run.name, "failed", f"its worker was lost {share.retries + 1} times: {said}", 0.0)


def _resources(run: Run, share: Share) -> dict[str, float]:
    trains = run.settings is not None
    gpus = share.gpus if share.gpus is not None else float(ray.cluster_resources().get("GPU", 0) > 0)
    return {"num_cpus": 1 if share.cpus is None else share.cpus, "num_gpus": gpus if trains else 0}


def _check(shares: Any) -> None:
    """A run that fits no machine would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for wanted in shares:
        cpus, gpus = wanted["num_cpus"], wanted["num_gpus"]
        if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
            best = ", ".join(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise ScopeRegError(
                f"no machine has {cpus:g} cores and {gpus:g} GPUs for a run; there are {best}",
                where="ray=",
                fix="ask for less with cpus= and gpus=, or in the plan",
            )


@contextmanager
def _cluster(address: str | None, *, open_to_all: bool = False) -> Iterator[None]:
    """The cluster that this process is in already, else the one at the address, else a new one on this machine."""
    if ray.is_initialized():
        yield
        return
    quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _safe_start(open_to_all) if address is None else nullcontext():
        try:
            if address is None:
                ray.init(address="local", include_dashboard=False, **quietly)
                _check_reach(open_to_all)
            else:
                _connect(address, quietly)
            yield
        finally:
            ray.shutdown()


@contextmanager
def _safe_start(open_to_all: bool) -> Iterator[None]:
    """Have Ray ask for a token, and listen on loopback alone.

    It would listen on all addresses, whatever address it is told to have; where it is told that there are no other
    machines, it takes loopback. The token of such a cluster lives as long as it, in the environment of its processes.
    """
    constants = ray._private.ray_constants
    own = {"RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE", "token")}
    if not open_to_all:
        own[_MACHINES] = "0"
        if not any(name in os.environ for name in _TOKENS):
            own[_TOKENS[0]] = secrets.token_hex(32)
    before = constants.ENABLE_RAY_CLUSTER
    try:
        with _environment(own):
            constants.ENABLE_RAY_CLUSTER = open_to_all and before
            _read_environment()
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        _read_environment()


@contextmanager
def _environment(own: Mapping[str, str]) -> Iterator[None]:
    """Variables for this process and those that it starts, for a while."""
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _read_environment() -> None:
    """Ray read it when it was imported."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _check_reach(open_to_all: bool) -> None:
    """Rather no cluster than one that others reach without being asked for."""
    address = ray.util.get_node_ip_address()
    if not open_to_all and not ip_address(address).is_loopback:
        raise ScopeRegError(
            f"this version of Ray ({ray.__version__}) listens on {address}, which other machines may reach",
            where="ray=",
            fix="install the version that constraints.txt names, or allow it: ray_open=True",
        )


def _connect(address: str, quietly: dict[str, Any]) -> None:
    place = re.fullmatch(r"(?:ray://)?([^/]+):(\d+)", address)
    try:
        if place:  # Ray itself knocks for minutes where nobody is
            socket.create_connection((place[1], int(place[2])), timeout=_KNOCK_S).close()
        ray.init(address=address, **quietly)
    except (OSError, RuntimeError, ValueError) as error:
        said = str(error).partition("\n")[0]
        raise ScopeRegError(
            f"no cluster can be reached there: {said}",
            where=f"ray= {address}",
            fix="start one with `ray start --head` and pass the address that it shows, or ray= alone for this machine",
        ) from None
