"""Results page: results as one HTML file with tables, charts, pictures and provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.evaluation.compare import choose_reference, compare
from scopereg.evaluation.nothing import against_nothing
from scopereg.evaluation.results import START, Group, ResultsFile, group_results, read_files, result_files
from scopereg.evaluation.source import told_facts
from scopereg.evaluation.statistics import fold_mean, success_rate, tail
from scopereg.evaluation.tables import Table
from scopereg.geometry import SUCCESS_MM
from scopereg.io.read_image import content_sha256
from scopereg.provenance import provenance
from scopereg.registration.track import is_track
from scopereg.report import example_frames, figures
from scopereg.report.adaptation_section import add_adaptation, find_pairs
from scopereg.report.confidence_section import add_confidence
from scopereg.report.example_data import ExampleData
from scopereg.report.example_frames import ExampleFrames
from scopereg.report.page import Report
from scopereg.report.palette import Look
from scopereg.report.sweeps_section import FollowedSequence, add_sweeps, read_followed

MAGNITUDE = 10.0  # that charts and pictures show where nobody says otherwise: the paper's


@dataclass(frozen=True)
class Material:
    """Material of all sections."""

    files: list[ResultsFile]
    groups: list[Group]
    shown: list[Group]  # of each dataset and protocol the one that charts and pictures show
    tables: list[Table]
    reference: str
    styles: dict[str, Look]
    examples: ExampleFrames
    sweeps: list[FollowedSequence]
    pictures: bool = True

    def of(self, *names: str) -> list[Table]:
        """The tables of some kinds."""
        return [table for table in self.tables if table.name in names]


def report_of(
    results: Sequence[Path],
    *,
    dataset: str | None = None,
    data: Path | None = None,
    pictures: bool = True,
    reference: str | None = None,
    magnitude: float | None = None,
    intersect: bool = False,
    with_published: bool = False,
    words: Callable[[str], str] = str,
) -> Report:
    """The page about all that is given: results of `evaluate`, tables of `track`, or both.

    Sentences that name arguments of this function go through `words`: the command line calls them otherwise.
    """
    found = result_files(results)
    tracks = [path for path in found if is_track(path)]
    others = [path for path in found if path not in tracks]
    sweeps = read_followed(tracks)
    if not others:
        return sweeps_page(sweeps, pictures=pictures)
    files = read_files(others)
    rows = [row for file in files for row in file.rows]
    if not rows:
        raise ScopeRegError("the files hold no frame", where="results", fix="evaluate at least one case")
    examples = ExampleFrames(ExampleData(files, dataset, data) if pictures else None)
    reference = choose_reference(rows, reference)
    groups = group_results(rows, intersect=intersect)
    tables = compare(rows, reference=reference, intersect=intersect, with_published=with_published)
    styles = figures.method_styles([row.method for row in rows], reference)
    shown = _shown(groups, reference, magnitude)
    return make_page(Material(files, groups, shown, tables, reference, styles, examples, sweeps, pictures), words)


def sweeps_page(sweeps: Sequence[FollowedSequence], *, pictures: bool = True) -> Report:
    """The page about sequences alone."""
    report = Report("Sweeps", f"{len(sweeps)} sequences that were followed. Not for clinical use.", contents=True)
    add_sweeps(report, sweeps, pictures=pictures)
    add_provenance(report, [], sweeps)
    return report


def make_page(material: Material, words: Callable[[str], str] = str) -> Report:
    """Every section in order; one that there is nothing for says why, or is left out where nobody would miss it."""
    groups = material.groups
    datasets, protocols = (sorted({getattr(group, name) for group in groups}) for name in ("dataset", "protocol"))
    methods = [method for method in material.styles if any(method in group.methods for group in groups)]
    report = Report(
        f"Registration results: {', '.join(datasets)}",
        f"{len(methods)} methods ({', '.join(methods)}) under the {' and '.join(protocols)} protocol. Errors are mean "
        f"distances over a frame's centre and four corners (mTRE); a success is {SUCCESS_MM:g} mm or less. The "
        f"reference, which the others are tested against, is {material.reference}. Not for clinical use.",
        contents=True,
        words=words,
    )
    for section in _SECTIONS:
        section(report, material)
    return report


def _shown(groups: Sequence[Group], reference: str, magnitude: float | None) -> list[Group]:
    """Groups that charts show: of each dataset and protocol the nearest magnitude, if possible with the reference."""
    wanted = MAGNITUDE if magnitude is None else magnitude
    if magnitude is not None and magnitude not in {group.magnitude for group in groups}:
        there = ", ".join(f"{value:g}" for value in sorted({group.magnitude for group in groups}))
        raise ScopeRegError(f"no results at {magnitude:g}", where="magnitude=", fix=f"use one of {there}")
    return [
        min(part, key=lambda group: (reference not in group.methods, abs(group.magnitude - wanted)))
        for part in _by_protocol(groups)
    ]


def _by_protocol(groups: Sequence[Group]) -> list[list[Group]]:
    return [list(part) for _, part in groupby(groups, key=lambda group: (group.dataset, group.protocol))]


def _glance(report: Report, material: Material) -> None:
    report.heading("At a glance", f"{material.reference}, beside no registration.")
    for group in material.groups:
        if worse := [each.sentence for each in against_nothing(group) if each.is_worse]:
            report.alert(f"Worse than no registration: {group.label}", worse)
    for group in material.shown:
        if material.reference not in group.methods:
            continue
        errors = group.column(material.reference, "mtre_mm")
        report.subheading(group.label)
        report.cards(
            {
                "mean target error": f"{fold_mean(errors, group.folds).mean:.2f} mm",
                "before registration": f"{fold_mean(group.start_mm, group.folds).mean:.2f} mm",
                "95th percentile": f"{tail(errors).p95:.2f} mm",
                f"within {SUCCESS_MM:g} mm": f"{100 * success_rate(errors).fraction:.1f} %",
                "frames": str(len(errors)),
                "patients": str(len(set(group.patients))),
            }
        )


def _accuracy(report: Report, material: Material) -> None:
    report.heading("Accuracy", "One table for each dataset, protocol and magnitude; the best in bold.")
    _add_tables(report, material.of("main"))


def _statistics(report: Report, material: Material) -> None:
    report.heading(
        "Statistics",
        f"Every method against no registration, then {material.reference} against each other one, frame by frame.",
    )
    _add_tables(report, material.of("against_nothing"))
    tables = material.of("statistics")
    _add_tables(report, tables)
    if not tables:
        report.text("No tests: no other method has results beside the reference. Evaluate one on the same frames.")


def _distribution(report: Report, material: Material) -> None:
    report.heading(
        "Errors",
        "Box: quartiles and median; whiskers: 5th and 95th percentile; dots: frames beyond; ring: mean. Curves: the "
        "share of the frames within an error; frames that were not located are within none.",
    )
    for group in material.shown:
        report.subheading(group.label)
        report.chart(figures.box_figure(group, material.styles))
        report.chart(figures.cumulative_figure(group, material.styles))
    _note_others(report, material)


def _capture(report: Report, material: Material) -> None:
    report.heading("Capture range", "How the error grows with the offset to find.")
    spans = [part for part in _by_protocol(material.groups) if len(part) > 1]
    for part, table in zip(spans, material.of("capture"), strict=True):
        report.subheading(table.title)
        for chart in figures.capture_figures(part, material.styles):
            report.chart(chart)
        report.comparison(table)
    if spans:
        report.notes(
            [
                "Bands of the error: one standard deviation over folds, with one fold the 95 % bootstrap interval of "
                "the mean over patients. Bands of the success: 95 % Wilson intervals."
            ]
        )
    else:
        report.text(
            "The results are of one magnitude each. Evaluate at several (5, 10, 20) to see how far methods reach."
        )


def _published(report: Report, material: Material) -> None:
    tables = material.of("published_ablation", "published_cost")
    if tables:
        report.heading("Published numbers", "From the paper, not measured here; set apart from the results.")
        _add_tables(report, tables)


def _examples(report: Report, material: Material) -> None:
    report.heading(
        "Examples",
        f"Frames at the ranks of the errors of {material.reference}. Above: the volume's slice at the pose; below: its "
        "difference to the frame, black where they agree, red where they do not. The start is the middle of the "
        "volume. Honest frames are other acquisitions: they differ even at the true pose.",
    )
    for group in material.shown:
        report.subheading(group.label)
        if reason := _no_pictures(material, group):
            report.text(reason)
            continue
        methods = figures.ordered(group, material.styles)
        for index, rank in example_frames.ranked(group.methods[material.reference]).items():
            example_frames.add_strip(report, material.examples, group, methods, index, rank)


def _failures(report: Report, material: Material) -> None:
    most = example_frames.MOST_FAILURES
    report.heading(
        "Failures", f"Frames that {material.reference} has wrong by more than {SUCCESS_MM:g} mm, worst first."
    )
    for group in material.shown:
        report.subheading(group.label)
        if material.reference not in group.methods:
            report.text(f"{material.reference} has no results here.")
            continue
        found = example_frames.failures(group.methods[material.reference])
        count = len(group.methods[material.reference])
        report.text(
            f"{len(found)} of {count} frames" + (f"; the worst {most} are shown." if len(found) > most else ".")
        )
        if found:
            _failure_table(report, material, group, found[:most])
        reason = _no_pictures(material, group) if found else None
        if reason:
            report.text(reason)
        elif found:
            methods = figures.ordered(group, material.styles)
            for number, index in enumerate(found[:most], start=1):
                example_frames.add_strip(report, material.examples, group, methods, index, f"failure {number}")


def _failure_table(report: Report, material: Material, group: Group, indices: Sequence[int]) -> None:
    methods = [method for method in figures.ordered(group, material.styles) if method != START]
    rows = []
    for index in indices:
        row = group.methods[material.reference][index]
        errors = [example_frames.error_text(group.methods[method][index]) for method in methods]
        rows.append([row.case, row.patient, str(row.fold), str(row.frame), f"{row.start_mm:.2f} mm", *errors])
    report.table(["case", "patient", "fold", "frame", "start", *methods], rows, style="tight")


def _confidence(report: Report, material: Material) -> None:
    add_confidence(report, material.shown, material.styles)


def _adaptation(report: Report, material: Material) -> None:
    add_adaptation(report, find_pairs(material.shown, material.files))


def _sweeps(report: Report, material: Material) -> None:
    add_sweeps(report, material.sweeps, pictures=material.pictures)


def _provenance(report: Report, material: Material) -> None:
    add_provenance(report, material.files, material.sweeps)


def _no_pictures(material: Material, group: Group) -> str | None:
    if material.reference not in group.methods:
        return f"{material.reference} has no results here."
    return material.examples.why_not(group)


def _note_others(report: Report, material: Material) -> None:
    others = [group.label for group in material.groups if group not in material.shown]
    if others:
        report.notes([f"Not drawn here, but in the tables: {'; '.join(others)}. magnitude= chooses."])


def _add_tables(report: Report, tables: Sequence[Table]) -> None:
    """Tables of one kind; notes that belong to all of them stand once, below the last."""
    common = [note for note in tables[0].notes if all(note in table.notes for table in tables)] if tables[1:] else []
    for table in tables:
        report.subheading(table.title)
        report.comparison(replace(table, notes=[note for note in table.notes if note not in common]))
    if common:
        report.text("All of these tables:")
        report.notes(common)


_SECTIONS: tuple[Callable[[Report, Material], None], ...] = (
    _glance,
    _accuracy,
    _statistics,
    _distribution,
    _capture,
    _published,
    _examples,
    _failures,
    _confidence,
    _adaptation,
    _sweeps,
    _provenance,
)


_ENVIRONMENT = ("scopereg", "python", "system", "device", "versions")


def add_provenance(report: Report, files: Sequence[ResultsFile], sweeps: Sequence[FollowedSequence]) -> None:
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
        report.details(file.path.name, told_facts(file.facts))


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
