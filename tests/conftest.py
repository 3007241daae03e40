"""One thread for all tests, an order for those in several processes (`make test`), and shapes that are checked."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

# Before torch and numpy are imported, and inherited by the processes that tests start: threads of several processes
# on the same cores wait for each other, and sums in one order let runs be compared bit by bit.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import jaxtyping  # after that: it imports numpy
import pytest

if TYPE_CHECKING:
    from scopereg.registration.model import Registrar

# Jobs in the background of a shell ignore Ctrl-C, and so do all processes that they start: tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Modules that carry the shapes of tensors in their signatures. Before any of them is imported: each call is checked.
SHAPED = [
    *("geometry.kabsch", "geometry.rotations", "geometry.pose_errors", "geometry.slicing", "geometry.steps"),
    *("geometry.spline", "geometry.elastic"),
    *("registration.deformable.equations", "registration.deformable.elasticity"),
    *("registration.likeness", "registration.grey", "registration.refine", "registration.confidence"),
    *("registration.fine", "registration.learned", "registration.lc2"),
    *(f"ops.scan.{name}" for name in ("forms", "layout", "reference", "torch_backend", "recorded", "meta", "cpu")),
    *("ops.decode.plain", "ops.descent", "ops.gates", "ops.norms", "ops.ssim"),
    *("ops.splat", "ops.bridges", "ops.correlation"),
    *(f"networks.{name}" for name in ("encoders", "fusion", "decoder", "lattice", "passes", "scope_reg")),
    *(f"networks.{name}" for name in ("ablations", "streaming", "folded", "published")),
    *(f"networks.{name}" for name in ("fine", "pyramid", "anywhere")),
    "evaluation.metrics",
    *(f"data.worlds.{name}" for name in ("acquisition", "fields", "motion", "probes", "structures", "sweep", "tissue")),
    *(f"data.mismatch.{name}" for name in ("images", "mismatch", "rays", "unseen")),
    "data.worlds.world",
]
if find_spec("beartype") is not None:  # a machine with a GPU may have little more than PyTorch
    jaxtyping.install_import_hook(
        [f"scopereg.{name}" for name in SHAPED],
        "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))",  # an int may stand for a float
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Shapes are not checked in tests marked so, nor in fixtures that are made for them."""
    jaxtyping.config.update("jaxtyping_disable", item.get_closest_marker("unchecked_shapes") is not None)
    try:
        return (yield)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


# Files of many tests that take long together, though none of them by itself.
LONG = ("adapt", "fitting", "failures", "browser", "browser_use", "docs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: none of them is left to one process when the others have nothing to do."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path not in slow, item.path.stem.removeprefix("test_") not in LONG))


@pytest.fixture(scope="session")
def narrow_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of `universal` as those of a network of one voxel size, which is what `train` and `adapt` write.

    Its fine stage and its calibration lie beside them. Small volumes stay small, so that tests are quick.
    """
    from scopereg.networks.weights import SHIPPED, fine_beside, network_of, read_stored, save_network
    from scopereg.registration.calibration import path_beside

    shipped = Path(str(SHIPPED)) / "universal.safetensors"
    stored, path = read_stored(shipped), tmp_path_factory.mktemp("narrow") / "narrow.safetensors"
    facts = {"shape": [32, 128, 128], "spacing_mm": 0.616, "settings": {"protocol": "honest", "magnitude": 10.0}}
    save_network(network_of(stored, shipped), path, name=stored.network, options=stored.options, facts=facts)
    for beside in (fine_beside, path_beside):
        if beside(shipped).is_file():
            shutil.copy(beside(shipped), beside(path))
    return path


@pytest.fixture(scope="session")
def narrow(narrow_file: Path) -> Registrar:
    """A network of one voxel size with a fine stage."""
    from scopereg.registration.model import load

    return load(narrow_file, device="cpu")


@pytest.fixture(scope="session")
def bare(narrow_file: Path) -> Registrar:
    """A network of one voxel size alone: nothing follows it, and nobody calibrated it."""
    from scopereg.registration.model import load

    return load(narrow_file, device="cpu", fine=False)
