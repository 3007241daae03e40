"""CAMUS as published becomes volumes: orientation, field, order of the frames, and what is wrong is named."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import SimpleITK as sitk
import torch

from scopereg.data.camus import FIELD_MM, load_camus
from scopereg.data.grids import inner, to_uint8
from scopereg.errors import ScopeRegError

SHARED = Path(__file__).parents[3] / "shared" / "data"
SIZE, FRAMES = 32, 8
HEIGHT, WIDTH, PIXEL_MM = 200, 260, 0.616


def heart(frames: int, height: int = HEIGHT, width: int = WIDTH) -> tuple[np.ndarray, np.ndarray]:
    """Brightness growing downwards and with time, darker to the right; a box of class 1 in the lower left quarter."""
    t, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in (frames, height, width)), indexing="ij")
    labels = ((y > 0.55) & (y < 0.7) & (x > 0.35) & (x < 0.45)).astype(np.uint8)
    return (20 + 90 * y + 40 * t + 50 * (1 - x) + 30 * labels).astype(np.uint8), labels


def write_case(
    root: Path, patient: int, view: str = "4CH", *, frames: int = 11, flip: bool = False, **options: Any
) -> Path:
    images, labels = heart(frames)
    if flip:
        images, labels = images[::-1], labels[::-1]
    folder = root / f"patient{patient:04d}"
    folder.mkdir(parents=True, exist_ok=True)
    kind, ending = options.get("kind", "half_sequence"), options.get("ending", ".nii.gz")
    spacing = options.get("spacing", (PIXEL_MM, PIXEL_MM, 1.0))
    for array, suffix in ((images, ""), (labels, "_gt")):
        image = sitk.GetImageFromArray(np.ascontiguousarray(array))
        image.SetSpacing(spacing)
        if not suffix or options.get("labels", True):
            sitk.WriteImage(image, str(folder / f"{folder.name}_{view}_{kind}{suffix}{ending}"))
    first, last = (frames, 1) if flip else (1, frames)
    info = options.get("info", f"ED: {first}\nES: {last}\nNbFrame: {frames}\nImageQuality: Good\n")
    (folder / f"Info_{view}.cfg").write_text(info)
    return folder


def load(root: Path, **options: Any) -> Any:
    return load_camus(root, size=SIZE, frames=FRAMES, **options)


def test_both_views_of_each_patient_become_volumes(tmp_path: Path) -> None:
    for patient, view in ((2, "4CH"), (1, "4CH"), (1, "2CH")):
        write_case(tmp_path / "database_nifti", patient, view)
    steps: list[tuple[int, int]] = []
    volumes = load(tmp_path, progress=lambda done, total: steps.append((done, total)))
    assert volumes.cases == ("patient0001_2CH", "patient0001_4CH", "patient0002_4CH")
    assert volumes.patients == ("patient0001", "patient0001", "patient0002")
    assert (volumes.shape, volumes.margin) == ((FRAMES, SIZE, SIZE), (0, 6, 6))
    assert volumes.spacing_mm == pytest.approx(FIELD_MM / SIZE)
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert len(volumes.facts["sources_sha256"]) == 9
    assert load(tmp_path, views=("2CH",)).cases == ("patient0001_2CH",)


def test_depth_runs_down_and_time_forward(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    volumes = load(tmp_path)
    pixels = volumes.images[0].float()
    assert pixels[:, -1].mean() > pixels[:, 0].mean() + 40
    assert pixels[:, :, 0].mean() > pixels[:, :, -1].mean() + 20
    assert pixels[-1].mean() > pixels[0].mean() + 20
    rows, columns = torch.nonzero(volumes.labels[0, 0], as_tuple=True)
    assert rows.float().mean() > 24
    assert columns.float().mean() < 20
    assert set(volumes.labels.unique().tolist()) == {0, 1}


def test_the_field_is_the_middle_of_the_image_in_millimetres(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    volumes = load(tmp_path)
    middle = (volumes.images.shape[2] - 1) / 2
    inside_mm = (torch.nonzero(volumes.labels[0, 0].any(1))[:, 0].numpy() - middle) * volumes.spacing_mm
    top_mm, bottom_mm = ((share - 0.5) * (HEIGHT - 1) * PIXEL_MM for share in (0.55, 0.7))
    assert -PIXEL_MM < inside_mm[0] - top_mm < volumes.spacing_mm + PIXEL_MM
    assert -PIXEL_MM < bottom_mm - inside_mm[-1] < volumes.spacing_mm + PIXEL_MM


def test_sequences_that_run_backwards_are_turned(tmp_path: Path) -> None:
    write_case(tmp_path / "a", 1)
    write_case(tmp_path / "b", 1, flip=True)
    forward, backward = load(tmp_path / "a"), load(tmp_path / "b")
    assert torch.equal(forward.images, backward.images)
    assert torch.equal(forward.labels, backward.labels)
    assert backward.facts["notes"] == {"reversed": ["patient0001_4CH"]}


def test_the_older_layout_and_its_flat_pixels(tmp_path: Path) -> None:
    """MHD with pixels of unequal sides, a whole cycle of which a part is wanted."""
    options = {"kind": "sequence", "ending": ".mhd", "labels": False, "spacing": (PIXEL_MM, PIXEL_MM, 1.54)}
    write_case(tmp_path, 1, frames=20, info="ED: 3\nES: 13\n", **options)
    volumes = load(tmp_path)
    assert volumes.labels is None
    assert volumes.facts["notes"] == {"cut to the half-cycle": ["patient0001_4CH"]}
    assert any(name.endswith(".mhd") for name in volumes.facts["sources_sha256"])
    narrow = write_case(tmp_path / "narrow", 1, **(options | {"spacing": (PIXEL_MM / 2, PIXEL_MM, 1.54)}))
    squeezed = load(narrow.parent)
    assert squeezed.facts["notes"] == {}  # 80.1 mm wide: the field fits, the surroundings are mirrored
    rows = squeezed.images[0, 0].float()
    slope = (rows[:, 6:16].mean() - rows[:, 28:38].mean()) / (rows[20:30].mean() - rows[10:20].mean())
    assert slope > 1  # half as wide pixels: brightness falls twice as fast from left to right


def test_an_image_smaller_than_the_field_is_noted(tmp_path: Path) -> None:
    write_case(tmp_path, 1, spacing=(0.3, 0.3, 1.0))
    assert load(tmp_path).facts["notes"] == {"field mirrored at the border": ["patient0001_4CH"]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"info": "NbFrame: 11\n"}, "ED"),
        ({"info": "ED: 1\nES: 12\n"}, "ES 12 of 11"),
        ({"info": "ED: 1\nES: 1\n"}, "ED 1 and ES 1"),
        ({"spacing": (2.0, 2.0, 1.0)}, "520 x 400 mm"),
        ({"frames": 1, "info": "ED: 1\nES: 1\n"}, "not frames"),
    ],
)
def test_bad_cases_are_named_or_skipped(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    write_case(tmp_path, 1)
    write_case(tmp_path, 2, **options)
    with pytest.raises(ScopeRegError, match=words) as caught:
        load(tmp_path)
    assert "patient0002" in caught.value.where
    volumes = load(tmp_path, skip_bad=True)
    assert volumes.cases == ("patient0001_4CH",)
    assert list(volumes.facts["skipped"]) == ["patient0002_4CH"]


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    folder = write_case(tmp_path, 3)
    path = folder / "patient0003_4CH_half_sequence.nii.gz"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ScopeRegError, match="patient0003_4CH_half_sequence"):
        load(tmp_path)
    with pytest.raises(ScopeRegError, match="no case is good"):
        load(tmp_path, skip_bad=True)


def test_labels_are_for_all_or_none(tmp_path: Path) -> None:
    write_case(tmp_path, 1)
    write_case(tmp_path, 2, labels=False)
    with pytest.raises(ScopeRegError, match="1 of 2 cases have no labels: patient0002_4CH"):
        load(tmp_path)
    assert load(tmp_path, skip_bad=True).facts["skipped"] == {"patient0002_4CH": "no labels"}
    assert load(tmp_path, labels=False).labels is None


def test_wrong_folders_and_options(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="no such folder"):
        load(tmp_path / "absent")
    with pytest.raises(ScopeRegError, match="patientXXXX"):
        load(tmp_path)
    shutil.copytree(write_case(tmp_path / "one", 1), tmp_path / "two" / "patient0001")
    with pytest.raises(ScopeRegError, match="twice"):
        load(tmp_path)
    with pytest.raises(ScopeRegError, match="views"):
        load(tmp_path / "one", views=("3CH",))


@pytest.fixture
def stills(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, np.ndarray]]:
    """The script that writes the official layout from real frames, and three patients for it."""
    if not (SHARED / "camus_stills.npz").is_file():
        pytest.skip("the CAMUS frames are not beside the repository")

    def save(image: SimpleNamespace, path: Path) -> None:
        itk = sitk.GetImageFromArray(np.ascontiguousarray(image.array.T))
        itk.SetSpacing(np.abs(np.diag(image.affine)[:3]).tolist())
        itk.SetDirection((np.diag(np.sign(np.diag(image.affine)[:3])) * [-1, -1, 1]).ravel().tolist())  # RAS to LPS
        sitk.WriteImage(itk, str(path))

    nibabel = SimpleNamespace(Nifti1Image=lambda array, affine: SimpleNamespace(array=array, affine=affine), save=save)
    monkeypatch.setitem(sys.modules, "nibabel", nibabel)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("camus_from_stills", SHARED / "camus_from_stills.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    with np.load(SHARED / "camus_stills.npz") as file:
        return script, {name: file[name][[0, 1, 12]] for name in file.files}


def test_real_frames_are_those_of_the_script_with_depth_downwards(
    stills: tuple[ModuleType, dict[str, np.ndarray]], tmp_path: Path
) -> None:
    """The stack has depth to the right, as its frames are stored; here it runs down, as ultrasound is shown."""
    script, data = stills
    script.write_layout(data, tmp_path / "layout", 3)
    volumes = load_camus(tmp_path / "layout")
    margin = volumes.margin
    for labels in (False, True):
        script.write_stack(data, tmp_path / "stack.npy", 128, 32, True, labels, "cpu")
        stack = np.load(tmp_path / "stack.npy").transpose(0, 1, 3, 2)
        for row in range(3):
            if labels:
                assert (volumes.labels[row].numpy() == stack[row]).mean() > 0.98
            else:
                expected = to_uint8(stack[row].astype(float), inner(stack[row].shape, margin), "stack")
                found = volumes.images[row].numpy()
                assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99
