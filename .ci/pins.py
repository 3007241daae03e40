"""The pinned set: what `make test` and `make docs` install, what that brings included, with the hashes of all files.

.venv/bin/python .ci/pins.py                 writes constraints-hashes.txt, from what is installed and from the index
.venv/bin/python .ci/pins.py --of all        prints the part of it that users of `scopereg[all]` get, without the index
"""

from __future__ import annotations

import argparse
import re
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parent.parent
PINS = ROOT / "constraints-hashes.txt"
INDEX = "https://pypi.org/simple"
HEAD = """\
# Made by .ci/pins.py; do not edit. What `make test` and `make docs` install on Linux with Python 3.11, and the SHA-256
# of every file that the index has of it, for any system. torch's are those of PyPI: CONTRIBUTING.md tells of its
# other builds.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", metavar="EXTRA", help="print the pins of this extra alone, from the file")
    extra = parser.parse_args().of
    if extra is not None:
        pinned = dict(_pinned(PINS.read_text()))
        print("".join(pinned[name] for name, _ in sorted(_closure({extra})) if name in pinned), end="")
        return 0
    lines = []
    for name, version in sorted(_closure({"dev", "docs"})):
        hashes = sorted(_hashes(name, version))
        if not hashes:
            sys.exit(f"the index has no files of {name} {version}")
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in hashes)]) + "\n")
    PINS.write_text(HEAD + "".join(lines))
    return 0


def _closure(extras: set[str]) -> set[tuple[str, str]]:
    """Names and versions of all that is installed for scopereg with these extras."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [("scopereg", extra) for extra in {"", *extras}]
    while waiting:
        name, extra = waiting.pop()
        try:
            requires = _own(extra) if name == "scopereg" else distribution(name).requires or ()
        except PackageNotFoundError:
            continue  # of another system, or of an extra that is not installed
        if name != "scopereg":
            found[name] = distribution(name).version.partition("+")[0]  # torch 2.13.0+cpu is a build of 2.13.0
        for needed in map(Requirement, requires):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                new = {(canonicalize_name(needed.name), more) for more in {"", *needed.extras}} - seen
                seen |= new
                waiting += new
    return set(found.items())


def _own(extra: str) -> list[str]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted: list[str] = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return wanted


def _hashes(name: str, version: str) -> Iterator[str]:
    """Of every file of a version; those that were withdrawn are left out."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    for link, digest, rest in re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"([^>]*)>', page):
        file = link.rsplit("/", 1)[-1]
        try:
            known = parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
        except ValueError:  # eggs and installers of old
            continue
        if str(known) == version and "data-yanked" not in rest:
            yield digest


def _pinned(text: str) -> Iterator[tuple[str, str]]:
    """Each package's lines by its name."""
    for block in re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", text, re.MULTILINE):
        yield block.partition("==")[0], block


if __name__ == "__main__":
    sys.exit(main())
