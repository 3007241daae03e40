"""Page: finished results as one HTML file that needs no server and no network; also what notebooks show."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from scopereg.errors import ScopeRegError
from scopereg.images import Frame, Volume
from scopereg.io.files import write_text
from scopereg.io.stored import StoredFrame, StoredVolume
from scopereg.registration.result import Assessment, Result
from scopereg.viewer.overlays import NOTHING_OVER, Overlays
from scopereg.viewer.packets import base_state, number, packet_of
from scopereg.viewer.path import Step, path_of
from scopereg.viewer.voxels import voxels_of

_STATIC = files("scopereg") / "viewer" / "static"
_IMPORT = re.compile(r'^import (?:\{ (?P<names>[^}]+) \}|\* as (?P<all>\w+)) from "\./(?P<module>\w+)\.js";\n', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.M)
_STYLE = re.compile(r'<link rel="stylesheet" href="static/(?P<name>\w+\.css)"(?P<rest>[^>]*)>')
MOST_RESULTS = 500  # of a page: about 10 to 40 MB of frames
_HEIGHT_PX = 800  # of the frame in a notebook


@dataclass(frozen=True)
class Shown:
    """A page that was shown: in a notebook by itself, elsewhere as a file in the browser."""

    html: str
    path: Path | None = None

    def __repr__(self) -> str:
        return f"Shown({self.path})" if self.path else f"Shown({len(self.html) / 1e6:.1f} MB)"

    def _repr_html_(self) -> str:
        # Its scripts run in a frame of their own that can reach neither the notebook nor the network;
        # they may offer files that they made, which a person takes or not.
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{escape(self.html)}" title="scopereg" '
            f'width="100%" height="{_HEIGHT_PX}" frameborder="0" allowfullscreen></iframe>'
        )


def show(results: Sequence[Result]) -> Shown:
    """Show results: inside the notebook, or else in the browser by a temporary file."""
    html = page_html(results)
    if _in_notebook():
        return Shown(html)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", prefix="scopereg-", suffix=".html", delete=False) as file:
        file.write(html)
    path = Path(file.name)
    webbrowser.open(path.as_uri())
    return Shown(html, path)


def write_page(
    path: Path | str,
    results: Sequence[Result],
    *,
    names: Sequence[str] = (),
    volume: str = "",
    overlays: Overlays = NOTHING_OVER,
    steps: Sequence[Step] = (),
    notes: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write results in one volume as one HTML file, with what lies over it.

    `names` are those of the frames, `volume` that of the volume; `steps` tell when frames came, to play them,
    `notes` are those of a `Notebook`.
    """
    return write_text(path, page_html(results, names=names, volume=volume, overlays=overlays, steps=steps, notes=notes))


