"""Notebooks as pages: run from the first cell to the last, and written as Markdown with what they printed and drew."""

from __future__ import annotations

import base64
import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat

SECONDS = 600  # a notebook; a quiet laptop takes a tenth


def run_notebook(path: Path, folder: Path) -> Any:
    """The notebook with its outputs, run in a folder of its own; what fails in a cell is raised."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    beside = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    # `scopereg` in a cell is the one beside this Python; it draws no bars, which a page would show step by step.
    told = {"PATH": beside, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "92"}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.extra_arguments = ["--log-level=ERROR"]
    client.execute(env=os.environ | told)
    return notebook


def page_of(path: Path, *, run: bool) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by name."""
    if run:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run_notebook(path, Path(folder))
    else:
        notebook = nbformat.read(path, as_version=4)
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in _joined(cell.outputs):
            name = f"{path.stem}_{len(pictures)}.png"
            parts.append(_output(output, name, pictures))
    return "\n\n".join(part for part in parts if part) + "\n", pictures


def _joined(outputs: list[Any]) -> list[Any]:
    """Pieces of one stream in one."""
    whole: list[Any] = []
    for output in outputs:
        if whole and output.output_type == whole[-1].output_type == "stream":
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def _output(output: Any, name: str, pictures: dict[str, bytes]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        pictures[name] = base64.b64decode(data["image/png"])
        return f"![what the cell draws]({name})"
    if "text/html" in data:
        # One block for Markdown: no empty lines inside, and no indented ones, which would be code.
        return '<div class="output">' + re.sub(r"\n\s*", " ", data["text/html"]) + "</div>"
    text = output.get("text") or data.get("text/plain", "")
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r(?!\n)", "", text).rstrip()
    return f'<pre class="output">{html.escape(plain)}</pre>'.replace("\n\n", "\n&#8203;\n") if plain else ""
