"""The command line as a user meets it."""

from __future__ import annotations

import io
import pkgutil
import subprocess
import sys
from dataclasses import is_dataclass, replace
from pathlib import Path

import pytest
from rich.console import Console

from scopereg import __version__, commands
from scopereg.cli import VERBS, main, parse
from scopereg.commands import evaluate
from scopereg.commands.demo import DemoOptions
from scopereg.commands.groups import GROUPS, groups_of
from scopereg.commands.train import TrainOptions
from scopereg.errors import ScopeRegError
from scopereg.options import options_of
from scopereg.training.presets import PRESETS
from scopereg.training.settings import TrainSettings


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "scopereg", *words], capture_output=True, text=True, check=False)


def test_help_lists_every_verb_and_loads_nothing_heavy() -> None:
    """Help answers in a few hundredths of a second because it imports nothing; a clock would only measure load."""
    code = (
        "import sys; from scopereg.cli import main; main(['--help']);"
        "print({'torch', 'numpy', 'SimpleITK', 'rich', 'yaml'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("set()")
    assert all(verb in result.stdout for verb in VERBS)


def test_options_of_every_verb_load_nothing_heavy() -> None:
    code = (
        "import sys; from scopereg.cli import VERBS; [verb.options for verb in VERBS.values()];"
        "print({'torch', 'numpy', 'SimpleITK', 'pydicom'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("verb", "shown"),
    [
        ("demo", ("--anatomy", "--output", "--frames", "--seed", "--config")),
        ("train", ("camus", "--data", "--output", "--preset", "single options win over it", "--learning-rate")),
    ],
)
def test_help_of_a_verb_loads_no_torch_and_shows_every_option(verb: str, shown: tuple[str, ...]) -> None:
    code = f"import sys\nfrom scopereg.cli import main\nmain([{verb!r}, '--help'])\nprint('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip().endswith("False")
    told = " ".join(result.stdout.split())
    assert all(words in told for words in shown)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", VERBS)
def test_help_fits_the_terminal_and_shows_what_matters_first(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= min(width, 100)
    assert "None" not in shown
    assert "PosixPath" not in shown
    options = options_of(VERBS[name].options)
    for option in options:
        assert (option.shown if option.positional else f"-{option.name}".replace("-no-", "-")) in shown.replace(
            "--no-", "--"
        ).replace("--[no-]", "--")
    groups = groups_of(name, VERBS[name].options)
    assert sum(map(len, groups.values())) == len(options)  # each once
    flags = [option for option in options if not option.positional]
    assert len(flags) <= 10 or 3 < len(groups["used most"]) <= 10


def test_help_tells_how_to_say_no_to_what_is_done_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["register", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--[no-]refine" in shown
    assert "--[no-]fallback" in shown


def test_a_file_in_the_place_of_a_verb_is_registered_by_the_next_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("frame.dcm").touch()
    assert main(["frame.dcm", "volume.nii.gz"]) == 2
    assert "write scopereg register frame.dcm volume.nii.gz" in capsys.readouterr().err


def test_help_before_a_verb_is_that_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "data", "check"]) == 0
    assert capsys.readouterr().out.startswith("usage: scopereg data check PATH")


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["register", "a.png", "b.nii", "-opose.tfm"], "write -o pose.tfm"),
        (["convert", "a.dcm", "a.nrrd"], "write scopereg convert INPUT; what is written is named by -o a.nrrd"),
        (["register", "a.png", "b.nii", "pose.tfm", "-o", "x.tfm"], "write scopereg register FRAME VOLUME\n"),
        (["demo", "--anatomy", "liver"], "error: --anatomy: unknown anatomy 'liver'"),
        (["evaluate", "volumes"], "of your own volumes: folder, and --data volumes"),
    ],
)
def test_what_was_meant_is_told(
    words: list[str], fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "volumes").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert fix in capsys.readouterr().err


@pytest.mark.parametrize("magnitudes", [(10.0,), (10.0, 20.0)])
def test_the_table_of_an_evaluation_splits_no_word_at_sixty_columns(magnitudes: tuple[float, ...]) -> None:
    rows = [
        {"protocol": "honest", "magnitude": magnitude, "method": method, "frames": 376, "lost": 0, "mean_mm": 8.05}
        | {"p95_mm": 9.79, "max_mm": 19.86, "within": 1.0, "ok": 0.95, "time_ms": 2705.0}
        for magnitude in magnitudes
        for method in ("identity", "universal")
    ]
    written = io.StringIO()
    Console(file=written, width=60).print(evaluate._table(rows, "echo"))
    said = written.getvalue()
    assert max(map(len, said.splitlines())) <= 60
    assert said.split().count("honest") == 2 * len(magnitudes)
    assert said.split().count("universal") == len(magnitudes)
    assert "pm 10" in said or len(magnitudes) > 1


def test_groups_name_options_that_there_are() -> None:
    for name, groups in GROUPS.items():
        fields = {option.field for option in options_of(VERBS[name].options)}
        assert {field for named in groups.values() for field in named} <= fields, name


