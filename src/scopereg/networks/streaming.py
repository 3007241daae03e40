"""Streaming: the volume prepared once, frames registered in it at a fraction of the cost of a forward pass.

What depends on the volume alone: its features and tokens, and the states of the coordinate scan (`EncodedVolume`). What
depends on the frame alone: the gates of both scans, one product of its normalised features. The twin of
`ScopeReg.forward`, which tests hold it to; inference only.
"""

from __future__ import annotations

import copy
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from scopereg.errors import ScopeRegError
from scopereg.networks.encoders import CHANNELS, STRIDE, Encoder
from scopereg.networks.folded import FoldedEncoder, can_fold
from scopereg.networks.fusion import DIRECTIONS, STATES, WIDTH, DirectionalLinear, TokenProjection
from scopereg.networks.lattice import Lattice, pad_slices, pad_volumes
from scopereg.networks.passes import place, seen_from
from scopereg.networks.scope_reg import ScopeReg, check_inputs
from scopereg.ops import coordinate_scan, coordinate_states, directional_scan
from scopereg.ops.decode import Fit, Gates, Sizes, fit_plane, split_gates, weigh_planes
from scopereg.ops.decode.plain import positive
from scopereg.ops.replay import side_stream

Precision = Literal["auto", "float32", "float16", "bfloat16"]
_SIZES = Sizes(DIRECTIONS, WIDTH, STATES)


class EncodedVolume(NamedTuple):
    """All of a volume that frames need."""

    tokens: Float[Tensor, "1 d l c"]  # x_v
    states: Float[Tensor, "1 k d l s 4"] | None  # of the coordinate scan; None: it is to be scanned for each frame
    lattice: Lattice
    shape: tuple[int, int, int]  # of the volume as given
    # Tokens and what their coordinate gates are made of, for further decoding passes.
    wide: Float[Tensor, "1 d l c2"] | None = None


class Located(NamedTuple):
    """Poses of frames and what they were fitted to, all on the network's device."""

    rotation: Float[Tensor, "b 3 3"]  # slice to volume
    translation: Float[Tensor, "b 3"]  # voxels
    residual: Float[Tensor, " b"]  # voxels: weighted root mean square distance of the coordinates from the fit
    coordinates: Float[Tensor, "b l 3"]  # cells
    evidence: Float[Tensor, "b l"]


