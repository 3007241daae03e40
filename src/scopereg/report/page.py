"""One self-contained HTML page: cards, tables, charts, pictures and how it was made."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.evaluation.tables import Column, Table, TableBlock, cell_text
from scopereg.io.files import write_text
from scopereg.io.pictures import Pixels, data_uri
from scopereg.registration.result import Light
from scopereg.report.drawing import SVG_STYLE
from scopereg.report.palette import PALETTE, SIGNS

_RULES = """
* { box-sizing:border-box } body { margin:0; background:var(--back); color:var(--ink);
  font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
main { max-width:1080px; margin:0 auto; padding:32px 20px 64px } h1 { font-size:26px; margin:0 0 4px }
h2 { font-size:18px; margin:36px 0 10px } h3 { font-size:15px; margin:24px 0 8px; font-weight:600 }
p { margin:6px 0; max-width:72ch } .dim { color:var(--dim) } a { color:var(--c2) }
nav { margin:20px 0; padding:12px 18px; background:var(--panel); border:1px solid var(--line); border-radius:10px }
nav ol { margin:0; padding-left:22px; columns:400px; column-gap:36px } nav ol > li { break-inside:avoid }
nav ul { margin:0; padding-left:18px; list-style:none; font-size:.87em }
.cards { display:grid; gap:12px; margin:20px 0; max-width:max-content }
.card { background:var(--panel); border:1px solid var(--line); border-radius:10px; padding:12px 16px; min-width:128px }
.card b { display:block; font-size:23px; font-weight:650; white-space:nowrap }
.card span { color:var(--dim); font-size:13px; line-height:1.35; display:block }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums } th,td { text-align:right;
  padding:6px 10px; border-bottom:1px solid var(--line) } th { color:var(--dim); font-weight:500 }
th:first-child,td:first-child { text-align:left } .scroll { overflow-x:auto }
.paged { max-width:1240px } .tight { font-size:13px } .tight th,.tight td { padding:5px 7px }
.tight th { vertical-align:bottom } .tight td { white-space:nowrap }
.tight th:first-child,.tight td:first-child { position:sticky; left:0; background:var(--back) }
.words th,.words td { text-align:left } .block td { color:var(--dim); font-style:italic; padding-top:12px }
.published td { color:var(--dim) } .notes { color:var(--dim); font-size:13px; margin:6px 0; padding-left:18px }
.notes li { max-width:110ch } .good { color:var(--good) } .bad { color:var(--bad) }
.alert { margin:14px 0; padding:10px 16px; border-left:4px solid var(--bad); background:var(--panel);
  border-radius:0 10px 10px 0 } .alert p { max-width:110ch } .alert b { color:var(--bad) }
