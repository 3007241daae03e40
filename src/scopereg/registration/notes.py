"""Notes: what a user should know of how a file was read."""

from __future__ import annotations

from scopereg.images import Frame, Volume
from scopereg.io.stored import StoredFrame, StoredVolume

_WORTH_A_WORD_MM = 0.1


def reader_notes(image: Frame | Volume) -> tuple[str, ...]:
    """Notes of the reader; nothing for an image that comes from no file."""
    if not isinstance(image, StoredFrame | StoredVolume):
        return ()
    facts = image.facts
    notes = [str(note) for note in facts.get("notes", ())]
    moved = float(facts.get("calibration_moved_mm", 0.0))
    if moved > _WORTH_A_WORD_MM:
        skew = float(facts.get("calibration_skew", 0.0))
        notes.append(f"the calibration's axes are not square (cosine {skew:.3f}): a corner moves by {moved:.1f} mm")
    return tuple(notes)


def image_line(image: Frame | Volume) -> str:
    """Name, size and spacing of an image, in one line."""
    name = image.path.name if isinstance(image, StoredFrame | StoredVolume) else "in memory"
    facts = image.facts if isinstance(image, StoredFrame | StoredVolume) else {}
    if facts.get("frames_in_file", 1) > 1:
        name = f"{name} frame {facts['index']}"
    unit = "pixels" if isinstance(image, Frame) else "voxels"
    size, spacing = (" x ".join(f"{n:.4g}" for n in values) for values in (image.size, image.spacing_mm))
    source = f" ({facts['spacing_from']})" if "spacing_from" in facts else ""
    return f"{name}: {size} {unit} of {spacing} mm{source}"
