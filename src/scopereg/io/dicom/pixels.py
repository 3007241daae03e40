"""Pixels of DICOM files, one frame at a time: by pydicom, and by GDCM (in SimpleITK) where pydicom has no decoder.

Where both can decode they agree, but GDCM garbles colours of 16 bits; pydicom alone reads no JPEG without plugins.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate, get_frame
from pydicom.pixels import apply_color_lut, pixel_array
from pydicom.uid import UID, SecondaryCaptureImageStorage

from scopereg.errors import ScopeRegError
from scopereg.io.dicom.header import frame_count, number
from scopereg.io.read_image import quiet_itk

Pixels = npt.NDArray[Any]
_LAYOUT = (
    "SamplesPerPixel",
    "PlanarConfiguration",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
)
_HELP = {"High-Throughput": "pip install pylibjpeg-openjpeg", "JPEG 2000": "pip install pylibjpeg-openjpeg"}
_ELSEWHERE = "export the file uncompressed, or decompress it with dcmdjpeg of DCMTK or gdcmconv --raw"


def decode_frame(dataset: FileDataset, index: int, where: str) -> Pixels:
    """Stored values (H, W) of one frame, or its colours (H, W, 3) as RGB; black is 0 whatever the file says."""
    if "PixelData" not in dataset and "FloatPixelData" not in dataset:
        raise ScopeRegError("it holds no pixels", where=where, fix="pass an image, not a report or a plan")
    syntax = dataset.file_meta.get("TransferSyntaxUID") if hasattr(dataset, "file_meta") else None
    if syntax is None:
        raise ScopeRegError("it does not say how its pixels are coded", where=where, fix="export the file again")
    try:
        pixels = _by_pydicom(dataset, index)
    except Exception as first:  # each plugin has errors of its own
        if not syntax.is_encapsulated:
            raise _undecoded(syntax, first, where) from None
        try:
            pixels = _by_gdcm(dataset, index)
        except Exception:
            raise _undecoded(syntax, first, where) from None
    return _plain(pixels, dataset)


def _by_pydicom(dataset: FileDataset, index: int) -> Pixels:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of padding and of photometric names, in nearly every file
        return pixel_array(dataset, index=index)


def _by_gdcm(dataset: FileDataset, index: int) -> Pixels:
    """One frame through a file of its own: GDCM would decode the whole cine, and rescale by the header's slope."""
    syntax = dataset.file_meta.TransferSyntaxUID
    plain = Dataset()
    for keyword in _LAYOUT:
        if keyword in dataset:
            setattr(plain, keyword, dataset[keyword].value)
    colours = plain.SamplesPerPixel == 3
    plain.PhotometricInterpretation = dataset.PhotometricInterpretation if colours else "MONOCHROME2"
    plain.SOPClassUID, plain.SOPInstanceUID = SecondaryCaptureImageStorage, UID("1.2.3")
    plain.PixelData = encapsulate([get_frame(dataset.PixelData, index, number_of_frames=frame_count(dataset))])
    plain["PixelData"].VR = "OB"
    plain.file_meta = FileMetaDataset()
    plain.file_meta.TransferSyntaxUID = syntax
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "frame.dcm"
        plain.save_as(path, enforce_file_format=True)
        with quiet_itk():
            return np.squeeze(sitk.GetArrayFromImage(sitk.ReadImage(str(path))), 0)


def _plain(pixels: Pixels, dataset: Dataset) -> Pixels:
    """Colours looked up, and white on black turned back to black on white."""
    photometric = dataset.get("PhotometricInterpretation", "")
    if photometric == "PALETTE COLOR" and pixels.ndim == 2:
        colours = apply_color_lut(pixels, dataset)
        return (colours >> 8).astype(np.uint8) if colours.dtype == np.uint16 else colours
    if photometric == "MONOCHROME1":
        bits = int(number(dataset, "BitsStored") or 8 * pixels.dtype.itemsize)
        signed = pixels.dtype.kind == "i"
        total = -1 if signed else 2**bits - 1  # the sum of the least and the greatest value
        return (total - pixels.astype(np.int64)).astype(pixels.dtype)
    return pixels


def _undecoded(syntax: UID, error: Exception, where: str) -> ScopeRegError:
    if not syntax.is_encapsulated:
        return ScopeRegError(f"its pixels cannot be read: {error}", where=where, fix="copy or export the file again")
    extra = [f"{command}; or " for word, command in _HELP.items() if word in syntax.name][:1]
    return ScopeRegError(
        f"its pixels are compressed as {syntax.name} ({syntax}), which cannot be decoded here, or damaged",
        where=where,
        fix="".join(extra) + _ELSEWHERE,
    )
