"""Groups: in which order help shows the options of a verb, those that matter most first. Others come last."""

from __future__ import annotations

from typing import Any

from scopereg.options import Option, options_of

_FRAME_FILES = ("pixel_mm", "region", "calibration")
_VOLUME_FILES = ("voxel_mm", "volume_index", "series")
_MOTION = ("acceleration_mm_s2", "first_velocity_mm_s", "lever_mm", "gate", "patience", "agreeing")
_ADDRESS = ("host", "port", "open", "token", "no_token", "tls")

GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "register": {
        "used most": ("output", "method", "refine", "wide", "pixel_mm", "index", "start", "format", "device"),
        "what files leave open": ("voxel_mm", "volume_index", "series", "region", "calibration", "world"),
        "what is written": ("convention", "placed", "resliced", "report"),
        "how it works": ("any_angle", "deformable", "workers"),
    },
    "track": {
        "used most": ("output", "method", "refine", "wide", "rate", "pixel_mm", "tracker", "device"),
        "what files leave open": ("voxel_mm", "volume_index", "series", "region", "calibration", "world"),
        "how the motion is weighed": (*_MOTION, "network_error_mm", "refined_error_mm"),
    },
    "compound": {
        "used most": ("output", "voxel_mm", "bridge_mm", "calibration", "poses", "pixel_mm"),
        "several sweeps": ("join", "method", "device"),
        "what counts": ("frame_mask", "clip", "roi", "every", "mode"),
        "what files leave open": ("reference", "poses_origin", "region"),
        "what is written": ("mask", "report"),
    },
    "live": {
        "used most": ("source", "method", "refine", "follow", "wide", "pixel_mm", "rate", "record", "port", "device"),
        "what files leave open": ("voxel_mm", "volume_index", "series", "region", "calibration", "world", "image"),
        "replays": ("loop", "paused", "exit_at_end"),
        "how it works": ("workers", "tracker"),
        "the page": ("viewer", "host", "open", "token", "no_token", "tls", "volumes", "uploads", "max_upload_mb"),
        "OpenIGTLink": ("igtl", "igtl_host", "igtl_port", "cut"),
        "recordings": ("recordings",),
    },
    "view": {
        "used most": ("data", "volume", "save", "port", "open"),
        "what files leave open": (*_FRAME_FILES, *_VOLUME_FILES),
        "the page": ("host", "token", "no_token", "tls"),
    },
    "adapt": {
        "used most": ("output", "base", "minutes", "device"),
        "what the file leaves open": _VOLUME_FILES,
        "how it learns": (
            *("steps", "spacing_mm", "magnitude", "parts", "frames", "learning_rate", "looks", "statistics"),
            *("held_out", "patience", "seed"),
        ),
    },
    "convert": {
        "used most": ("output", "pixel_mm", "voxel_mm", "rate", "index", "poses"),
        "poses": ("convention", "from_convention", "frame", "volume"),
        "what files leave open": ("region", "calibration", "series"),
    },
    "calibrate-probe": {
        "used most": ("output", "calibration", "world", "pixel_mm", "most", "aside", "device"),
        "what files leave open": ("probe", "own_worlds", *_VOLUME_FILES),
        "how it works": ("method", "keep_pixels"),
        "what is written": ("report",),
    },
    "evaluate": {
        "used most": ("methods", "data", "output", "protocols", "magnitudes", "fold", "cases", "count", "device"),
        "sweeps": ("calibration", "voxel_mm", "held_out"),
        "which frames": ("part", "seed", "first_seed", "size", "skip_bad"),
    },
    "score": {
        "used most": ("truth", "landmarks", "output", "name", "pixel_mm", "size"),
        "worlds and volumes": ("world", "same_world", "between_volumes", "calibration"),
        "how POSES count": ("poses_origin", "poses_direction", "poses_space", "poses_unit"),
        "how the truth counts": ("truth_origin", "truth_direction", "truth_space", "truth_unit"),
    },
    "train": {
        "used most": (
            *("data", "output", "minutes", "start", "preset", "protocol", "count", "batch", "fold", "device"),
        ),
        "data": ("frames", "shape", "size", "skip_bad", "magnitude", "augment", "curriculum", "phantoms"),
        "the network": ("network", "norm", "depth_stride", "reach", "matching", "looks", "later_planes", "passes"),
        "how it learns": (
            *("epochs", "optimizer", "learning_rate", "warmup", "decay", "decay_power", "plateau_factor"),
            *("plateau_patience", "weight_decay", "clip", "average", "frames_per_volume"),
        ),
        "the loss": ("loss", "lever_voxels", "coordinates", "flow", "elasticity"),
        "the machine": ("devices", "nodes", "bfloat16", "capture"),
        "tests and repeatability": ("validate_every", "test", "seed"),
    },
    "calibrate": {
        "used most": ("output", "data", "count", "fold", "part", "magnitude", "device"),
        "which frames": ("cases", "frames", "seed", "first_seed", "size", "skip_bad"),
    },
    "grid": {
        "used most": ("data", "output", "only", "set", "list", "collect", "device"),
        "tables": ("reference", "with_published"),
        "on Ray": ("ray", "ray_open", "cpus", "gpus", "retries"),
    },
    "data prepare": {
        "used most": ("output", "name", "shape", "voxel_mm", "size", "skip_bad", "workers"),
        "how it is read": ("frames", "margin", "probe", "labels", "splits", "any_orientation", "fresh"),
    },
}


def groups_of(verb: str, cls: type[Any]) -> dict[str, list[Option]]:
    """The options of a verb by the titles of their groups; what no group names stands last."""
    by_field = {option.field: option for option in options_of(cls)}
    places = [option for option in by_field.values() if option.positional]
    found = {"what it works on": places} if places else {}
    groups = GROUPS.get(verb, {})
    for title, fields in groups.items():
        found[title] = [by_field[field] for field in fields if field in by_field]
    shown = {option.field for options in found.values() for option in options}
    if rest := [option for option in by_field.values() if option.field not in shown]:
        found["more options" if groups else "options"] = rest
    return found
