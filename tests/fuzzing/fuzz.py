"""Coverage-guided fuzzing of the harnesses with atheris: what a reader was never seen to do is looked for.

    python tests/fuzzing/fuzz.py --seconds 3600            all harnesses, one after the other
    python tests/fuzzing/fuzz.py nrrd dicom --seconds 60

Bytes that are a finding are written to `--findings`, named by their harness; copy them to tests/fuzzing/corpus as
`found-...`, where test_fuzzing.py reads them for ever. Inputs that reached new code stay in `--work` for the next time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
LONGEST_S = 10  # of one input; more is a hang
MEMORY_MB = 2048  # of the process, torch and all


def main() -> int:
    sys.path.append(str(HERE))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harness", nargs="*", help="all, if none is named")
    parser.add_argument("--seconds", type=float, default=60.0, help="of all harnesses together")
    parser.add_argument("--work", type=Path, default=Path("out/fuzzing"), help="inputs that reached new code")
    parser.add_argument("--findings", type=Path, default=Path("out/fuzzing/findings"))
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers; 0 takes another one every time")
    parser.add_argument("--in-this-process", metavar="HARNESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_this_process:
        return _fuzz(options)
    from harnesses import HARNESSES

    names = options.harness or list(HARNESSES)
    if unknown := set(names) - HARNESSES.keys():
        parser.error(f"no harness {', '.join(sorted(unknown))}; there are {', '.join(HARNESSES)}")
    ended = [_one(name, options, options.seconds / len(names)) for name in names]
    return int(any(ended))


def _one(name: str, options: argparse.Namespace, seconds: float) -> bool:
    """Whether a harness has findings; libFuzzer ends its process with the first, so it is started again."""
    options.findings.mkdir(parents=True, exist_ok=True)
    end, runs, found = time.monotonic() + seconds, 0, 0
    while (left := end - time.monotonic()) > 0 or not runs:
        command = [sys.executable, __file__, "--in-this-process", name, "--seconds", str(max(int(left), 1))]
        command += ["--work", options.work, "--findings", options.findings, "--seed", str(options.seed + runs)]
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        lines = [line for line in ended.stderr.splitlines() if line.startswith("#")]
        runs += 1
        print(f"{name}: {lines[-1] if lines else 'no progress'}", flush=True)
        if ended.returncode:
            found += 1
            said = [line for line in ended.stderr.splitlines() if not line.startswith(("#", "INFO"))]
            print("\n".join(f"    {line}" for line in said[-25:]), flush=True)
    print(f"{name}: {found} findings in {runs} runs", flush=True)
    return found > 0


def _fuzz(options: argparse.Namespace) -> int:
    """Fuzz one harness until its time is over or a finding ends the process."""
    import atheris

    with atheris.instrument_imports(include=["scopereg", "pyigtl", "harnesses"]):
        import harnesses
        from harnesses import CORPUS, try_one
    name = options.in_this_process
    new = options.work / name
    new.mkdir(parents=True, exist_ok=True)
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    scratch = memory / f"scopereg-fuzzing-{os.getpid()}" if memory else new / "scratch"
    scratch.mkdir(exist_ok=True)
    words = new.parent / f"{name}.dict"
    words.write_text("\n".join(f'"{word}"' for word in _WORDS) + "\n")
    flags = [
        sys.argv[0],
        str(new),
        str(CORPUS / name),
        f"-max_total_time={int(options.seconds)}",
        f"-artifact_prefix={options.findings}/{name}-",
        f"-dict={words}",
        f"-timeout={LONGEST_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        "-max_len=16384",
        f"-seed={options.seed}",
        "-print_final_stats=1",
    ]
    assert name in harnesses.HARNESSES
    atheris.Setup(flags, lambda data: try_one(name, data, scratch) and None)
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