def page_html(
    results: Sequence[Result],
    *,
    names: Sequence[str] = (),
    volume: str = "",
    overlays: Overlays = NOTHING_OVER,
    steps: Sequence[Step] = (),
    notes: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of the viewer with the results inside."""
    steps = steps or [Step(result.pose, str(row)) for row, result in enumerate(results)]
    reference = _common_volume(results)
    labels = list(names) or _names(results)
    voxels = overlays.over(reference, voxels_of(reference, volume or _file_name(reference) or "volume", 1))
    state = base_state(
        "page",
        volume=voxels.state(),
        method=" / ".join(dict.fromkeys(result.method for result in results)),
        notes=list(notes),
        results=[{"name": label, **Assessment.of(result).facts} for label, result in zip(labels, results, strict=True)],
    )
    packets = [_packet(result, row, labels[row], steps[row].time_s) for row, result in enumerate(results)]
    data = {
        "state": state,
        "voxels": _packed64(voxels.packed),
        "labels": "" if voxels.overlay is None else _packed64(voxels.overlay.packed_labels),
        "path": path_of(steps),
        "updates": [_text64(packet) for packet in packets],
    }
    return _assemble(data)


def _common_volume(results: Sequence[Result]) -> Volume:
    if not results:
        raise ScopeRegError("there is no result", where="write_page(results)", fix="pass at least one")
    if len(results) > MOST_RESULTS:
        raise ScopeRegError(
            f"{len(results)} results are too many for one page",
            where="write_page(results)",
            fix=f"choose at most {MOST_RESULTS}, or look at them with scopereg view",
        )
    for result in results:
        missing = [name for name in ("frame", "volume") if getattr(result, name) is None]
        if missing:
            raise ScopeRegError(
                f"the result does not know its {' and '.join(missing)}",
                where="Result.show",
                fix="register with scopereg.register(frame, volume), "
                "or add them: dataclasses.replace(result, frame=frame, volume=volume).show()",
            )
    first = results[0].volume
    assert first is not None
    for result in results[1:]:
        other = result.volume
        assert other is not None
        if other is not first and not (other.shape == first.shape and bool((other.array == first.array).all())):
            raise ScopeRegError(
                "the results are of different volumes", where="write_page(results)", fix="write a page for each"
            )
    return first


def _packet(result: Result, row: int, name: str, time_s: float) -> bytes:
    assert result.frame is not None
    more = {
        "number": row + 1,
        "frame_number": row,
        "result": row,
        "time_s": number(time_s, 6),
        "register_ms": number(result.time_ms, 2),
    }
    return packet_of(result.frame, result, generation=1, name=name, more=more)


def _names(results: Sequence[Result]) -> list[str]:
    """The files that the frames came from, with numbers where one holds several or nobody knows."""
    files = [_file_name(result.frame) or "frame" for result in results]
    if len(set(files)) == len(files):
        return files
    return [f"{name} {row}" for row, name in enumerate(files, 1)]


def _file_name(image: Frame | Volume | None) -> str:
    return image.path.name if isinstance(image, StoredFrame | StoredVolume) else ""


def _assemble(data: dict[str, Any]) -> str:
    """index.html with style, scripts and data inside; scripts and styles other than these are refused."""
    html = _static("index.html")
    html, styles = _with_styles(html)
    script = bundle("main")
    allowed = " ".join(f"'{_hash(style)}'" for style in styles)
    policy = (
        f"default-src 'none'; img-src data:; style-src {allowed}; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # Within a script element only "<" can end it; in JSON it may be written otherwise.
    embedded = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    icon = _text64(_static("icon.svg").encode())
    parts = {
        '<meta charset="utf-8">': (
            f'<meta charset="utf-8">\n  <meta http-equiv="Content-Security-Policy" content="{policy}">'
        ),
        'href="static/icon.svg"': f'href="data:image/svg+xml;base64,{icon}"',
        '  <script type="module" src="static/main.js"></script>\n': "",
        "</body>": (
            f'<script id="embedded" type="application/json">{embedded}</script>\n'
            f'<script type="module">{script}</script>\n</body>'
        ),
    }
    for old, new in parts.items():
        assert html.count(old) == 1, old
        html = html.replace(old, new)
    return html


def _with_styles(html: str) -> tuple[str, list[str]]:
    """Style sheets inside instead of links to them, with what else their elements say; and these sheets."""
    sheets = {found["name"]: _static(found["name"]) for found in _STYLE.finditer(html)}
    assert sheets
    return _STYLE.sub(lambda found: f"<style{found['rest']}>{sheets[found['name']]}</style>", html), list(
        sheets.values()
    )


def bundle(name: str) -> str:
    """A module of the page and all that it imports as one script: files cannot import each other from a disk."""
    done: dict[str, str] = {}
    _collect(name, done)
    parts = "\n".join(f"// {module}.js\n(() => {{\n{code}}})();" for module, code in done.items())
    script = f"const modules = {{}};\n{parts}\n"
    assert "</script" not in script.lower()
    assert not re.search(r"^\s*(import|export)\b", script, re.M), "an import or export that is not understood"
    return script


def _collect(name: str, done: dict[str, str]) -> None:
    """Modules in an order in which each comes after those that it needs, their imports and exports as plain objects."""
    if name in done:
        return
    code = _static(f"{name}.js")
    for found in _IMPORT.finditer(code):
        _collect(found["module"], done)
    code = _IMPORT.sub(
        lambda found: (
            f"const {'{ ' + found['names'] + ' }' if found['names'] else found['all']} = modules.{found['module']};\n"
        ),
        code,
    )
    exported = ", ".join(_EXPORT.findall(code))
    done[name] = f"{_EXPORT.sub('', code)}modules.{name} = {{ {exported} }};\n"


def _static(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _packed64(packed: bytes) -> str:
    """Voxels packed anew, as tightly as pays, and the same whenever they are."""
    return _text64(gzip.compress(gzip.decompress(packed), 6, mtime=0)) if packed else ""


def _text64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter, which shows what a cell gives back."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})
