"""One self-contained HTML page: cards, tables, charts, pictures and how it was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from scopereg.io.files import write_text
from scopereg.io.pictures import Pixels, data_uri

_STYLE = """
:root { --ink:#e8eaed; --dim:#9aa0a6; --back:#111418; --panel:#1a1f25; --line:#2c333b; --good:#4cc38a; --bad:#ff7a59; }
* { box-sizing:border-box } body { margin:0; background:var(--back); color:var(--ink);
  font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif }
main { max-width:1080px; margin:0 auto; padding:32px 20px 64px } h1 { font-size:26px; margin:0 0 4px }
h2 { font-size:18px; margin:36px 0 10px } p { margin:6px 0; max-width:72ch } .dim { color:var(--dim) }
.cards { display:flex; flex-wrap:wrap; gap:12px; margin:20px 0 } .card { background:var(--panel);
  border:1px solid var(--line); border-radius:10px; padding:12px 18px; min-width:150px }
.card b { display:block; font-size:24px; font-weight:650 } .card span { color:var(--dim); font-size:13px }
table { border-collapse:collapse; width:100%; font-variant-numeric:tabular-nums } th,td { text-align:right;
  padding:6px 10px; border-bottom:1px solid var(--line) } th { color:var(--dim); font-weight:500 }
th:first-child,td:first-child { text-align:left } .scroll { overflow-x:auto }
.good { color:var(--good) } .bad { color:var(--bad) }
figure { margin:12px 0; background:var(--panel); border:1px solid var(--line); border-radius:10px; padding:12px }
svg { width:100%; height:auto; display:block } svg text { fill:var(--dim); font-size:12px } .end { text-anchor:end }
.middle { text-anchor:middle } .grid { stroke:var(--line) } .mark { stroke:var(--dim); stroke-dasharray:2 4 }
figcaption { color:var(--dim); font-size:13px } .key { margin-right:18px } .key i { display:inline-block; width:12px;
  height:12px; border-radius:3px; margin-right:6px; vertical-align:-1px }
.strip { display:grid; grid-template-columns:110px repeat(auto-fit,minmax(130px,1fr)); gap:10px; align-items:start;
  padding:10px 0; border-bottom:1px solid var(--line) }
.strip img { width:100%; border-radius:6px; background:#000; display:block }
.strip small { color:var(--dim) } pre { background:var(--panel); padding:14px;
  border-radius:10px; border:1px solid var(--line); overflow-x:auto; font-size:12.5px }
@media (max-width:640px) { .strip { grid-template-columns:repeat(2,1fr) } .strip > div { grid-column:1/-1 } }
"""


class Picture(NamedTuple):
    """A picture with the words below it."""

    caption: str
    pixels: Pixels


class Report:
    """Collects sections in order and writes them as one file."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self._parts = [f"<h1>{escape(title)}</h1><p class='dim'>{escape(lead)}</p>"]

    def heading(self, text: str, explanation: str = "") -> None:
        self._parts.append(
            f"<h2>{escape(text)}</h2>" + (f"<p class='dim'>{escape(explanation)}</p>" if explanation else "")
        )

    def cards(self, cards: dict[str, str]) -> None:
        """Large figures with their meaning below."""
        body = "".join(f"<div class='card'><b>{escape(v)}</b><span>{escape(k)}</span></div>" for k, v in cards.items())
        self._parts.append(f"<div class='cards'>{body}</div>")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], marks: Sequence[bool] | None = None) -> None:
        """Rows of text; `marks` colours a row's last cell as good or bad."""
        head = "".join(f"<th>{escape(c)}</th>" for c in columns)
        lines = []
        for index, row in enumerate(rows):
            style = "" if marks is None else (" class='good'" if marks[index] else " class='bad'")
            cells = "".join(f"<td>{escape(c)}</td>" for c in row[:-1]) + f"<td{style}>{escape(row[-1])}</td>"
            lines.append(f"<tr>{cells}</tr>")
        self._parts.append(f"<div class='scroll'><table><tr>{head}</tr>{''.join(lines)}</table></div>")

    def chart(self, svg: str) -> None:
        """A chart made by `charts`."""
        self._parts.append(svg)

    def strip(self, title: str, note: str, pictures: Sequence[Picture]) -> None:
        """A row of pictures with a title at its left."""
        images = "".join(
            f"<span><img alt='{escape(p.caption)}' src='{data_uri(p.pixels)}'><small>{escape(p.caption)}</small></span>"
            for p in pictures
        )
        self._parts.append(
            f"<div class='strip'><div><b>{escape(title)}</b><br><small>{escape(note)}</small></div>{images}</div>"
        )

    def facts(self, facts: dict[str, Any]) -> None:
        """How the report was made."""
        self.heading("How this was made")
        self._parts.append(f"<pre>{escape(json.dumps(facts, indent=2, ensure_ascii=False))}</pre>")

    def html(self) -> str:
        body = "\n".join(self._parts)
        return (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width,initial-scale=1'>"
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head><body><main>{body}</main></body></html>\n"
        )

    def save(self, path: Path | str) -> Path:
        return write_text(path, self.html())
