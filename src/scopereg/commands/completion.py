"""`scopereg completion`: a script by which a shell completes verbs, options and what may follow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from scopereg.commands.help import EVERYWHERE
from scopereg.commands.output import tell
from scopereg.commands.shared import Positional
from scopereg.commands.verbs import VERBS
from scopereg.options import Option, options_of


@dataclass(frozen=True)
class CompletionOptions:
    """Print a script by which a shell completes verbs, options, their choices, and names of files.

    bash: put `source <(scopereg completion bash)` into ~/.bashrc. zsh: the same with zsh, into ~/.zshrc. fish:
    `scopereg completion fish > ~/.config/fish/completions/scopereg.fish`.
    """

    shell: Positional[Literal["bash", "zsh", "fish"]] = "bash"
    """Shell to complete in."""


_OTHERS = ("simpleitk-mi", "simpleitk-ncc", "elastix", "identity")  # methods that need no weights


def run(options: CompletionOptions) -> int:
    script = fish_script() if options.shell == "fish" else bash_script(zsh=options.shell == "zsh")
    print(script, end="")
    tell(shell=options.shell, script=script)
    return 0


_BASH = """\
# Made by `scopereg completion`.
{setup}_scopereg() {{
    local verb="" word="${{COMP_WORDS[COMP_CWORD]}}" before="" i choices=""
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "${{COMP_WORDS[i]}}" in
            -*) continue ;;
            *) verb="${{verb:+$verb }}${{COMP_WORDS[i]}}" ;;
        esac
        case "$verb" in {groups}) ;; *) break ;; esac
    done
    for ((i = COMP_CWORD - 1; i > 0; i--)); do
        case "${{COMP_WORDS[i]}}" in -*) before="${{COMP_WORDS[i]}}"; break ;; esac
    done
    case "$verb" in
        "") choices="{firsts} --help --version" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}}
complete -o default -F _scopereg scopereg
"""


def bash_script(*, zsh: bool = False) -> str:
    """For bash; zsh reads the same."""
    verbs = _verbs()
    groups = sorted({name.split()[0] for name in verbs if " " in name})
    cases = [f'        {group}) choices="{_below(group, verbs)}" ;;' for group in groups]
    cases += [line for name, cls in verbs.items() for line in _bash_case(name, cls)]
    return _BASH.format(
        setup="autoload -U +X bashcompinit && bashcompinit\n" if zsh else "",
        groups="|".join(groups),
        firsts=" ".join(sorted({name.split()[0] for name in verbs})),
        cases="\n".join(cases),
    )


def _bash_case(name: str, cls: type[Any]) -> Iterator[str]:
    yield f'        "{name}")'
    yield '            case "$before" in'
    for option in options_of(cls):
        if not option.positional and (words := _choices(option)):
            yield f'                {"|".join(option.flags)}) choices="{" ".join(words)}" ;;'
    yield "            esac"
    places = [word for option in options_of(cls) if option.positional for word in _choices(option)]
    yield f'            [[ "$word" == -* ]] && choices="{" ".join(_flags(cls))}"'
    if places:
        yield f'            [[ -z "$choices" && -z "$before" ]] && choices="{" ".join(places)}"'
    yield "            ;;"


def fish_script() -> str:
    """For fish."""
    verbs = _verbs()
    lines = ["# Made by `scopereg completion`.", "complete -c scopereg -n __fish_use_subcommand -s h -l help"]
    for name, told in VERBS.items():
        group, _, verb = name.partition(" ")
        state = "__fish_use_subcommand" if not verb else f"__fish_seen_subcommand_from {group}"
        if verb:
            lines.append(f"complete -c scopereg -n __fish_use_subcommand -f -a {group}")
        lines.append(f"complete -c scopereg -n '{state}' -f -a {verb or group} -d '{_quoted(told.summary)}'")
    for name, cls in verbs.items():
        state = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in name.split())
        for option in options_of(cls):
            if option.positional:
                continue
            names = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            takes = "" if option.kind is bool else " -r"
            words = f" -a '{' '.join(_choices(option))}'" if _choices(option) else ""
            files = " -F" if option.kind is Path else ""
            lines.append(f"complete -c scopereg -n '{state}' {names}{takes}{files}{words} -d '{_quoted(option.help)}'")
    return "\n".join([*dict.fromkeys(lines), ""])


def _verbs() -> dict[str, type[Any]]:
    return {name: verb.options for name, verb in VERBS.items()}


def _below(group: str, verbs: dict[str, type[Any]]) -> str:
    return " ".join(name.split()[1] for name in verbs if name.startswith(f"{group} "))


def _flags(cls: type[Any]) -> list[str]:
    """All that may be typed, the negative of switches that are on included."""
    found = []
    for option in options_of(cls):
        if not option.positional:
            found += [flag for flag in option.flags if len(flag) > 2]
            found += [f"--no-{option.name}"] if option.kind is bool and option.default is True else []
    return [*found, *(name.split()[-1] if "," in name else name.split()[0] for name in EVERYWHERE)]


def _choices(option: Option) -> tuple[str, ...]:
    """Words that may follow; models where one is asked for."""
    if option.choices:
        return tuple(map(str, option.choices))
    if "{" in option.metavar:
        return tuple(option.metavar.strip("{}").split(","))
    if option.kind is not str or option.name not in ("model", "method", "methods"):
        return ()
    weights = (Path(str(files("scopereg"))) / "weights").glob("*.safetensors")
    models = tuple(sorted(path.stem for path in weights if "." not in path.stem))  # a fine stage is part of a model
    return models if option.name == "model" else (*models, *_OTHERS)


def _quoted(text: str) -> str:
    return text.replace("'", "\\'")
