"""Reader of the child for compressed frames of DICOM, by the plugins of pydicom that are installed; Pillow is one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from pydicom.pixels import get_decoder
from pydicom.uid import UID


def dicom_frames(path: Path, *, syntax: str, layout: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Stored values, or colours as RGB, of the encapsulated frames that are the whole file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, _ = get_decoder(UID(syntax)).as_array(path.read_bytes(), **layout)
    return [values], {}
