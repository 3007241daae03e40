"""Pages that are made from code are up to date, and every link and picture named in the docs exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from scopereg import networks
from scopereg.data.registry import ANATOMIES, DATASETS
from scopereg.registration import method
from scopereg.training.presets import PRESETS
from scopereg.training.settings import differences

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])


def test_the_command_line_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_cli_reference", ROOT / "docs" / "make_cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python docs/make_cli_reference.py"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


def test_code_named_in_the_method_page_exists() -> None:
    """The page says where each equation lives: a renamed class or function must not leave it behind."""
    text = (ROOT / "docs" / "method.md").read_text()
    named = re.findall(r"`(networks|ops|geometry|training)/([\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 8
    for package, file, symbol in named:
        source = (ROOT / "src" / "scopereg" / package / file).read_text()
        assert re.search(rf"^(class|def) {symbol}\b|^    def {symbol}\b", source, re.MULTILINE), (file, symbol)


def test_the_presets_on_the_training_page_are_the_presets() -> None:
    rows = re.findall(r"\| `--([\w-]+)` \| (\S+) \| (\S+) \|", (ROOT / "docs" / "training.md").read_text())
    fast, paper = (PRESETS[name] for name in ("fast", "paper"))
    names = [name for name in differences(fast, paper) if name != "preset"]
    assert rows == [(n.replace("_", "-"), str(getattr(fast, n)), str(getattr(paper, n))) for n in names]


BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a block registers is forgotten after it, as if it had run in a Python of its own."""
    monkeypatch.setattr(networks, "_NETWORKS", dict(networks._NETWORKS))
    monkeypatch.setattr(method, "_LIKENESSES", dict(method._LIKENESSES))
    for registry in (DATASETS, ANATOMIES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_from_outside", set(registry._from_outside))


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("block", BLOCKS)
def test_python_in_the_docs_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block, "docs", "exec"), {})
    assert capsys.readouterr().out.strip()