class Streaming:
    """A SCoPE-Reg network for streams of frames: its weights once more, in the form that streaming wants."""

    def __init__(self, network: ScopeReg, device: torch.device | str = "cpu", precision: Precision = "auto") -> None:
        """`precision` is that of encoders and products; scans, sums and the fit are in float32 always."""
        if type(network) is not ScopeReg:
            raise ScopeRegError(
                f"a {type(network).__name__} has nothing to prepare",
                where="Streaming(network)",
                fix="use scope-reg, or the network itself: network(slice, volume)",
            )
        self.device = torch.device(device)
        self.dtype = _precision(precision, self.device)
        self.depth_stride, self.reach, self.weighted = network.depth_stride, network.reach, network.weighted
        self.matching, self.looks, self.later_planes = network.matching, network.looks, network.later_planes
        encoder, decoder = network.encoder, network.decoder
        with torch.no_grad():
            self.slice_encoder = _inference(encoder.slice_encoder, self.dtype, self.device)
            self.volume_encoder = _inference(encoder.volume_encoder, self.dtype, self.device)
            self.slice_map = self._placed(_slice_map(network), self.dtype)
            self.volume_map = self._placed(_joined(encoder.volume_projection), self.dtype)
            self.coordinate_map = self._placed(_stacked(decoder.coordinate_scan.step, decoder.coordinate_scan.write))
            self.depth_map = self._placed((decoder.depth_gate.linear.weight, decoder.depth_gate.linear.bias))
            self.decay, self.skip, self.coordinate_decay, self.depth_decay = self._placed(
                (
                    decoder.feature_scan.decay(),
                    decoder.feature_scan.skip,
                    decoder.coordinate_scan.decay(),
                    decoder.depth_gate.log_decay,
                )
            )

    def _placed(self, tensors: tuple[Tensor, ...], dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
        return tuple(tensor.detach().to(self.device, dtype) for tensor in tensors)

    @torch.inference_mode()
    def prepare(self, volume: Float[Tensor, "d h w"], *, table: bool = True) -> EncodedVolume:
        """A volume in [0, 1]. With a `table` of states frames are read out of it instead of scanned."""
        check_inputs(volume[:1], volume[None])
        padded, lattice = pad_volumes(volume[None].to(self.device, self.dtype), self.depth_stride)
        features = self.volume_encoder(padded[:, None])  # F_v (1, C, D', H', W')
        tokens = self._mapped(features, self.volume_map).flatten(2, 3).float()
        lattice = lattice._replace(reach=self.reach)
        states = self._states(tokens, lattice) if table else None
        wide = None
        if table and self.looks > 1 and self.device.type == "cpu":
            # The map of tokens seen from elsewhere is the map of all, seen from there: one product for all looks.
            wide = torch.cat([tokens, F.linear(tokens, self.coordinate_map[0])], -1)
        return EncodedVolume(tokens, states, lattice, tuple(volume.shape), wide)  # type: ignore[arg-type]

    @torch.inference_mode()
    def locate(self, prepared: EncodedVolume, slices: Float[Tensor, "b h w"]) -> Located:
        """Frames in [0, 1], of the pixels of the volume's planes."""
        _check_slices(slices, prepared.shape)
        return self._located(prepared, *self._read_slices(slices))

    @torch.inference_mode()
    def locate_from(
        self,
        prepared: EncodedVolume,
        image: Float[Tensor, "h w"],
        rotation: Float[Tensor, "n 3 3"],
        translation: Float[Tensor, "n 3"],
        looks: int,
    ) -> Located:
        """One frame from many starts, in voxels: where so many decoding passes lead from each."""
        _check_slices(image[None], prepared.shape)
        gates, x_s = self._read_slices(image[None])
        count = len(rotation)
        gates = Gates(*(part.repeat(count, 1, 1, 1) for part in gates))
        x_s = None if x_s is None else x_s.expand(count, -1, -1)
        start = rotation.to(self.device, torch.float32), translation.to(self.device, torch.float32) / STRIDE
        fit = Fit(*start, torch.zeros(count, device=self.device))
        found = None
        for _ in range(looks):
            found, fit = self._look_again(prepared, gates, x_s, fit)
        assert found is not None
        return Located(fit.rotation, fit.translation * STRIDE, fit.residual * STRIDE, *found)

    @torch.inference_mode()
    def whole(self, slices: Float[Tensor, "b h w"], volume: Float[Tensor, "d h2 w2"]) -> Located:
        """Frames in a volume that nothing is kept of; both are encoded at the same time."""
        _check_slices(slices, tuple(volume.shape))
        if self.device.type != "cuda":
            return self.locate(self.prepare(volume, table=False), slices)
        main, aside = torch.cuda.current_stream(self.device), side_stream(self.device, 1)
        aside.wait_stream(main)
        with torch.cuda.stream(aside):
            steering = self._read_slices(slices)
        prepared = self.prepare(volume, table=False)
        main.wait_stream(aside)
        return self._located(prepared, *steering)

    def _located(self, prepared: EncodedVolume, gates: Gates, x_s: Tensor | None) -> Located:
        found = self._decode(gates, x_s, prepared.tokens, prepared)
        fit = self._fit(prepared.lattice, *found)
        for _ in range(self.looks - 1):
            found, fit = self._look_again(prepared, gates, x_s, fit)
        return Located(fit.rotation, fit.translation * STRIDE, fit.residual * STRIDE, *found)

    def _look_again(
        self, prepared: EncodedVolume, gates: Gates, x_s: Tensor | None, fit: Fit
    ) -> tuple[tuple[Tensor, Tensor], Fit]:
        """Coordinates and evidence, and their fit, of the volume as seen from the poses of a fit."""
        tokens = prepared.tokens if prepared.wide is None else prepared.wide
        tokens = tokens.expand(len(gates.step), -1, -1, -1)
        own, near = prepared.lattice._replace(reach=1.0), prepared.lattice.middle_planes(self.later_planes)
        seen = seen_from(tokens, own, fit.rotation, fit.translation, self.later_planes)
        x_v, mapped = (seen, None) if prepared.wide is None else seen.tensor_split([WIDTH], -1)
        coordinates, evidence = self._decode(gates, x_s, x_v, prepared._replace(states=None, lattice=near), mapped)
        found = place(coordinates, fit.rotation, fit.translation), evidence
        return found, self._fit(prepared.lattice, *found)

    def _read_slices(self, slices: Float[Tensor, "b h w"]) -> tuple[Gates, Float[Tensor, "b l c"] | None]:
        """What steers the scans, and the tokens x_s where they are to be matched."""
        features = self.slice_encoder(pad_slices(slices.to(self.device, self.dtype))[:, None])  # F_s (B, C, H', W')
        mapped = self._mapped(features, self.slice_map).flatten(1, 2)  # (B, L, columns)
        gates = split_gates(mapped[..., : _SIZES.columns], _SIZES)
        return gates, mapped[..., _SIZES.columns :].float() if self.matching else None

    def _decode(
        self, gates: Gates, x_s: Tensor | None, x_v: Tensor, prepared: EncodedVolume, mapped: Tensor | None = None
    ) -> tuple[Float[Tensor, "b l 3"], Float[Tensor, "b l"]]:
        """Coordinates and evidence from volume tokens, of one volume or of each frame's, mapped where they are."""
        lattice = prepared.lattice
        order = lattice.orders(self.device)
        many = x_v.expand(len(gates.step), -1, -1, -1)
        fused = directional_scan(many, gates.step, self.decay, gates.write, gates.read, self.skip, order)
        if x_s is not None:
            fused.addcmul_(x_s[:, None], x_v)  # nobody else has it
        logits = self._product(fused, self.depth_map)
        if prepared.states is not None:
            return weigh_planes(logits, self.depth_decay, prepared.states, gates.coordinate_read)
        step, write = self._coordinate_gates(many, mapped)
        points = lattice.volume_points(self.device)
        moments = coordinate_scan(points, step, self.coordinate_decay, write, gates.coordinate_read, order)
        return weigh_planes(logits, self.depth_decay, moments, None)

    def _states(self, tokens: Float[Tensor, "1 d l c"], lattice: Lattice) -> Float[Tensor, "1 k d l s 4"]:
        step, write = self._coordinate_gates(tokens)
        points = lattice.volume_points(self.device)
        return coordinate_states(points, step, self.coordinate_decay, write, lattice.orders(self.device))

    def _coordinate_gates(
        self, tokens: Float[Tensor, "b d l c"], mapped: Float[Tensor, "#b d l g"] | None = None
    ) -> tuple[Float[Tensor, "b k d l"], Float[Tensor, "b k d l s"]]:
        """Step and write gate, of tokens or of what they were mapped to without bias."""
        gates = self._product(tokens, self.coordinate_map) if mapped is None else mapped + self.coordinate_map[1]
        step, write = positive(gates).split([DIRECTIONS, DIRECTIONS * STATES], -1)
        return step.movedim(-1, 1), write.unflatten(-1, (DIRECTIONS, STATES)).movedim(-2, 1)

    def _fit(self, lattice: Lattice, coordinates: Float[Tensor, "b l 3"], evidence: Float[Tensor, "b l"]) -> Fit:
        weights = evidence if self.weighted else torch.ones_like(evidence)
        return fit_plane(lattice.slice_points(self.device), coordinates, weights)

    def _mapped(
        self, features: Float[Tensor, "b c *cells"], linear: tuple[Tensor, ...]
    ) -> Float[Tensor, "b *cells columns"]:
        """Layer norm without its gain, which is in the map, and the map."""
        return self._product(F.layer_norm(features.movedim(1, -1), (CHANNELS,)), linear)

    def _product(
        self, tokens: Float[Tensor, "*cells inputs"], linear: tuple[Tensor, ...]
    ) -> Float[Tensor, "*cells outputs"]:
        """A map of tokens.

        In reduced precision on a GPU as a convolution, one pixel wide: cuDNN needs no memory for it, where cuBLAS
        holds 32 MiB for every stream, nearly half of what a whole forward pass takes.
        """
        weight, bias = linear
        if self.device.type != "cuda" or self.dtype == torch.float32:
            return F.linear(tokens, weight, bias)
        row = tokens.reshape(1, 1, -1, tokens.shape[-1]).permute(0, 3, 1, 2)  # (1, inputs, 1, tokens), channels last
        mapped = F.conv2d(row, weight[:, :, None, None], bias)
        return mapped.permute(0, 2, 3, 1).reshape(*tokens.shape[:-1], len(weight))


def _slice_map(network: ScopeReg) -> tuple[Tensor, Tensor]:
    """From normalised features to all gates at once: the projection and the gates' own maps are both linear."""
    features, coordinates = network.decoder.feature_scan, network.decoder.coordinate_scan
    weight, bias = _stacked(features.step, features.write, features.read, coordinates.read)
    first, first_bias = _joined(network.encoder.slice_projection)
    weight, bias = weight.double() @ first.double(), weight.double() @ first_bias.double() + bias.double()
    if network.matching:  # compares the tokens themselves
        weight, bias = torch.cat([weight, first.double()]), torch.cat([bias, first_bias.double()])
    return weight.float(), bias.float()


def _check_slices(slices: Tensor, shape: tuple[int, ...]) -> None:
    if slices.ndim != 3 or tuple(slices.shape[1:]) != tuple(shape[1:]):
        raise ScopeRegError(
            f"frames of shape {tuple(slices.shape)} do not fit planes of {shape[1]} x {shape[2]} pixels",
            where="locate(slices)",
            fix="pass frames (B, H, W) with the pixels of the volume's planes",
        )


def _precision(name: Precision, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.float16 if device.type == "cuda" else torch.float32
    known = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if name not in known:
        raise ScopeRegError(f"unknown precision {name!r}", where="precision", fix=f"use auto, {', '.join(known)}")
    return known[name]


def _inference(encoder: Encoder, dtype: torch.dtype, device: torch.device) -> FoldedEncoder | Encoder:
    """Folded; an encoder with instance norms as it is, in this precision."""
    if can_fold(encoder):
        return FoldedEncoder(encoder, dtype, device)
    return copy.deepcopy(encoder).eval().to(device, dtype)


def _joined(projection: TokenProjection) -> tuple[Tensor, Tensor]:
    """The layer norm's gain and offset and the map behind it, as one map."""
    weight = projection.linear.weight.double()
    bias = projection.linear.bias.double() + weight @ projection.norm.bias.double()
    return (weight * projection.norm.weight.double()).float(), bias.float()


def _stacked(*layers: DirectionalLinear) -> tuple[Tensor, Tensor]:
    """Maps of the same tokens as one: (rows, C') and (rows,)."""
    weights = [layer.weight.flatten(0, 1) for layer in layers]
    biases = [
        torch.zeros(len(weight), device=weight.device) if layer.bias is None else layer.bias.flatten()
        for layer, weight in zip(layers, weights, strict=True)
    ]
    return torch.cat(weights).detach(), torch.cat(biases).detach()
