"""Tissue: what fills a world, as maps of how it echoes, attenuates and looks in another modality."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from scopereg.data.worlds.draws import Draws
from scopereg.data.worlds.fields import Box, Fields
from scopereg.data.worlds.ranges import WorldRanges

_FLUID_DB = -30.0  # below this a tissue is a fluid
_FLUID_ATTENUATION_DB = -0.03  # a voxel: what lies behind fluid is brighter


@dataclass
class Tissue:
    """Maps of a batch of worlds, on the nodes of their box; structures change them in place."""

    echo_db: Float[Tensor, "n z y x"]  # echogenicity
    attenuation_db: Float[Tensor, "n z y x"]  # excess attenuation, dB a voxel of depth
    foreign: Float[Tensor, "n z y x"]  # what another modality shows, about 0 to 1

    def stacked(self) -> Float[Tensor, "n 3 z y x"]:
        """All maps."""
        return torch.stack([self.echo_db, self.attenuation_db, self.foreign], 1)

    def fill(self, inside: Tensor, echo_db: Tensor, foreign: Tensor, attenuation_db: float | Tensor) -> None:
        """Replace the tissue where `inside` is 1, by parts where it is between 0 and 1."""
        self.echo_db = torch.lerp(self.echo_db, echo_db.expand_as(self.echo_db), inside)
        self.foreign = torch.lerp(self.foreign, foreign.expand_as(self.foreign), inside)
        self.attenuation_db = self.attenuation_db * (1 - inside) + attenuation_db * inside

    def brighten(self, where: Tensor, echo_db: Tensor | float, foreign: Tensor | None = None) -> None:
        """Add echo where `where` is 1, and to what another modality shows."""
        self.echo_db = self.echo_db + where * echo_db
        if foreign is not None:
            self.foreign = torch.addcmul(self.foreign, where, foreign)


def blend_labels(fields: Fields, ranges: WorldRanges, draws: Draws) -> Tissue:
    """Tissues that share the world among them: each has a field, and the largest one fills the place."""
    count, maps = ranges.labels, draws.with_axes(3)
    present = maps.chance(maps.uniform(ranges.label_chance, 1), count)
    present[:, :2].fill_(True)
    absent = torch.where(present, 0.0, -1e4)
    scores = torch.addcmul(absent, fields.draw(count, ranges.label_width), maps.uniform(ranges.label_sharpness, 1))
    share = torch.softmax(scores, 1)
    echo_db, attenuation_db, speckled = _label_numbers(ranges, draws)
    numbers = torch.stack([echo_db, attenuation_db, draws.uniform((0.0, 1.0), count), speckled], 1)  # (n, 4, K)
    echo, attenuation, foreign, texture = torch.einsum("nkzyx,nmk->mnzyx", share, numbers).unbind(0)
    tissue = Tissue(echo, attenuation, foreign)
    meeting = 1 - torch.linalg.vector_norm(share, dim=1)  # 0 within tissues, 0.29 where two of them meet
    tissue.brighten(meeting, maps.uniform(ranges.interface_db) / 0.29)
    _add_texture(tissue, texture, fields, ranges, maps)
    return tissue


def _label_numbers(ranges: WorldRanges, draws: Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Echogenicity, attenuation and how much texture (count, labels) the tissues have."""
    count = ranges.labels
    echo = draws.uniform(ranges.label_echo_db, count)
    fluid = draws.uniform(ranges.fluid_echo_db, count)
    echo = torch.where(draws.chance(ranges.fluid_chance, count), fluid, echo)
    attenuation = draws.uniform(ranges.label_attenuation_db, count)
    attenuation = torch.where(echo < _FLUID_DB, _FLUID_ATTENUATION_DB, attenuation)
    return echo, attenuation, draws.uniform((0.0, 1.0), count)


def _add_texture(tissue: Tissue, strength: Tensor, fields: Fields, ranges: WorldRanges, maps: Draws) -> None:
    """Fine texture by tissue, coarse texture everywhere."""
    (fine,) = fields.draw(1, ranges.fine_width).unbind(1)
    (coarse,) = fields.draw(1, ranges.coarse_width).unbind(1)
    tissue.brighten(strength * fine, maps.uniform(ranges.fine_db), maps.uniform((-0.08, 0.08)))
    tissue.brighten(coarse, maps.uniform(ranges.coarse_db), maps.uniform((-0.06, 0.06)))


def draw_fields(box: Box, ranges: WorldRanges, draws: Draws) -> Fields:
    """The fields of a batch of worlds, some of which change slowly along z."""
    slow = draws.chance(ranges.slow_chance)
    stretch = torch.where(slow, draws.log_uniform(ranges.slow_factor), 1.0)
    return Fields(box, draws, stretch)