.light { white-space:nowrap } .light i { font-style:normal; font-weight:700; margin-right:5px }
.light.green i { color:var(--good) } .light.amber i { color:var(--warn) } .light.red i { color:var(--bad) }
figure { margin:12px 0; background:var(--panel); border:1px solid var(--line); border-radius:10px; padding:12px }
svg { width:100%; height:auto; display:block }
figcaption { color:var(--dim); font-size:13px } .key { margin-right:18px; display:inline-block }
.key svg { width:auto; height:12px; margin-right:6px; display:inline-block; vertical-align:-2px }
.strip { display:grid; grid-template-columns:112px 1fr; gap:12px; padding:12px 0; border-bottom:1px solid var(--line) }
.row { display:grid; gap:10px; align-items:start }
/* rows of strips */
.strip img,.strip svg { width:100%; border-radius:6px; display:block } .strip img { background:#000 }
.hit rect { fill:transparent } .hit .pop { display:none; pointer-events:none } .hit:hover .pop { display:block }
.hit .pad { fill:var(--panel); stroke:var(--line) } .hit .pop text { font-size:10.5px }
.shapes { position:absolute; width:0; height:0 } .strip svg { background:var(--panel) }
.strip img + img { margin-top:4px }
.strip small { color:var(--dim); overflow-wrap:anywhere; line-height:1.35; display:block; margin-top:4px }
pre { background:var(--panel); padding:14px;
  border-radius:10px; border:1px solid var(--line); overflow-x:auto; font-size:12.5px }
details { margin:6px 0 } summary { cursor:pointer; overflow-wrap:anywhere }
@media (max-width:760px) { main { padding:20px 14px 48px } h1 { font-size:22px; overflow-wrap:anywhere }
  .strip { grid-template-columns:1fr } .row { grid-template-columns:repeat(3,1fr) } .row.n4,.row.n2,.row.n1 {
  grid-template-columns:repeat(2,1fr) } figure .scroll svg { min-width:540px }
  .cards[class] { grid-template-columns:repeat(2,1fr); max-width:none }
  .cards > :last-child:nth-child(odd) { grid-column:1/-1 } }
@page { size:A4 landscape; margin:12mm }
@media print {
  * { print-color-adjust:exact; -webkit-print-color-adjust:exact } main { max-width:none; padding:0 }
  body { font-size:12px } h1 { font-size:20px } h2 { font-size:16px; margin-top:0 } p { max-width:none }
  h3 { font-size:13px; margin:14px 0 4px } a { color:inherit; text-decoration:none }
  .cards { margin:8px 0 } .card { padding:8px 14px } .card b { font-size:18px }
  .tight { font-size:9.5px } .tight th,.tight td { padding:3px 4px; white-space:normal } .notes { font-size:10px }
  .tight th:first-child,.tight td:first-child { position:static; background:none }
  pre { white-space:pre-wrap; overflow-wrap:anywhere; font-size:10px } details { display:none }
  h2,h3 { break-after:avoid } .strip,figure,tr,.card,.scroll { break-inside:avoid } .scroll { overflow:visible }
  .paged h2 { break-before:page } .paged nav + h2 { break-before:auto; margin-top:24px } figure { max-width:165mm }
  .hits { display:none } .strip { padding:6px 0 } .strip span { max-width:110px }
  .strip small { font-size:9px; line-height:1.25; display:block; margin-top:2px } figcaption { font-size:10px }
}
"""
_MOST_BESIDE = 6  # pictures or cards in a row; more go on in the next
_ROWS = "\n".join(f".n{n} {{ grid-template-columns:repeat({n},1fr) }}" for n in range(1, _MOST_BESIDE + 1))
_STYLE = PALETTE + SVG_STYLE + _RULES.replace("/* rows of strips */", _ROWS)


class Picture(NamedTuple):
    """A picture, or a drawing (SVG), with the words below it, and another between the two where there is one."""

    caption: str
    pixels: Pixels | str
    below: Pixels | None = None


class Entry(NamedTuple):
    """A line of the contents."""

    anchor: str
    text: str
    level: int


class Report:
    """Collects sections in order and writes them as one file; with contents, each section prints on a new page.

    Texts and notes go through `words`, by which a caller may call arguments otherwise.
    """

    def __init__(self, title: str, lead: str, *, contents: bool = False, words: Callable[[str], str] = str) -> None:
        self.title, self._words = title, words
        self._head = f"<h1>{escape(title)}</h1><p class='dim'>{escape(lead)}</p>"
        self._contents = contents
        self._entries: list[Entry] = []
        self._parts: list[str] = []

    def heading(self, text: str, explanation: str = "") -> None:
        self._heading(text, explanation, 2)

    def subheading(self, text: str, explanation: str = "") -> None:
        self._heading(text, explanation, 3)

    def text(self, paragraph: str) -> None:
        self._parts.append(f"<p>{escape(self._words(paragraph))}</p>")

    def notes(self, notes: Iterable[str]) -> None:
        """Small print."""
        lines = "".join(f"<li>{escape(self._words(note))}</li>" for note in notes)
        self._parts += [f"<ul class='notes'>{lines}</ul>"] if lines else []

    def cards(self, cards: dict[str, str]) -> None:
        """Large figures with their meaning below."""
        body = "".join(f"<div class='card'><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in cards.items())
        rows = math.ceil(len(cards) / _MOST_BESIDE) or 1
        self._parts.append(f"<div class='cards n{math.ceil(len(cards) / rows)}'>{body}</div>")

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        marks: Sequence[bool] | None = None,
        *,
        style: str = "",
    ) -> None:
        """Rows of text; `marks` colours a row's last cell as good or bad; styles are tight and words."""
        head = "".join(f"<th>{escape(c)}</th>" for c in columns)
        lines = []
        for index, row in enumerate(rows):
            mark = "" if marks is None else (" class='good'" if marks[index] else " class='bad'")
            cells = "".join(f"<td>{escape(c)}</td>" for c in row[:-1]) + f"<td{mark}>{escape(row[-1])}</td>"
            lines.append(f"<tr>{cells}</tr>")
        look = f" class='{style}'" if style else ""
        self._parts.append(f"<div class='scroll'><table{look}><tr>{head}</tr>{''.join(lines)}</table></div>")

    def comparison(self, table: Table) -> None:
        """A table of `compare`: blocks under their labels, the best in bold, the notes below."""
        arrows = {"low": "\u00a0↓", "high": "\u00a0↑", "": ""}
        head = "".join(f"<th>{escape(column.title + arrows[column.better])}</th>" for column in table.columns)
        lines = [line for block in table.blocks for line in _block_lines(table, block)]
        self._parts.append(f"<div class='scroll'><table class='tight'><tr>{head}</tr>{''.join(lines)}</table></div>")
        self.notes(table.notes)

    def chart(self, svg: str) -> None:
        """A chart made by `charts`."""
        self._parts.append(svg)

    def alert(self, title: str, sentences: Sequence[str]) -> None:
        """What nobody should overlook."""
        lines = "".join(f"<p>{escape(self._words(sentence))}</p>" for sentence in sentences)
        self._parts.append(f"<div class='alert'><p><b>{escape(title)}</b></p>{lines}</div>")

    def shapes(self, name: str, svg: str) -> str:
        """Keep what several drawings of the page have in common; what stands for it in them."""
        self._parts.append(f"<svg class='shapes' aria-hidden='true'><defs><g id='{name}'>{svg}</g></defs></svg>")
        return f"<use href='#{name}'/>"

    def strip(self, title: str, note: str, pictures: Sequence[Picture], told: tuple[Light, str] | None = None) -> None:
        """A row of pictures with a title at its left, and below it a light with the words of a verdict."""
        images = "".join(f"<span>{_images(p)}<small>{escape(p.caption)}</small></span>" for p in pictures)
        rows = math.ceil(len(pictures) / _MOST_BESIDE) or 1
        light = "" if told is None else f"<small>{light_html(*told)}</small>"
        self._parts.append(
            f"<div class='strip'><div><b>{escape(title)}</b><small>{escape(note)}</small>{light}</div>"
            f"<div class='row n{math.ceil(len(pictures) / rows)}'>{images}</div></div>"
        )

    def details(self, summary: str, facts: dict[str, Any]) -> None:
        """Facts that open on a click; they are not printed."""
        body = escape(json.dumps(facts, indent=2, ensure_ascii=False))
        self._parts.append(f"<details><summary>{escape(summary)}</summary><pre>{body}</pre></details>")

    def facts(self, facts: dict[str, Any]) -> None:
        """Add how the report was made."""
        self.heading("How this was made")
        self._parts.append(f"<pre>{escape(json.dumps(facts, indent=2, ensure_ascii=False))}</pre>")

    def html(self) -> str:
        body = "\n".join([self._head, *([_contents(self._entries)] if self._contents else []), *self._parts])
        look = " class='paged'" if self._contents else ""
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width,initial-scale=1'>"
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head>"
            f"<body><main{look}>{body}</main></body></html>\n"
        )

    def save(self, path: Path | str) -> Path:
        return write_text(path, self.html())

    def _heading(self, text: str, explanation: str, level: int) -> None:
        words = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower())
        anchor = "-".join([*words.split(), str(len(self._entries) + 1)])
        self._entries.append(Entry(anchor, text, level))
        body = f"<p class='dim'>{escape(explanation)}</p>" if explanation else ""
        self._parts.append(f"<h{level} id='{anchor}'>{escape(text)}</h{level}>{body}")


