"""The wheel works on a machine that has nothing: built, installed into a clean environment, and run from there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml

import scopereg
from scopereg.networks.weights import shipped

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_is_pure_python_and_small_besides_its_weights(wheel: Path) -> None:
    assert wheel.name.endswith("py3-none-any.whl")
    entries = zipfile.ZipFile(wheel).infolist()
    names = [entry.filename for entry in entries]
    weights = [entry for entry in entries if entry.filename.endswith(".safetensors")]
    assert {Path(entry.filename).stem for entry in weights} == {"universal", "universal.fine"}
    assert max(entry.file_size for entry in weights) <= 16 * 10**6
    assert wheel.stat().st_size - sum(entry.compress_size for entry in weights) < 3 * 2**19  # bytes of code
    assert [name for name in names if name.startswith("scopereg/weights/") and name.endswith(".md")] == [
        f"scopereg/weights/{name}.md" for name in shipped()
    ]
    assert "scopereg/py.typed" in names
    assert not [name for name in names if name.endswith((".so", ".pyd", ".dylib", ".pyc"))]


def test_the_wheel_is_fit_for_a_package_index(wheel: Path) -> None:
    """Its description renders, and its metadata has no field that an index refuses."""
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", str(wheel)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_one_version_everywhere() -> None:
    version = scopereg.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n  version: {version}\n" in (ROOT / "recipe" / "recipe.yaml").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1].rstrip(",") == version


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    """Under the names of conda-forge; it cannot be built here."""
    import tomllib

    named = {"torch": "pytorch", "zlib-ng": "python-zlib-ng"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {f"python {project['requires-python']}"}
    for line in project["dependencies"]:
        line, _, _ = line.partition(";")  # a package for all machines asks the same of all
        name, least = re.split("(?=[<>=])", line.lower(), maxsplit=1)
        wanted.add(f"{named.get(name, name)} {least}")
    recipe = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text())
    assert set(recipe["requirements"]["run"]) == wanted
    assert recipe["about"]["license"] == project["license"]
    assert recipe["about"]["repository"] == project["urls"]["Repository"]
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == project["scripts"]


def test_the_workflows_name_what_there_is() -> None:
    """Targets of make, extras, oldest and newest Python; they cannot be run here."""
    workflows = {path.stem: path.read_text() for path in ROOT.glob(".github/workflows/*.yml")}
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    called = re.findall(r"- run: make (\w+)", "".join(workflows.values()))
    assert set(called) == {"test", "wheel", "docs"}
    assert set(called) <= set(targets)
    matrix = yaml.safe_load(workflows["ci"])["jobs"]["test"]["strategy"]["matrix"]
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    known = (ROOT / "pyproject.toml").read_text()
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', known)
    assert matrix["python"] == [classified[0], classified[-1]]
    assert f'requires-python = ">={classified[0]}"' in known
    oldest = re.search(r'"torch>=(\S+)"', known)
    assert oldest is not None
    assert matrix["include"][0]["torch"] == f"=={oldest[1]}.*"
    assert all(
        re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", use) for use in re.findall(r"uses: (\S+)", "".join(workflows.values()))
    )


def test_importing_the_numeric_core_needs_torch_and_numpy_alone() -> None:
    """These modules run on machines where nothing else can be installed."""
    modules = (
        "geometry",
        "ops",
        "ops.ssim",
        "networks",
        "training.losses",
        "evaluation.metrics",
        "data.phantom",
        "data.poses",
        "data.worlds",
        "data.examples",
        "selftest",
    )
    heavy = {
        "SimpleITK",
        "pydicom",
        "rich",
        "yaml",
        "scipy",
        "matplotlib",
        "pandas",
        "numba",
        "skimage",
        "onnx",
    }
    load = f"import sys\nfor name in {modules!r}: __import__('scopereg.' + name)\n"
    code = load + f"print(sorted({heavy!r} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"


LIGHT = [
    *(f"scopereg.training.{name}" for name in ("settings", "source", "step", "loop", "validation", "worlds")),
    *(f"scopereg.training.{name}" for name in ("task", "fitting")),
    *("universal", "quick_sets", "training"),  # benchmarks that run beside the training, on the same machines
]


@pytest.fixture(scope="module")
def not_imported() -> dict[str, str]:
    """What of LIGHT cannot be imported with Lightning and safetensors alone, and why; in one process.

    It runs on clusters where nothing else can be installed. Lightning itself loads yaml, so it comes first.
    """
    absent = ("SimpleITK", "pydicom", "rich", "yaml", "scipy", "matplotlib", "pandas", "skimage", "onnx")
    code = (
        "import json, sys, traceback, lightning_fabric\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"
        f"sys.path.append({str(ROOT / 'benchmarks')!r})\n"
        "failed = {}\n"
        f"for name in {LIGHT!r}:\n"
        "    try: __import__(name)\n"
        "    except ImportError: failed[name] = traceback.format_exc()\n"
        "print(json.dumps(failed))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    found: dict[str, str] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize("name", LIGHT)
def test_importing_the_training_needs_lightning_and_safetensors_besides(
    name: str, not_imported: dict[str, str]
) -> None:
    assert name not in not_imported, not_imported[name]


def test_training_without_lightning_tells_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['lightning_fabric'] = None\nfrom scopereg.cli import main\nsys.exit(main(['train']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'scopereg[train]'" in result.stderr
    assert "Traceback" not in result.stderr


def borrow_torch(environment: Path) -> None:
    """The files of torch alone as links to those of these tests: a gigabyte need not be unpacked once more."""
    own = distribution("torch")
    (site,) = environment.glob("lib/python*/site-packages")
    for name in {file.parts[0] for file in own.files or ()} - {".."}:
        (site / name).symlink_to(own.locate_file(name))


@pytest.mark.slow
def test_the_wheel_runs_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    folder = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    # The pip of these tests, and nothing compiled that is never imported: both only cost time.
    pip = [sys.executable, "-m", "pip", "--python", folder / "python"]
    if sys.platform != "win32":
        borrow_torch(tmp_path / "venv")
    install = [*pip, "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, wheel], check=True)
    result = subprocess.run(
        [folder / "scopereg", "doctor", "--json"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    facts = json.loads(result.stdout)
    assert all(check["ok"] for check in facts["self_test"])
    assert None not in {**facts["core"], **facts["faster"]}.values()
    assert facts["backends"]["cpu"]["cpu"] == "ready"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_the_doctor_asks_for_what_the_package_declares() -> None:
    import tomllib

    from scopereg.commands.doctor import CORE, EXTRAS, FASTER

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        extra: {re.split("[<>=]", line)[0].lower() for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    core = {re.split("[<>=]", line)[0].lower() for line in project["dependencies"]}
    assert core == {name.lower() for name in (*CORE, *FASTER)}
    assert {extra: names[extra] for extra in EXTRAS} == {extra: set(found) for extra, found in EXTRAS.items()}
    assert names["all"] == {f"scopereg[{','.join(EXTRAS)}]"}


def test_pins_with_hashes_are_those_without() -> None:
    """After a change of constraints.txt: make pins."""
    pins = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    hashed = (ROOT / "constraints-hashes.txt").read_text()
    blocks = re.findall(r"^([\w.-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", hashed, re.MULTILINE)
    known = {name: version for name, version, _ in blocks}
    assert len(known) == len(re.findall(r"^[^#\s]", hashed, re.MULTILINE))  # none without a hash
    wanted = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pins}
    assert {name: known.get(name) for name in wanted if name != "itk-elastix"} == {
        name: version for name, version in wanted.items() if name != "itk-elastix"
    }
