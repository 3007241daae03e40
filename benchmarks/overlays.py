"""Overlays on real frames: whether what a scanner draws is found, what else is lost, where the frame is then located.

    python benchmarks/overlays.py --sets liver uterus resect camus-m trus-b --out benchmarks/overlays.csv
    python benchmarks/overlays.py --drawn "nothing, grey" "text in the picture" needle --located 12 --sets liver uterus
        resect camus-m --out benchmarks/needles.csv

Frames of the development sets are drawn on (`painting`), written as PNG and as DICOM in turn, and read as users read
them. `found` is the share of the drawn pixels that are left out, `lost` that of the others the scanner shows; both are
means over frames, `no_mask` counts the frames that are taken as they are. Errors are medians and means in mm, with the
mask and as if nobody had looked (`drawn`). Of a needle its faint tail and its shadow count as drawn.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import painting
import torch
from development_sets import DATA, OUT, QUICK_MAGNITUDE, SETS, development_set
from PIL import Image

from scopereg.errors import ScopeRegError
from scopereg.geometry import SUCCESS_MM, Pose, target_points
from scopereg.images import Frame, Volume, pose_from_voxels
from scopereg.io import read_frame
from scopereg.io.files import write_sheet
from scopereg.io.grey import brightness
from scopereg.progress import say
from scopereg.registration.locator import Locator

FARTHEST_MM = 50.0  # what is farther off is no worse in a mean
TIMES = 4  # pixels of a screen for each of a set
Painter = Callable[[painting.Screen, painting.Random], painting.Screen]


def grey_doppler(picture: painting.Screen, random: painting.Random) -> painting.Screen:
    """Colour flow that somebody saved in grey: no colour tells it any more."""
    drawn = painting.doppler(picture, 0.15, random)
    return (255 * brightness(drawn.astype(np.float32) / 255, "grey")).astype(np.uint8)


PAINTINGS: dict[str, Painter] = {
    "nothing, grey": lambda picture, random: picture,
    "nothing, in colours": lambda picture, random: painting.colours_of(picture),
    "nothing, tinted": painting.sepia,
    **painting.PAINTERS,
    "doppler 15% saved in grey": grey_doppler,
    "two pictures": painting.dual,
}


class Outcome(NamedTuple):
    """Of one frame."""

    refused: bool
    masked: bool = False
    found: float = float("nan")
    lost: float = float("nan")
    error_mm: float = float("nan")
    drawn_mm: float = float("nan")


class Shown(NamedTuple):
    """A frame of a set, and where it lies."""

    locator: Locator
    frame: Frame
    truth: Pose

    @property
    def picture(self) -> painting.Screen:
        grey = (self.frame.array.numpy() * 255).round().astype(np.uint8)
        return painting.enlarged(grey, TIMES)

    @property
    def pixel_mm(self) -> float:
        return self.frame.isotropic_spacing_mm / TIMES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="universal+refine")
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--drawn", nargs="+", default=list(PAINTINGS), choices=list(PAINTINGS), help="what is drawn")
    parser.add_argument("--frames", type=int, default=16, help="of each set, each of a volume of its own")
    parser.add_argument("--located", type=int, default=6, help="of these are located, with and without the mask")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data")
    parser.add_argument("--folder", type=Path, default=OUT / "sets", help="where sets are kept")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in options.sets:
        outcomes: dict[str, list[Outcome]] = {drawn: [] for drawn in options.drawn}
        for number, shown in enumerate(frames_of(name, options)):
            for drawn in options.drawn:
                painter = PAINTINGS[drawn]
                outcomes[drawn].append(outcome_of(shown, painter, number, locate=number < options.located))
        rows += [row_of(name, drawn, own) for drawn, own in outcomes.items()]
        write_sheet(options.out, rows)
        for row in rows[-len(options.drawn) :]:
            say(", ".join(f"{key} {value}" for key, value in row.items()))


def frames_of(name: str, options: argparse.Namespace) -> Iterator[Shown]:
    chosen = development_set(name, QUICK_MAGNITUDE, options.data, options.folder)
    for case in chosen.cases[: options.frames]:
        volume = Volume(case.volume.float() / 255, chosen.spacing_mm)
        frame = Frame(case.frames[0].float() / 255, chosen.spacing_mm)
        truth = pose_from_voxels(case.rotation[0], case.translation[0], frame, volume)
        yield Shown(Locator(volume, options.method, device="cpu"), frame, truth)


def outcome_of(shown: Shown, painter: Painter, number: int, *, locate: bool) -> Outcome:
    """A frame drawn on, written and read again."""
    picture = shown.picture
    screen = painter(picture, np.random.default_rng(number))
    top, left = placed(picture, screen)
    with tempfile.TemporaryDirectory() as folder:
        path = written(screen, Path(folder), shown.pixel_mm, dicom=bool(number % 2))
        try:
            read = read_frame(path, spacing_mm=None if number % 2 else shown.pixel_mm)
        except ScopeRegError as error:
            if "two pictures" in error.what:
                return Outcome(refused=True)
            raise
        frame = Frame(read.array, read.spacing_mm, mask=read.mask)
    drawn, lit = drawn_on(picture, screen, top, left)
    left_out = np.zeros(lit.shape, bool) if frame.mask is None else ~frame.mask.numpy()
    outcome = Outcome(
        refused=False,
        masked=frame.mask is not None,
        found=float(left_out[drawn].mean()) if drawn.any() else float("nan"),
        lost=float(left_out[lit].mean()),
    )
    if not locate:
        return outcome
    shift_mm = np.array([left, top]) * shown.pixel_mm
    error_mm = located(shown, frame, shift_mm)
    drawn_mm = error_mm if frame.mask is None else located(shown, replace(frame, mask=None), shift_mm)
    return outcome._replace(error_mm=error_mm, drawn_mm=drawn_mm)


def placed(picture: painting.Screen, screen: painting.Screen) -> tuple[int, int]:
    """First row and column of a picture on its screen; two of them lie side by side, the first on the left."""
    extra = screen.shape[1] - picture.shape[1]
    return (picture.shape[0] // 10, extra // 2) if screen.shape[0] > picture.shape[0] else (0, 0)


def drawn_on(
    picture: painting.Screen, screen: painting.Screen, top: int, left: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where something is drawn, and where the picture shows through as it was."""
    before = np.pad(
        picture,
        ((top, screen.shape[0] - picture.shape[0] - top), (left, screen.shape[1] - picture.shape[1] - left)),
    )
    colours = screen if screen.ndim == 3 else painting.colours_of(screen)
    changed = np.abs(colours.astype(int) - before[..., None]).max(-1) > 40
    return changed, (before > 8) & ~changed


