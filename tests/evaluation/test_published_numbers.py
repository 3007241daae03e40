"""The published numbers are those of the paper, typed here a second time, and say whose they are."""

from __future__ import annotations

import pytest

from scopereg.evaluation.published_numbers import TableName, is_published_dataset, published, published_dataset

METRICS = (
    "mtre_mm",
    "p95_mm",
    "max_mm",
    "translation_mm",
    "rotation_deg",
    "success_percent",
    "dice",
    "hd95_mm",
    "ncc",
    "ssim",
)


@pytest.mark.parametrize(
    ("dataset", "method", "wanted"),
    [
        ("CAMUS", "identity", [8.17, 10.71, 13.55, 5.93, 9.64, 0.1]),
        ("CAMUS", "CU-Reg", [2.46, 6.30, 15.15, 1.67, 3.88, 69.5, 0.979, 2.62, 0.923, 0.666]),
        ("CAMUS", "SCoPE-Reg", [0.73, 1.37, 5.49, 0.42, 1.10, 100.0, 0.988, 1.49, 0.972, 0.849]),
        ("mu-RegPro", "EUReg", [2.63, 4.47, 6.77, 1.34, 7.01, 66.2, 0.891, 2.70, 0.962, 0.776]),
        ("mu-RegPro", "SCoPE-Reg", [2.27, 4.22, 5.95, 1.42, 5.44, 80.4, 0.909, 2.11, 0.944, 0.720]),
    ],
)
def test_main_table(dataset: str, method: str, wanted: list[float]) -> None:
    (row,) = (row for row in published("main", dataset, 10) if row.method == method)
    assert [row.values[name] for name in METRICS if name in row.values] == wanted
    assert row.values["mtre_mm_std"] < 2
    assert (row.protocol, row.source) == ("paper", "SCoPE-Reg paper")


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("identity", [8.17, 12.21, 15.93, 19.28]),
        ("SCoPE-Reg", [0.73, 1.61, 2.83, 3.67]),
        ("CU-Reg", [2.46, 3.18, 3.42, 4.89]),
        ("DreamReg", [6.50, 11.77, 15.85, 19.31]),
    ],
)
def test_capture_range(method: str, wanted: list[float]) -> None:
    rows = [row for row in published("capture") if row.method == method]
    assert [row.magnitude for row in rows] == [10, 15, 20, 25]
    assert [row.values["mtre_mm"] for row in rows] == wanted


def test_ablation_and_cost() -> None:
    ablation = {row.method: row.values for row in published("ablation")}
    assert [ablation["SSVF + heads"][name] for name in METRICS[:3]] == [0.68, 1.57, 10.04]
    assert [ablation["CWCD + unweighted Kabsch"][name] for name in METRICS[:3]] == [0.89, 1.95, 5.59]
    assert [ablation["SCoPE-Reg + L_phy + L_flow"][name] for name in METRICS[:3]] == [0.76, 1.45, 6.18]
    cost = {(row.method, row.resolution): row.values for row in published("cost")}
    assert cost["SCoPE-Reg", 512] == {"parameters_m": 6.49, "gflops": 138.2, "fps": 51, "memory_mib": 678}
    assert cost["DreamReg", 384] == {"parameters_m": 774.38, "gflops": 21.4, "fps": 24, "memory_mib": 3560}


@pytest.mark.parametrize(("table", "count"), [("main", 12), ("capture", 24), ("ablation", 9), ("cost", 20)])
def test_every_row_is_there_and_labelled(table: TableName, count: int) -> None:
    rows = published(table)
    assert len({(row.dataset, row.method, row.magnitude, row.resolution) for row in rows}) == len(rows) == count
    assert {row.dataset for row in rows} <= {"CAMUS", "mu-RegPro"}
    assert {(row.protocol, row.source) for row in rows} == {("paper", "SCoPE-Reg paper")}


@pytest.mark.parametrize(
    ("name", "near", "same"),
    [
        ("camus", "CAMUS", True),
        ("CAMUS-M", "CAMUS", False),
        ("muregpro", "mu-RegPro", True),
        ("µ-RegPro", "mu-RegPro", True),
        ("muregpro-lowres", "mu-RegPro", False),
        ("echo", None, False),
    ],
)
def test_only_the_very_dataset_counts_as_published(name: str, near: str | None, same: bool) -> None:
    assert published_dataset(name) == near
    assert is_published_dataset(name) is same
