"""Words that options may take, and where output goes: types of options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

AnatomyName = Literal["echo", "prostate", "abdomen"]
ProtocolName = Literal["honest", "paper"]
DatasetName = Literal["echo", "prostate", "abdomen", "worlds", "camus", "muregpro", "folder"]
SourceName = Literal["camus", "muregpro", "folder"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
FormatName = Literal["md", "latex", "csv", "all"]
ConventionName = Literal["slicer", "itk-resample"]
PoseFormat = Literal["tfm", "h5", "txt", "json", "dcm"]
PrecisionName = Literal["auto", "float32", "float16", "bfloat16"]

# What a verb writes: --output, or -o.
_OUTPUT = arg(aliases=["-o"])
Folder = Annotated[Path, _OUTPUT]
File = Annotated[Path, _OUTPUT]
MaybeFile = Annotated[Path | None, _OUTPUT]

# Sizes by either name: --spacing is shorter, spacing_mm is what Python calls it.
Spacing = Annotated[tuple[float, ...], arg(aliases=["--spacing-mm"])]
VolumeSpacing = Annotated[tuple[float, ...], arg(aliases=["--volume-spacing-mm"])]
