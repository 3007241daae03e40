"""WorldRanges: everything that a world may be, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from scopereg.data.mismatch.draws import Range
from scopereg.errors import ScopeRegError

Shape = tuple[int, int, int]

_SIGNED = ("label_echo_db", "fluid_echo_db", "label_attenuation_db", "tube_echo_db", "body_echo_db", "log_gamma")
_POSITIVE = ("offset", "point_spread", "turns", "radius", "aspect", "factor", "period", "width", "widths")
_LEAST_AXIS, _MOST_AXIS = 16, 256  # voxels of a volume


@dataclass(frozen=True)
class WorldRanges:
    """Ranges (least, greatest) that every world draws its numbers from; lengths are voxels, chances from 0 to 1."""

    # What a batch may be.
    shapes: tuple[tuple[Shape, float], ...] = (
        ((32, 128, 128), 0.16),
        ((48, 128, 128), 0.14),
        ((40, 160, 160), 0.18),
        ((64, 160, 160), 0.10),
        ((48, 144, 144), 0.07),
        ((56, 128, 160), 0.07),
        ((64, 96, 96), 0.06),
        ((40, 64, 64), 0.05),
        ((32, 96, 144), 0.06),
        ((40, 160, 112), 0.05),
        ((96, 96, 96), 0.04),
        ((128, 80, 80), 0.02),
    )
    """Volumes D, H, W and how often each occurs."""
    most_offset: float = 0.16
    """Greatest offset of a frame in voxels, as a share of its shorter side: small volumes have small offsets."""

    # Fields that divide the world into tissues.
    labels: int = 8
    """Tissues that a world may have."""
    label_width: Range = (6.0, 36.0)
    """Correlation length of the fields whose largest one is the tissue."""
    label_sharpness: Range = (5.0, 30.0)
    """Sharpness of the borders between tissues."""
    label_chance: Range = (0.35, 1.0)
    """Probability that a tissue occurs at all; two always do."""
    label_echo_db: Range = (-26.0, 0.0)
    """Echogenicity of tissues."""
    fluid_chance: float = 0.2
    """Probability that a tissue is a fluid."""
    fluid_echo_db: Range = (-48.0, -32.0)
    """Echogenicity of fluids."""
    label_attenuation_db: Range = (-0.02, 0.12)
    """Excess attenuation of tissues in dB a voxel, beyond what the depth gain makes up for."""
    interface_db: Range = (0.0, 12.0)
    """Brightness of the line where two tissues meet."""
    slow_chance: float = 0.3
    """Probability that the third axis is time: everything changes slowly along it."""
    slow_factor: Range = (1.25, 2.5)
    """Factor by which they do; at most about as slowly as a heart beats, so that the depth of a frame can be found."""
    moving_chance: float = 0.15
    """Probability that the third axis is time and every plane shows one section of tissue, which moves."""
    motion: Range = (3.0, 10.0)
    """Distance that it moves within the plane at the height of a beat, root mean square over a smooth field."""
    motion_period: Range = (40.0, 120.0)
    """Planes from one beat to the next."""
    motion_drift: Range = (0.05, 0.3)
    """Distance that tissue passes through the plane, for each plane."""
    lasting_speckle_chance: float = 0.5
    """Probability that speckle moves with such tissue instead of being new in every plane."""
    lasting_speckle_width: Range = (2.0, 10.0)
    """Factor by which it then lasts longer than the point spread along z."""

    # Texture within tissues.
    fine_width: Range = (1.4, 5.0)
    fine_db: Range = (0.0, 5.0)
    coarse_width: Range = (4.0, 12.0)
    coarse_db: Range = (0.0, 4.0)

    # Tubes: vessels and ducts, where two fields vanish together.
    tube_chance: float = 0.55
    tube_widths: tuple[Range, ...] = ((8.0, 24.0), (16.0, 50.0))
    """Correlation lengths of the systems of tubes, one entry for each system."""
    tube_radius: Range = (0.04, 0.3)
    """Radius, in values of the fields."""
    tube_echo_db: Range = (-48.0, -28.0)
    tube_wall_db: Range = (0.0, 14.0)

    # Sheets: fascia, valves and membranes, level sets of a field.
    sheets: int = 2
    sheet_chance: float = 0.6
    sheet_width: Range = (14.0, 60.0)
    sheet_turns: Range = (1.0, 7.0)
    """Sheets per standard deviation of the field."""
    sheet_thickness: Range = (0.5, 1.2)
    sheet_db: Range = (3.0, 24.0)
    sheet_specular: Range = (0.0, 3.0)
    """Exponent of the cosine between beam and normal: 0 is equally bright from everywhere."""

    # Bodies: cysts, chambers, glands, follicles; warped ellipsoids with walls or layers.
    bodies: int = 3
    body_chance: float = 0.45
    body_radius: Range = (7.0, 44.0)
    body_aspect: Range = (0.6, 1.6)
    body_warp: Range = (0.0, 0.3)
    body_fluid_chance: float = 0.45
    body_echo_db: Range = (-26.0, 0.0)
    body_wall: Range = (1.0, 6.0)
    """Thickness of the wall."""
    body_wall_db: Range = (-8.0, 14.0)
    body_layer_chance: float = 0.3
    body_layer_db: Range = (2.0, 9.0)
    body_layer_period: Range = (5.0, 18.0)

    # What shadows: specks of calcium or gas, and larger bodies of bone.
    speck_chance: float = 0.3
    speck_width: Range = (3.0, 10.0)
    speck_attenuation_db: Range = (0.0, 1.5)
    bone_chance: float = 0.2
    bone_width: Range = (8.0, 24.0)

    # The scanner of the volume.
    point_spread: tuple[Range, Range, Range] = ((0.6, 2.5), (0.45, 1.2), (0.6, 2.2))
    """Sigma of the point spread along z, y, x."""
    compounded_chance: float = 0.4
    """Probability that the volume's speckle is averaged over many views."""
    compounded: Range = (0.25, 0.7)
    """Share of its contrast that is left then."""
    dynamic_range_db: Range = (38.0, 70.0)
    gain_db: Range = (4.0, 16.0)
    smoothing: float = 0.9
    log_gamma: Range = (-0.3, 0.8)
    """Logarithm of the exponent of the grey map: most scanners leave the greater part of an image dark."""
    shadow_chance: float = 0.7
    """Probability that attenuation shows, in a volume and in a frame."""
    fan_chance: float = 0.45
    """Probability that a volume shows the probe's field alone."""
    wedge_chance: float = 0.3
    """Probability that it was swept by tilting: its field also widens from plane to plane."""
    upward_chance: float = 0.2
    """Probability that the probe is at the last row instead of the first."""
    jitter_chance: float = 0.25
    jitter: Range = (0.1, 0.8)
    """Misplacement of the planes of a sweep."""
    hole_chance: float = 0.15
    """Probability of holes that no frame of a sweep has filled."""
    thick_chance: float = 0.3
    """Probability that planes are thicker than they are far apart."""
    coarse_chance: float = 0.3
    """Probability that the volume was kept with half the voxels on every axis and was interpolated since."""
    sparse_chance: float = 0.15
    """Probability that it was so along z alone."""
    deformed_chance: float = 0.35
    deformation: Range = (0.2, 2.0)
    """Root mean square displacement between the tissue in the volume and in the frames."""
    foreign_chance: float = 0.25
    """Probability that the volume is in another contrast, as MR or CT would show the same anatomy."""

    # The scanner of the frames.
    offset: Range = (0.2, 1.0)
    """Share of the greatest offset that a frame's pose is drawn within; small ones more often than large ones."""
    own_speckle_chance: float = 0.45
    """Probability that a frame shares no speckle at all with the volume."""
    speckle_correlation: Range = (0.0, 1.0)
    """Correlation of the speckle of the others with the volume's."""
    frame_full_chance: float = 0.25
    """Probability that a frame shows the whole rectangle instead of the probe's field."""
    frame_point_spread: tuple[Range, Range] = ((0.45, 1.3), (0.6, 2.8))
    elevation_chance: float = 0.6
    elevation: Range = (0.5, 6.0)
    """Thickness of the plane that a frame averages over."""
    frame_gain_db: float = 4.0
    frame_clean_chance: float = 0.45
    """Probability that no further mismatch is added to a frame."""
    coarse_frame_chance: float = 0.1
    """Probability that a frame was kept with half the pixels on both axes and was interpolated since."""
    coarse_both_chance: float = 0.6
    """The same for frames in a volume that was kept so."""
    own_scale_chance: float = 0.5
    """Probability that a frame's grey values are scaled by its own percentiles instead of the volume's."""
    negative_chance: float = 0.0
    """Probability that a frame belongs to another world; for the confidence, not for the pose."""

    def __post_init__(self) -> None:
        for option in fields(self):
            if option.name != "shapes":
                _check(option.name, getattr(self, option.name))
        if not self.shapes or not sum(chance for _, chance in self.shapes) > 0:
            raise ScopeRegError("there are none", where="WorldRanges(shapes)", fix="pass ((D, H, W), chance) pairs")
        for shape, chance in self.shapes:
            check_shape(shape, "WorldRanges(shapes)")
            _check("shapes, chance", float(chance))

    def eased(self, difficulty: float) -> WorldRanges:
        """Worlds that are easier to learn from; 1 leaves them as they are, 0 shows all frames as the volume's slices.

        Speckle is shared, shadows, fans, mismatch, deformation and foreign contrast are rare; anatomy is the same.
        """
        if difficulty >= 1:
            return self
        chances = ("shadow_chance", "fan_chance", "wedge_chance", "jitter_chance", "hole_chance", "deformed_chance")
        more = ("foreign_chance", "own_speckle_chance", "elevation_chance", "speck_chance", "bone_chance")
        coarse = ("coarse_chance", "sparse_chance", "coarse_frame_chance", "coarse_both_chance")
        rarer = {name: difficulty * getattr(self, name) for name in (*chances, *more, *coarse)}
        more_often = {
            name: 1 - difficulty * (1 - getattr(self, name)) for name in ("frame_clean_chance", "frame_full_chance")
        }
        least, most = self.speckle_correlation
        return replace(
            self,
            **rarer,
            **more_often,
            speckle_correlation=(most - difficulty * (most - least), most),
            frame_gain_db=difficulty * self.frame_gain_db,
        )


