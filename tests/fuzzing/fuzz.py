"""Coverage-guided fuzzing of the harnesses with atheris: what a reader was never seen to do is looked for.

    python tests/fuzzing/fuzz.py --seconds 3600                one harness after the other
    python tests/fuzzing/fuzz.py nrrd dicom --seconds 60
    python tests/fuzzing/fuzz.py nrrd,tfm --seconds 60         two at once: the first byte chooses

Bytes that are a finding are written to `--findings`, named by their harness; copy them to its folder in
tests/fuzzing/corpus as `found-...`, where test_fuzzing.py reads them for ever. Inputs that reached new code stay in
`--work` for the next time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LONGEST_S = 10  # of one input; more is a hang
MEMORY_MB = 2048  # of the process, torch and all


def main() -> int:
    sys.path.append(str(HERE))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness", nargs="*", help="all, if none is named; several at once with commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="of all harnesses together")
    parser.add_argument("--work", type=Path, default=Path("out/fuzzing"), help="inputs that reached new code")
    parser.add_argument("--findings", type=Path, default=Path("out/fuzzing/findings"))
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers; 0 takes another one every time")
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_this_process:
        return _fuzz(options)
    from harnesses import HARNESSES

    chosen = options.harness or list(HARNESSES)
    if unknown := {name for names in chosen for name in names.split(",")} - HARNESSES.keys():
        parser.error(f"no harness {', '.join(sorted(unknown))}; there are {', '.join(HARNESSES)}")
    found = [_one(names, options, options.seconds / len(chosen)) for names in chosen]
    return int(any(found))


def _one(names: str, options: argparse.Namespace, seconds: float) -> int:
    """Findings of a harness; libFuzzer ends its process with the first, so it is started again."""
    options.findings.mkdir(parents=True, exist_ok=True)
    end, runs, tried, found = time.monotonic() + seconds, 0, 0, 0
    while (left := end - time.monotonic()) > 0 or not runs:
        command = [sys.executable, __file__, "--in-this-process", names, "--seconds", str(max(int(left), 1))]
        command += ["--work", options.work, "--findings", options.findings]
        command += ["--seed", str(options.seed + runs if options.seed else 0)]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        runs += 1
        tried += sum(int(line.split()[1]) for line in ended.stderr.splitlines() if "number_of_executed_units" in line)
        if ended.returncode:
            found += 1
            kept = [_kept(path, names, options.findings) for path in (options.work / names).glob("raw-*")]
            print("\n".join([_reason(ended), *map(str, kept)]), flush=True)
    print(f"{names}: {found} findings in {tried} inputs and {seconds:.0f} s", flush=True)
    return found


def _kept(raw: Path, names: str, findings: Path) -> Path:
    """The input of a finding, without the byte that chose its harness, where it stays."""
    name, content = _chosen(raw.read_bytes(), names)
    path = findings / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    path.write_bytes(content)
    raw.unlink()
    return path


def _chosen(data: bytes, names: str) -> tuple[str, bytes]:
    """The harness that the first byte stands for, and what it reads."""
    known = names.split(",")
    return known[data[0] % len(known) if data else 0], data[1:]


def _reason(ended: subprocess.CompletedProcess[str]) -> str:
    """The traceback of a finding, or what libFuzzer says of a crash, a hang or memory."""
    said = [line for line in ended.stdout.splitlines() if not line.startswith("INFO")][-12:]
    said += [line for line in ended.stderr.splitlines() if line.startswith(("SUMMARY", "Traceback", "ModuleNotFound"))]
    return "\n".join(f"    {line}" for line in said)


def _fuzz(options: argparse.Namespace) -> int:
    """Fuzz until the time is over or a finding ends the process."""
    import atheris

    with atheris.instrument_imports(include=["scopereg", "pyigtl", "harnesses"]):
        from harnesses import CORPUS, try_one
    (joined,) = options.harness
    memory = Path("/dev/shm")
    work, folder = options.work / joined, memory if os.access(memory, os.W_OK) else options.work
    seeds, scratch = work / "seeds", folder / f"scopereg-fuzzing-{os.getpid()}"
    for made in (work / "new", seeds, scratch):
        made.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(joined.split(",")):
        for path in (CORPUS / name).glob("*"):
            (seeds / f"{name}-{path.name}").write_bytes(bytes([number]) + path.read_bytes())
    words = work / "words.dict"
    words.write_text("\n".join(f'"{word}"' for word in _WORDS) + "\n")

    def target(data: bytes) -> None:
        name, content = _chosen(data, joined)
        try_one(name, content, scratch)

    settings: dict[str, Any] = {
        "max_total_time": int(options.seconds),
        "artifact_prefix": work / "raw-",
        "dict": words,
        "timeout": LONGEST_S,
        "rss_limit_mb": MEMORY_MB,
        "max_len": 2**14,
        "seed": options.seed,
        "print_final_stats": 1,
    }
    flags = [f"-{name}={value}" for name, value in settings.items()]
    atheris.Setup([sys.argv[0], str(work / "new"), str(seeds), *flags], target)
    try:
        atheris.Fuzz()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


_WORDS = (
    "nan", "inf", "-1", "1e308", "99999999999999999999", "LOCAL", "LIST", "/etc/passwd", "..", r"\x00", r"\x0d\x0a",
    "encoding: gzip", "encoding: raw", "data file: ", "dimension: ", "sizes: ", "space directions: ", "none",
    "ElementDataFile = LOCAL", "CompressedData = True", "NDims = ", "DimSize = ", "ElementType = MET_FLOAT", "Binary",
    "UltrasoundImageOrientation = MFA", "Seq_Frame0000_", "Transform = ", "TransformStatus = OK",
    "Transform: AffineTransform_double_3_3", "Parameters: ", "FixedParameters: ", "CompositeTransform_double_3_3",
    "n+1", r"\x5c\x01\x00\x00", "__metadata__", "&a [*a]", "<<: *a", "!!python/object", "IMAGE", "TRANSFORM", "STRING",
    r"\xff\xff\xff\xff", r"\x7f\xff\xff\xff", r"\x80\x00\x00\x00",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