def test_every_verb_has_a_module_of_its_own_with_its_options_and_run() -> None:
    own = {name: name.replace(" ", "_").replace("-", "_") for name in VERBS}
    assert {name: verb.place.split(":")[0] for name, verb in VERBS.items()} == own
    helpers = {
        "flags",
        "groups",
        "help",
        "live_answers",
        "output",
        "page",
        "parsing",
        "reading",
        "register_together",
        "register_whole",
        "shared",
        "verbs",
    }
    assert {module.name for module in pkgutil.iter_modules(commands.__path__)} - helpers == set(own.values())
    assert all(is_dataclass(verb.options) and callable(verb.module.run) for verb in VERBS.values())


def test_version() -> None:
    assert run("--version").stdout.strip() == f"scopereg {__version__}"


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["dmo"], "did you mean 'demo'"),
        (["data", "phantm"], "did you mean 'phantom'"),
        (["demo", "--sed", "3"], "--seed"),
    ],
)
def test_misspelt_words_get_a_suggestion(words: list[str], suggestion: str) -> None:
    result = run(*words)
    assert result.returncode == 2
    assert suggestion in result.stderr


def test_a_group_alone_lists_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data"]) == 0
    assert "data phantom" in capsys.readouterr().out


def test_words_win_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    config = tmp_path / "demo.yaml"
    config.write_text("frames: 5\nseed: 7\nanatomy: prostate\noutput: here\n")
    options = parse("demo", ["--config", str(config), "--seed", "9"])
    assert (options.frames, options.seed, options.anatomy, str(options.output)) == (5, 9, "prostate", "here")
    assert options.magnitude == DemoOptions().magnitude


@pytest.mark.parametrize("name", ["voxel_mm", "spacing-mm"])
def test_old_and_new_names_may_stand_in_the_file(tmp_path: Path, name: str) -> None:
    config = tmp_path / "phantom.yaml"
    config.write_text(f"{name}: 0.5\n")
    assert parse("data phantom", ["--config", str(config)]).voxel_mm == 0.5


def test_a_positional_option_may_stand_in_the_file_and_be_overruled(tmp_path: Path) -> None:
    config = tmp_path / "phantom.yaml"
    config.write_text("anatomy: abdomen\nshape: [8, 32, 32]\nvoxel_mm: null\n")
    assert parse("data phantom", [f"--config={config}"]).anatomy == "abdomen"
    options = parse("data phantom", ["prostate", f"--config={config}"])
    assert (options.anatomy, options.shape, options.voxel_mm) == ("prostate", (8, 32, 32), None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("framse: 3", "did you mean 'frames'"),
        ("[1, 2]", "not a mapping"),
        ("a: b: c", "not valid YAML"),
        ("frames: many", "--frames: 'many' is no whole number"),
        ("output: {a: b}", "holds a mapping"),
    ],
)
def test_bad_files_are_explained(tmp_path: Path, content: str, said: str) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text(content)
    with pytest.raises(ScopeRegError, match=said) as caught:
        parse("demo", ["--config", str(config)])
    assert caught.value.where == str(config)


def test_an_option_without_a_value_is_the_default(tmp_path: Path) -> None:
    config = tmp_path / "demo.yaml"
    config.write_text("output:\nseed: 4\n")
    options = parse("demo", ["--config", str(config)])
    assert (options.output, options.seed) == (DemoOptions().output, 4)


def test_missing_file_and_missing_name(tmp_path: Path) -> None:
    with pytest.raises(ScopeRegError, match="cannot be read"):
        parse("demo", ["--config", str(tmp_path / "none.yaml")])
    with pytest.raises(ScopeRegError, match="no value follows"):
        parse("demo", ["--config"])


def test_errors_of_a_verb_end_with_status_2_and_how_to_mend_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("demo", "-o", str(tmp_path / "file" / "below"))
    assert result.returncode == 2
    assert str(tmp_path / "file") in result.stderr
    assert "To fix it" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "words", [["--preset", "paper"], ["--preset=paper"], ["--preset", "fast", "--preset", "paper"]]
)
def test_a_preset_gives_the_defaults_and_words_win_over_it(words: list[str]) -> None:
    options = parse("train", ["camus", *words, "--batch", "12"])
    assert options.settings() == replace(PRESETS["paper"], batch=12)
    assert options.dataset == "camus"


def test_a_preset_may_stand_in_the_file(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("preset: paper\ndataset: folder\ndata: volumes\nepochs: 3\nclip: 2\n")
    options = parse("train", ["--config", str(config), "--clip", "1"])
    assert options.settings() == replace(PRESETS["paper"], epochs=3, clip=1.0)
    assert (options.dataset, options.data) == ("folder", Path("volumes"))
    overruled = parse("train", ["--config", str(config), "--preset", "fast"])
    assert overruled.settings() == replace(PRESETS["fast"], epochs=3, clip=2.0)


def test_settings_to_train_with_are_nothing_but_settings() -> None:
    assert type(TrainOptions().settings()) is TrainSettings
    assert TrainOptions().settings() == TrainSettings()


def test_an_unknown_preset_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    config.write_text("preset: papr\n")
    for words in (["--config", str(config)], ["--preset", "papr"]):
        with pytest.raises(ScopeRegError, match="'papr' is no choice, did you mean 'paper'"):
            parse("train", words)


def test_a_setting_that_cannot_be_is_refused_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--batch", "6"]) == 2
    assert "frames_per_volume is 4" in capsys.readouterr().err
