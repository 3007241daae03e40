"""What is shown in the browser: the options of live and view, and of the page that both serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from scopereg.options.reading import FrameReading, VolumeReading
from scopereg.options.words import DeviceName
from scopereg.registration.default_model import DEFAULT


@dataclass(frozen=True)
class PageOptions:
    """Where the page in the browser is served."""

    host: str = "127.0.0.1"
    """Address of the page; any other than this machine's own lets others in, and then a token is needed."""
    port: int = 8765
    """Port of the page; 0: any that is free."""
    token: str | None = None
    """Word that the browser must bring; one is made where other machines are let in without it."""
    open: bool = True
    """Open the page in the browser of this machine."""


@dataclass(frozen=True)
class LiveOptions(VolumeReading, FrameReading, PageOptions):
    """Register frames as they come from a scanner or a recording, and show them in the browser and in 3D Slicer.

    SOURCE is igtl://HOST:PORT (OpenIGTLink, such as PLUS), plus:FILE.igs.mha, folder:DIR or dicom:FILE; recordings are
    replayed in their own time. The newest frame is always the next. Ctrl-C ends it; recordings are written then.
    """

    volume: Positional[Path | None] = None
    """Volume: NIfTI, NRRD, MHA, enhanced DICOM, or the folder of a DICOM series."""
    source: str | None = None
    """Where frames come from."""
    image: str | None = None
    """Name of the images to take of a scanner that sends several; by default the first that comes."""
    rate: float | None = None
    """Frames per second of a replay, in place of its own times."""
    loop: bool = False
    """Begin a replay anew when it ends."""
    paused: bool = False
    """Begin paused; the page goes on, or step by step."""
    exit_at_end: bool = False
    """End with the replay; by default the last frame stays on the screen until Ctrl-C."""
    method: str = DEFAULT
    """A model of the package, a .safetensors file, simpleitk-mi, simpleitk-ncc or elastix."""
    refine: bool = False
    """Polish what the method found by the similarity of frame and volume; takes some hundred ms a frame."""
    agreement: bool = False
    """Let a network locate each frame under four small changes too: a surer verdict, five times the work."""
    follow: bool = False
    """Weigh each frame against the motion so far, as scopereg track does."""
    wide: bool = False
    """With --follow: until the probe is found, and when it is lost, look from many starts; takes seconds on a CPU."""
    tracker: bool = False
    """Show the error against where the source's own tracker puts the frames."""
    world: Path | None = None
    """Pose file from the tracker's world to the volume, where these are not the same; it also shows the error."""
    workers: int | None = None
    """Frames that are located at once; by default 2 where a network alone runs on two or more cores, else 1."""
    igtl: bool = True
    """Serve the results over OpenIGTLink, for 3D Slicer."""
    igtl_host: str = "127.0.0.1"
    """Address of the OpenIGTLink server; any other than this machine's own lets everybody there read the results."""
    igtl_port: int = 18945
    """Port of the OpenIGTLink server; 0: any that is free."""
    cut: bool = False
    """Send the volume cut at the pose over OpenIGTLink too."""
    viewer: bool = True
    """Serve the page."""
    record: Path | None = None
    """Record from the first frame on into this file (.igs.mha)."""
    recordings: Path = Path("out/live")
    """Folder for what is recorded from the page."""
    volumes: Path | None = None
    """Folder of volumes that may be chosen in the page."""
    uploads: bool = True
    """Let the page bring volumes of its own."""
    max_upload_mb: float = 512.0
    """Largest file that the page may bring."""
    device: DeviceName = "auto"
    """Where networks and the refinement run."""


@dataclass(frozen=True)
class ViewOptions(VolumeReading, FrameReading, PageOptions):
    """Show finished registrations in the browser, or write them as one page.

    RESULTS are files that scopereg register wrote (pose.json; poses.csv of a batch), track.csv of scopereg track, or
    folders of them. They name frame and volume, which are looked for beside them, here, and in --data.
    """

    results: Positional[tuple[Path, ...]] = ()
    """Files or folders."""
    data: tuple[Path, ...] = ()
    """Folders, or the files themselves, to look for frames and volumes in."""
    volume: Path | None = None
    """Volume of all results, in place of what they name; tables name none."""
    save: Path | None = None
    """Write one page (.html) with all in it, to send or to keep, instead of serving it."""
