"""What a fallback is worth, and whether who tries more is fooled more often: frames with and without it.

    python benchmarks/fallback.py --sets liver uterus resect camus-m trus-b --out benchmarks/fallback.csv

Phantoms that nothing was trained or calibrated on. Own frames near (15 voxels and degrees) and far (25); and frames
that belong nowhere in the volume: of another patient, mirrored, of another organ, noise. Of development sets: own
frames (within 10), the same far from the middle of a volume that lost a part of one side, mirrored, and of the next
case, which is another patient or place, or of the liver another start of one sweep. One thread.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, development_set

from scopereg.data import phantom
from scopereg.geometry import SUCCESS_MM, Pose, sample_poses
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io.files import write_sheet
from scopereg.progress import say
from scopereg.registration.locator import Locator
from scopereg.registration.result import YES_NO, apart_mm

METHOD = "universal+refine+fallback"
FIRST_SEED = 400_000  # of patients
NEAR, FAR = 15.0, 25.0  # voxels and degrees
LOST = 40  # columns that volumes of real frames lose: their middle moves by half as many
ORGANS = ("echo", "prostate", "abdomen")


class Place(NamedTuple):
    """A volume with frames to seek in it."""

    organ: str
    patient: str
    volume: Volume
    frames: tuple[Shown, ...]


class Shown(NamedTuple):
    """A frame to seek."""

    kind: str
    frame: Frame
    truth: Pose | None = None  # None: it lies nowhere in the volume


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=2, help="of each organ")
    parser.add_argument("--sets", nargs="*", default=[], help="development sets, such as liver and uterus")
    parser.add_argument("--cases", type=int, default=4, help="of each of them")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where sets are kept")
    parser.add_argument("--frames", type=int, default=3, help="of each patient and kind")
    parser.add_argument("--out", type=Path, help="CSV file to write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, str]] = []
    for place in places(options):
        rows += rows_of(place)
        if options.out:
            write_sheet(options.out, rows)
    for line in summaries(rows):
        say(line)


def places(options: argparse.Namespace) -> Iterator[Place]:
    for name in options.sets:
        yield from real_places(name, options)
    for anatomy in ORGANS:
        for number in range(options.patients):
            patient = phantom.create(anatomy, seed=FIRST_SEED + number)
            shown = tuple(frames_of(anatomy, patient, patient.volume, number, options.frames))
            yield Place(anatomy, str(number), patient.volume, shown)


def real_places(name: str, options: argparse.Namespace) -> Iterator[Place]:
    chosen = development_set(name, QUICK_MAGNITUDE, options.data, options.folder)
    cases = chosen.cases[: options.cases + 1]
    frames = [Frame(case.frames[0].float() / 255, chosen.spacing_mm) for case in cases]
    for case, frame, other in zip(cases, frames, frames[1:], strict=False):
        volume = Volume(case.volume.float() / 255, chosen.spacing_mm)
        truth = pose_from_voxels(case.rotation[0], case.translation[0], frame, volume)
        strangers = [Shown("mirrored", frame.flipped(0)), Shown("another place", other)]
        yield Place(name, case.name, volume, (Shown("near", frame, truth), *strangers))
        first_mm = volume.origin_mm + volume.direction @ np.array([LOST * chosen.spacing_mm, 0.0, 0.0])
        part = Volume(volume.array[:, :, LOST:], chosen.spacing_mm, first_mm.tolist(), volume.direction)
        yield Place(name, case.name, part, (Shown("far", frame, truth),))


def rows_of(place: Place) -> Iterator[dict[str, str]]:
    """Two for each frame: without the fallback, and with it."""
    locator = Locator(place.volume, METHOD, device="cpu")
    ways = {"alone": locator.narrow(), "fallback": locator}
    for index, shown in enumerate(place.frames):
        for way, sought in ways.items():
            found = sought.locate(shown.frame)
            said = f"{place.organ} {place.patient}, {shown.kind}, {way}: {found.verdict}"
            off_mm = apart_mm(shown.frame, found.pose, shown.truth)
            say(f"{said} [{found.time_ms / 1e3:.0f} s] {off_mm:.1f} mm off")
            others = [other.similarity for other in found.alternatives] if way == "fallback" else []
            yield {
                "organ": place.organ,
                "patient": place.patient,
                "frame": str(index),
                "kind": shown.kind,
                "way": way,
                "error_mm": _cell(off_mm, 2),
                "ok": YES_NO[found.ok],
                "belongs": YES_NO[found.belongs],
                "confidence": _cell(found.confidence, 3),
                "expected_mm": _cell(found.expected_mm, 2),
                "bound_mm": _cell(found.bound_mm, 2),
                "similarity": _cell(found.similarity, 3),
                "best_other": _cell(max(others, default=math.nan), 3),
                "seconds": f"{found.time_ms / 1e3:.1f}",
                "method": found.method,
                "note": found.notes[-1] if way == "fallback" and found.notes else "",
            }


def frames_of(anatomy: str, patient: phantom.Phantom, volume: Volume, number: int, count: int) -> Iterator[Shown]:
    generator = torch.Generator().manual_seed(number)
    for kind, reach in (("near", NEAR), ("far", FAR)):
        drawn = sample_poses(count, reach, patient.shape, generator)
        for row, image in enumerate(patient.acquire(*drawn, seed=number).images):
            frame = Frame(image, patient.spacing_mm)
            yield Shown(kind, frame, pose_from_voxels(drawn.rotation[row], drawn.translation[row], frame, volume))
            if kind == "near":
                yield Shown("mirrored", replace(frame, array=frame.array.flip(1)))
    others = {"another patient": anatomy, "another organ": ORGANS[(ORGANS.index(anatomy) + 1) % 3]}
    for kind, organ in others.items():
        other = phantom.create(organ, seed=FIRST_SEED + 1000 + number)
        drawn = sample_poses(count, NEAR, other.shape, generator)
        for image in other.acquire(*drawn, seed=number).images:
            # As large as the volume, whatever it shows.
            yield Shown(kind, Frame(image, min(volume.extent_mm[:2]) / max(image.shape)))
    yield Shown("noise", Frame(torch.rand(128, 128, generator=generator), patient.spacing_mm))


def summaries(rows: list[dict[str, str]]) -> Iterator[str]:
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for way in ("alone", "fallback"):
            own = [row for row in rows if (row["kind"], row["way"]) == (kind, way)]
            ok = np.array([row["ok"] == "yes" for row in own])
            seconds = np.median([float(row["seconds"]) for row in own])
            said = f"{kind}, {way}: {ok.sum()} of {len(own)} ok, median {seconds:.1f} s"
            if own[0]["error_mm"]:
                errors = np.array([float(row["error_mm"]) for row in own])
                near = errors <= SUCCESS_MM
                said += f", {near.sum()} within {SUCCESS_MM:g} mm, {(ok & ~near).sum()} ok but not"
            yield said


def _cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else ""


if __name__ == "__main__":
    main()
