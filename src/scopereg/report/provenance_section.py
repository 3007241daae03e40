"""Section of a report: where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scopereg.evaluation.results import ResultsFile
from scopereg.io.read_image import content_sha256
from scopereg.provenance import provenance
from scopereg.report.page import Report
from scopereg.report.sweep_section import Sweep

_ENVIRONMENT = ("scopereg", "python", "system", "device", "versions")


def add_provenance(report: Report, files: Sequence[ResultsFile], sweeps: Sequence[Sweep]) -> None:
    """Every file with its hash, and what results were made with."""
    report.heading("Where the numbers come from", "Every file that was read, and what it was made with.")
    if files:
        _add_files(report, files)
    if sweeps:
        rows = [[str(sweep.path), str(len(sweep.steps)), content_sha256([sweep.path])[:12]] for sweep in sweeps]
        report.table(["file of a sweep", "frames", "file's hash"], rows, style="tight words")
    report.facts(provenance())


def _add_files(report: Report, files: Sequence[ResultsFile]) -> None:
    columns = ["file", "method", "dataset", "protocol", "pm", "fold", "frames", "seed", "made", "data", "file's hash"]
    report.table(columns, [_file_row(file) for file in files], style="tight words")
    alike: dict[str, list[str]] = {}
    for file in files:
        found = {key: file.facts[key] for key in _ENVIRONMENT if key in file.facts}
        alike.setdefault(_environment_text(found), []).append(file.path.name)
    report.subheading("Environments")
    rows = [[text, "all files" if len(alike) == 1 else ", ".join(names)] for text, names in alike.items()]
    report.table(["environment", "files"], rows, style="words")
    report.subheading("Headers of the files", "All that each file tells, on a click; not printed.")
    for file in files:
        report.details(file.path.name, file.facts)


def _file_row(file: ResultsFile) -> list[str]:
    if not file.rows:
        return [file.path.name, *["–"] * 10]
    first, facts = file.rows[0], file.facts
    told = [str(facts.get(key, "–")) for key in ("seed", "made", "data_sha256")]
    return [
        file.path.name,
        first.method,
        first.dataset,
        first.protocol,
        f"{first.magnitude:g}",
        str(first.fold),
        str(len(file.rows)),
        *told[:2],
        told[2][:12],
        content_sha256([file.path])[:12],
    ]


def _environment_text(facts: dict[str, Any]) -> str:
    versions = facts.get("versions", {})
    plain = [f"{key} {value}" for key, value in facts.items() if key != "versions"]
    return ", ".join([*plain, *(f"{name} {found}" for name, found in versions.items())]) or "not told"
