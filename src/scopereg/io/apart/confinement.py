"""Confinement: what the child of `apart` may do, by the means that the system has.

Everywhere: no environment but a few variables, a folder of its own. Linux and macOS: processor time, open files, no
files written, no core dumps. Linux: memory, no files read but libraries and the one given (Landlock, 5.13 or newer), no
sockets, no other programs (seccomp on x86-64 and ARM). What holds is told, so that nobody has to believe it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_OPEN_FILES = 64
_NO_NEW_PRIVILEGES, _SECCOMP = 38, 22  # prctl
_READ = (1 << 2) | (1 << 3)  # Landlock: read files, list folders
_REMOVE = (1 << 4) | (1 << 5)  # folders, files
_ACCESSES = {1: 13, 2: 14, 3: 15, 4: 15}  # kinds of access to files that versions of Landlock know; 16 from 5 on
_LIBRARIES = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/dev/null", "/dev/urandom")
# Numbers of system calls: socket, execve, execveat, ptrace, kill, process_vm_readv and writev, io_uring_setup.
_REFUSED = {
    "x86_64": (0xC000003E, (41, 59, 322, 101, 62, 310, 311, 425)),
    "aarch64": (0xC00000B7, (198, 221, 281, 117, 129, 270, 271, 425)),
}
_LANDLOCK = (444, 445, 446)  # create_ruleset, add_rule, restrict_self


def confine(folder: Path) -> list[str]:
    """Give up what reading a file does not need; the names of what holds from now on."""
    held = ["limits"] if _hard_limits() else []
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None, use_errno=True)
            _done(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
            with suppress(OSError):
                _landlock(libc, folder)
                held.append("files")
            with suppress(OSError, KeyError):
                _seccomp(libc)
                held.append("calls")
    return held


@contextmanager
def limited(memory: int, seconds: float) -> Iterator[None]:
    """Memory (Linux) and processor time beyond what is used already, while the block runs."""
    if resource is None:
        yield
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    time_s = used.ru_utime + used.ru_stime + seconds + 1
    _soft(resource.RLIMIT_CPU, int(time_s) + 1)
    if sys.platform == "linux":
        _soft(resource.RLIMIT_AS, _address_space() + memory)
    signal.setitimer(signal.ITIMER_REAL, seconds + 2)  # where the parent is gone, who would end it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS):
            _soft(kind, resource.RLIM_INFINITY)


def _hard_limits() -> bool:
    if resource is None:
        return False
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    return True


def _soft(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    within = most if hard == resource.RLIM_INFINITY else hard if most == resource.RLIM_INFINITY else min(most, hard)
    with suppress(ValueError, OSError):  # macOS does not take some
        resource.setrlimit(kind, (within, hard))


_statm = os.open("/proc/self/statm", os.O_RDONLY) if sys.platform == "linux" else -1  # before it is out of reach


def _address_space() -> int:
    return int(os.pread(_statm, 64, 0).split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _done(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _landlock(libc: ctypes.CDLL, folder: Path) -> None:
    """From now on files can be read where libraries lie and in `folder`, and removed there; TCP is out of reach."""
    create, add, restrict = _LANDLOCK
    version = _done(libc.syscall(create, None, ctypes.c_size_t(0), 1))
    files = (1 << _ACCESSES.get(version, 16)) - 1
    network, scope = 3 if version >= 4 else 0, 3 if version >= 6 else 0
    rules = struct.pack("=QQQ", files, network, scope)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _done(libc.syscall(create, rules, ctypes.c_size_t(len(rules)), 0))
    try:
        for path in {*_LIBRARIES, *_own_libraries()}:
            _allow(libc, add, ruleset, path, _READ)
        _allow(libc, add, ruleset, str(folder), _READ | _REMOVE)
        _allow(libc, add, ruleset, str(folder.parent), _REMOVE & 16)  # the folder itself, when the parent is gone
        _done(libc.syscall(restrict, ruleset, 0))
    finally:
        os.close(ruleset)


def _own_libraries() -> list[str]:
    """Where Python, its libraries and those of the system lie, as far as this process was told."""
    told = [*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *sysconfig.get_paths().values()]
    return [os.path.realpath(entry) for entry in (*told, sys.prefix, sys.base_prefix) if entry]


def _allow(libc: ctypes.CDLL, add: int, ruleset: int, path: str, access: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        kept = access if os.path.isdir(path) else access & (1 << 2)
        _done(libc.syscall(add, ruleset, 1, struct.pack("=Qi", kept, opened), 0))
    finally:
        os.close(opened)


def _seccomp(libc: ctypes.CDLL) -> None:
    """Calls that reach other machines, programs and processes fail with EPERM from now on."""
    architecture, refused = _REFUSED[platform.machine()]
    jump, value, back = 0x15, 0x20, 0x06  # JEQ, LD, RET
    program = [(value, 0, 0, 4), (jump, 1, 0, architecture), (back, 0, 0, 0x80000000), (value, 0, 0, 0)]
    # Each match jumps to the last line; without any, the line before it lets the call through.
    program.append((0x35, len(refused) + 1, 0, 0x40000000))  # JGE: calls of the x32 kind
    program += [(jump, len(refused) - place, 0, call) for place, call in enumerate(refused)]
    program = [*program, (back, 0, 0, 0x7FFF0000), (back, 0, 0, 0x00050000 | 1)]
    lines = b"".join(struct.pack("=HBBI", *line) for line in program)
    held = ctypes.create_string_buffer(lines, len(lines))
    told = struct.pack("HP", len(program), ctypes.addressof(held))
    _done(libc.prctl(_SECCOMP, 2, told, 0, 0))