def greatest_offset(shape: Shape, magnitude: float, ranges: WorldRanges) -> float:
    """Offsets in voxels and degrees that frames of such volumes are drawn within."""
    return min(magnitude, ranges.most_offset * min(shape[1:]))


def check_shape(shape: Shape, where: str) -> None:
    """An error unless a world can be drawn in this shape."""
    good = len(shape) == 3 and all(isinstance(n, int) and _LEAST_AXIS <= n <= _MOST_AXIS for n in shape)
    if not good:
        raise ScopeRegError(
            f"volumes of {' x '.join(map(str, shape))} voxels",
            where=where,
            fix=f"pass three whole numbers D, H, W from {_LEAST_AXIS} to {_MOST_AXIS}",
        )


def _check(name: str, value: object) -> None:
    """An error for a range that is none, a chance beyond 1 or a count below 0."""
    if isinstance(value, int):
        good, fix = value >= 0, "pass 0 or more"
    elif isinstance(value, float):
        most = 1.0 if name.endswith("chance") or name == "smoothing" else math.inf
        good, fix = (
            0 <= value <= most and math.isfinite(value),
            "pass a number from 0 to 1" if most == 1 else "pass 0 or more",
        )
    else:
        assert isinstance(value, tuple)
        parts = value if value and isinstance(value[0], tuple) else (value,)
        positive = name.endswith(_POSITIVE)  # drawn by their logarithm
        good = all(_ascends(part, name) and (not positive or part[0] > 0) for part in parts)
        fix = "pass (least, greatest), finite" + positive * " and above 0"
    if not good:
        raise ScopeRegError(f"{name} is {value}", where=f"WorldRanges({name})", fix=fix)


def _ascends(part: object, name: str) -> bool:
    if not isinstance(part, tuple) or len(part) != 2:
        return False
    least, greatest = part
    signed = name in _SIGNED or name.endswith("_db")
    return all(math.isfinite(n) for n in part) and least <= greatest and (signed or least >= 0)