def written(screen: painting.Screen, folder: Path, pixel_mm: float, *, dicom: bool) -> Path:
    if not dicom:
        Image.fromarray(screen).save(folder / "frame.png")
        return folder / "frame.png"
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, UltrasoundImageStorage

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, UltrasoundImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    made = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    made.SOPClassUID, made.SOPInstanceUID, made.Modality = UltrasoundImageStorage, "1.2.3", "US"
    made.Rows, made.Columns = screen.shape[:2]
    made.SamplesPerPixel = 1 if screen.ndim == 2 else 3
    made.PhotometricInterpretation = "MONOCHROME2" if screen.ndim == 2 else "RGB"
    if screen.ndim == 3:
        made.PlanarConfiguration = 0
    made.BitsAllocated = made.BitsStored = 8
    made.HighBit, made.PixelRepresentation = 7, 0
    made.PixelSpacing = [pixel_mm, pixel_mm]
    made.PixelData = screen.tobytes()
    made["PixelData"].VR = "OB"
    made.save_as(folder / "frame.dcm", enforce_file_format=True)
    return folder / "frame.dcm"


def located(shown: Shown, frame: Frame, shift_mm: np.ndarray[Any, Any]) -> float:
    """Error in mm of the picture's targets, wherever it lies on the screen."""
    try:
        found = shown.locator.locate(frame).pose
    except ScopeRegError:
        return float("inf")
    own = shown.frame
    targets = target_points(own.shape, dtype=torch.float64).numpy() * (*own.spacing_mm, 0.0)
    picture_mm = np.array([*shown.picture.shape[::-1]]) * shown.pixel_mm
    middle = np.append(np.asarray(frame.origin_mm) + shift_mm + (picture_mm - shown.pixel_mm) / 2, 0.0)
    apart = found.apply(targets + middle) - shown.truth.apply(targets + own.centre_mm)
    return float(np.linalg.norm(apart, axis=-1).mean())


def row_of(name: str, drawn: str, outcomes: list[Outcome]) -> dict[str, Any]:
    read = [one for one in outcomes if not one.refused]

    def shown(values: list[float], digits: int) -> str:
        known = np.array([value for value in values if not np.isnan(value)])
        return f"{known.mean() if digits == 3 else np.median(known):.{digits}f}" if len(known) else ""

    errors, before = [one.error_mm for one in read], [one.drawn_mm for one in read]
    return {
        "set": name,
        "drawn": drawn,
        "frames": len(outcomes),
        "refused": len(outcomes) - len(read),
        "no_mask": sum(not one.masked for one in read),
        "found": shown([one.found for one in read], 3),
        "lost": shown([one.lost for one in read], 3),
        "located": sum(not np.isnan(error) for error in errors),
        "within_3_mm": sum(error <= SUCCESS_MM for error in errors),
        "within_3_mm_drawn": sum(error <= SUCCESS_MM for error in before),
        "error_mm": shown(errors, 2),
        "error_mm_drawn": shown(before, 2),
        "mean_mm": shown([min(error, FARTHEST_MM) for error in errors], 3),
        "mean_mm_drawn": shown([min(error, FARTHEST_MM) for error in before], 3),
    }


if __name__ == "__main__":
    main()
