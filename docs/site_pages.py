"""What mkdocs does not know by itself: pages from outside of docs/, notebooks, and the links between all of them."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

import notebook_pages

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://github.com/scopereg/scopereg"  # as in pyproject.toml; tests/test_docs.py compares them
FILES, PICTURES = f"{REPOSITORY}/blob/main/", "https://raw.githubusercontent.com/scopereg/scopereg/main/"

ELSEWHERE = {  # file of the repository: its page
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "src/scopereg/weights/universal.md": "models/universal.md",
}
NOTEBOOKS = {f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in ROOT.glob("notebooks/*.ipynb")}
PAGES = ELSEWHERE | NOTEBOOKS
ORIGINS = {page: file for file, page in PAGES.items()}
LINK = re.compile(r"(\]\()([^()\s#]*)(#[^()\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from elsewhere. Notebooks are run for it, which takes a minute, unless SCOPEREG_NOTEBOOKS=off."""
    from mkdocs.structure.files import File

    for file, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text(encoding="utf-8")))
    run = os.environ.get("SCOPEREG_NOTEBOOKS") != "off"
    for file, page in NOTEBOOKS.items():
        text, pictures = notebook_pages.page_of(ROOT / file, run=run)
        files.append(File.generated(config, page, content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to the page of a file where it has one, and else to the repository."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]  # of which it is the only page
    return LINK.sub(lambda found: _led(found, uri), markdown)


def _led(found: re.Match[str], uri: str) -> str:
    opening, target, anchor, closing = found[1], found[2], found[3] or "", found[4]
    file = _file_of(target, ORIGINS.get(uri, f"docs/{uri}"))
    if file is None or uri in NOTEBOOKS.values():
        return found[0]
    page = PAGES.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if page is None or page.endswith(".py"):
        return f"{opening}{FILES}{file}{anchor}{closing}"
    return f"{opening}{posixpath.relpath(page, posixpath.dirname(uri) or '.')}{anchor}{closing}"


def _file_of(target: str, origin: str) -> str | None:
    """The file of the repository that a link means, if it means one."""
    for start in (FILES, PICTURES):
        if target.startswith(start):
            return target.removeprefix(start)
    if not target or "://" in target or target.startswith("mailto:"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