def _contents(entries: Sequence[Entry]) -> str:
    lines: list[str] = []
    for entry in entries:
        link = f"<a href='#{entry.anchor}'>{escape(entry.text)}</a>"
        if entry.level == 2 or not lines:
            lines.append(link)
        else:
            lines[-1] += f"<ul><li>{link}</li></ul>"
    return f"<nav><ol>{''.join(f'<li>{line}</li>' for line in lines)}</ol></nav>"


def _block_lines(table: Table, block: TableBlock) -> list[str]:
    """The rows of a block, below its label where there are several; what was published looks unlike results."""
    source = block.facts.get("source", "results")
    lines = [f"<tr class='block'><td colspan='{len(table.columns)}'>{escape(block.label)}</td></tr>"]
    lines = lines if len(table.blocks) > 1 else []
    best = table.best(block)
    for index, row in enumerate(block.rows):
        words = [escape(cell_text(cell, column)) for cell, column in zip(row, table.columns, strict=True)]
        words = [f"<b>{word}</b>" if (index, place) in best else word for place, word in enumerate(words)]
        look = "" if source == "results" else " class='published'"
        cells = zip(words, table.columns, strict=True)
        marked = (f"<td{_mark(word, column)}>{word}</td>" for word, column in cells)
        lines.append(f"<tr{look}>{''.join(marked)}</tr>")
    return lines


def _mark(word: str, column: Column) -> str:
    """Of a verdict in words, what is worse stands out."""
    return " class='bad'" if column.key == "verdict" and word.startswith("worse") else ""


def light_html(light: Light, text: str) -> str:
    """A light, as a sign and a colour, before its words."""
    return f"<span class='light {light}'><i>{SIGNS[light]}</i></span>{escape(text)}"


def _images(picture: Picture) -> str:
    if isinstance(picture.pixels, str):
        return picture.pixels
    shown = [pixels for pixels in (picture.pixels, picture.below) if pixels is not None]
    return "".join(f"<img alt='{escape(picture.caption)}' src='{data_uri(pixels)}'>" for pixels in shown)
