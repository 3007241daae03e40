"""Self-test: devices and scan backends of this machine, and numbers with a known answer on each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from scopereg.geometry import (
    euler_deg_from_rotation,
    place_plane,
    plane_points,
    rotation_from_euler_deg,
    sample_points,
    weighted_kabsch,
)
from scopereg.ops import available_backends
from scopereg.ops.scan.selftest import Case, compare_case


@dataclass(frozen=True)
class Check:
    """One line of the self-test: the error measured and the most that is allowed."""

    name: str
    device: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit  # False for NaN too


def devices() -> list[str]:
    """Devices that torch can use here, in words."""
    found = [f"cpu ({torch.get_num_threads()} threads)"]
    found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return found


def backends() -> dict[str, dict[str, str]]:
    """For each device, the scan backends with "ready" or the reason why one cannot run."""
    found = {name: available_backends(name) for name in _used_devices()}
    return {device: {name: reason or "ready" for name, reason in rows.items()} for device, rows in found.items()}


def _used_devices() -> list[str]:
    return ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def self_test() -> list[Check]:
    """Numbers with a known answer, on every device that will be used."""
    checks = []
    for device in _used_devices():
        checks += [_check_slicing(device), _check_kabsch(device), _check_gradient(device)]
        ready = [name for name, reason in available_backends(device).items() if reason is None]
        checks += [_check_scan(device, name) for name in ready if name != "reference"]
    return checks


def _check_slicing(device: str) -> Check:
    """A plane cut from a volume that is linear in x, y, z must equal the formula."""
    shape = (12, 16, 20)
    z, y, x = torch.meshgrid(*(torch.arange(n, device=device) - (n - 1) / 2 for n in shape), indexing="ij")
    rotation = rotation_from_euler_deg(torch.tensor([[7.0, -5.0, 11.0]], device=device))
    points = place_plane(rotation, torch.tensor([[0.4, -0.3, 0.2]], device=device), (9, 9))
    found = sample_points((0.3 * x - 0.2 * y + 0.5 * z)[None], points)
    wanted = points @ torch.tensor([0.3, -0.2, 0.5], device=device)
    return Check("plane of a linear volume", device, float((found - wanted).abs().max()), 1e-4)


def _check_kabsch(device: str) -> Check:
    """A rigid motion of weighted points must be found again."""
    generator = torch.Generator().manual_seed(0)
    angles = torch.tensor([[12.0, -20.0, 31.0]])
    source = torch.randn(1, 200, 2, generator=generator)
    target = source @ rotation_from_euler_deg(angles)[..., :2].mT + torch.tensor([3.0, -1.0, 2.0])
    weights = torch.rand(1, 200, generator=generator)
    fit = weighted_kabsch(source.to(device), target.to(device), weights.to(device))
    return Check(
        "weighted Kabsch, degrees",
        device,
        float((euler_deg_from_rotation(fit.rotation).cpu() - angles).abs().max()),
        1e-3,
    )


def _check_gradient(device: str) -> Check:
    """The square grid under a rigid field, where the gradient through an SVD is NaN."""
    source = plane_points((8, 8), device=device).reshape(1, 64, 2)
    target = torch.nn.functional.pad(source, (0, 1)).requires_grad_()
    fit = weighted_kabsch(source, target, torch.ones(1, 64, device=device))
    fit.rotation.square().sum().add(fit.translation.sum()).backward()
    assert target.grad is not None
    finite = bool(torch.isfinite(target.grad).all())
    return Check("Kabsch gradient on a square grid is finite", device, 0.0 if finite else float("nan"), 0.0)


def _check_scan(device: str, backend: str) -> Check:
    """A scan backend against the plain loop in float64, with its gradients where it has them."""
    case = Case(batch=2, directions=2, planes=3, length=65, channels=17, states=8)
    found = compare_case(case, backend, device)
    error = torch.tensor([comparison.error for comparison in found]).max()  # a tensor's max keeps a NaN
    return Check(f"{backend} scan, relative", device, float(error), case.tolerance)
