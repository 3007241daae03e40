"""Pages made from code are up to date, every link and picture named in the docs exists, and the site builds."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import scopereg
from scopereg import cli, networks
from scopereg.commands.output import manner_of
from scopereg.commands.parsing import parse_words
from scopereg.commands.verbs import VERBS
from scopereg.data.registry import ANATOMIES, DATASETS
from scopereg.options import options_of
from scopereg.registration import method
from scopereg.training.presets import PRESETS
from scopereg.training.settings import differences

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/scopereg/weights/*.md")])
REPOSITORY = "https://github.com/scopereg/scopereg"


def test_the_command_line_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_cli_reference", ROOT / "docs" / "make_cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text() == module.page(), "run python docs/make_cli_reference.py"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    """Those within the repository, by file and heading; others are not asked for."""
    links = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text())
    assert [link for link, anchor in links if not leads_somewhere(link, anchor, page)] == []


def leads_somewhere(link: str, anchor: str, page: Path) -> bool:
    """Whether file and heading exist that a link within the repository names."""
    inside = re.sub(rf"^({REPOSITORY}/blob|https://raw.githubusercontent.com/scopereg/scopereg)/main/", "", link)
    if "://" in inside or inside.startswith("mailto:"):
        return True
    file = (ROOT if inside != link else page.parent) / inside if inside else page
    return file.exists() and (not anchor or file.suffix != ".md" or anchor in anchors(file))


def anchors(page: Path) -> set[str]:
    """Headings as links name them, here and on the site."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_readme_reads_on_a_package_index() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 20
    assert [link for link in links if not link.startswith("https://")] == []


def test_the_repository_has_one_address() -> None:
    """pyproject.toml says it; who publishes elsewhere changes it there, and this test names what repeats it."""
    told = re.findall(r'^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert told == [REPOSITORY]
    files = [*PAGES, ROOT / "mkdocs.yml", ROOT / "CITATION.cff", ROOT / "docs/site_pages.py", *ROOT.glob("recipe/*")]
    files += [*ROOT.glob("notebooks/*.ipynb"), ROOT / "pyproject.toml"]
    hosts = {
        file: set(re.findall(r"https://(?:github\.com|scopereg\.github\.io)/[\w-]+", file.read_text()))
        for file in files
    }
    known = {"https://github.com/scopereg", "https://scopereg.github.io/scopereg"}
    assert {file: found - known for file, found in hosts.items() if found - known} == {}
    assert all(hosts[ROOT / name] for name in ("README.md", "mkdocs.yml", "CITATION.cff", "recipe/recipe.yaml"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, but for the outputs of the notebooks, which tests/test_notebooks.py runs."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    told = os.environ | {"SCOPEREG_NOTEBOOKS": "off", "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_the_site_needs_no_net(site: Path) -> None:
    """What a page loads by itself lies beside it; links to other places are just links."""
    loaded = []
    pages = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    for page in pages:
        text = (site / page).read_text(encoding="utf-8")
        loaded += re.findall(r"<(?:script|img|iframe|source|video)[^>]+src=\"?(https?:[^\" >]+|//[^\" >]+)", text)
        loaded += re.findall(
            r"<link[^>]+rel=\"?(?:stylesheet|preload|icon|preconnect)[^>]+href=\"?(https?:[^\" >]+)", text
        )
    for style in site.rglob("*.css"):
        loaded += re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')]+)", style.read_text(encoding="utf-8"))
    assert loaded == []
    assert len(pages) > 40
    assert "iframe-worker.js" in (site / "index.html").read_text(encoding="utf-8")


def test_the_site_shows_every_page_and_public_name(site: Path) -> None:
    for page in ROOT.glob("docs/**/*.md"):
        assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page
    documented = "".join(path.read_text(encoding="utf-8") for path in site.glob("api/*.html"))
    for package in (scopereg, scopereg.io):
        for name in set(package.__all__) - {"__version__"}:
            assert re.search(rf'id="scopereg\.[\w.]*\b{name}"', documented), name


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


def commands_of(text: str) -> list[str]:
    """Command lines of scopereg in blocks and cells, without what follows a #."""
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(block for language, block in blocks if not language).replace("\\\n", " ").splitlines()
    return [line.partition(" # ")[0].strip() for line in lines if line.strip().startswith("scopereg ")]


def cells_of(notebook: Path) -> str:
    sources = ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"]]
    lines = "\n".join(sources).replace("\\\n", " ").splitlines()
    return "".join(f"```\n{line.strip()[1:]}\n```\n" for line in lines if line.strip().startswith("!"))


COMMANDS = {page: commands_of(page.read_text()) for page in PAGES if page.name != "CHANGELOG.md"}
COMMANDS |= {path: commands_of(cells_of(path)) for path in ROOT.glob("notebooks/*.ipynb")}
COMMANDS = {page: found for page, found in COMMANDS.items() if found}


@pytest.mark.parametrize("page", COMMANDS, ids=[str(page.relative_to(ROOT)) for page in COMMANDS])
def test_commands_in_the_docs_are_understood(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their verbs, options and values, under the names that these have now; `...` stands for more."""
    for command in COMMANDS[page]:
        words = [word for word in shlex.split(re.sub(r"\{[^}]*\}", "1", command))[1:] if word != "..."]
        _, words = manner_of(words)
        name, rest = cli._find_verb(words)
        assert name is not None, command
        if "..." in command:
            parse_words(VERBS[name].options, rest, name, lenient=True)
        elif "--help" not in rest:
            cli.parse(name, rest)
        assert capsys.readouterr().err == "", command


@pytest.mark.parametrize("page", COMMANDS, ids=[str(page.relative_to(ROOT)) for page in COMMANDS])
def test_options_in_the_text_exist(page: Path) -> None:
    """`--flag` between backticks is one of some verb, of every verb, of a script in benchmarks/, or 3D Slicer's."""
    known = {f"--{option.name}" for verb in VERBS.values() for option in options_of(verb.options)}
    known |= {f"--no-{option.name}" for verb in VERBS.values() for option in options_of(verb.options)}
    known |= {alias for verb in VERBS.values() for option in options_of(verb.options) for alias in option.aliases}
    scripts = "".join(script.read_text() for script in [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/live/*.py")])
    known |= {"--additional-module-paths", *re.findall(r'add_argument\(\s*"(--[\w-]+)"', scripts)}
    known |= {"--json", "--verbose", "--quiet", "--log", "--config", "--help", "--version"}
    text = page.read_text()
    spans = [span for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text) if re.match(r"scopereg |--", span)]
    named = {flag for span in spans for flag in re.findall(r"(?:^|(?<= ))--[a-z][\w-]*", span)}
    assert named - known == set()


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
