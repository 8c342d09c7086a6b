"""C compilers as child processes that never outlive the process that started them, and what they make for here."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from socsched.cache import cache_place, unusable
from socsched.compiler.store import library
from socsched.errors import MachineError
from socsched.progress import notice

_ENDS = (signal.SIGTERM, signal.SIGHUP)


def c_compiler() -> str | None:
    """Return the C compiler of this machine: $CC, cc, gcc or clang."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def run(command: Sequence[str], folder: Path, timeout_s: float = 600) -> None:
    """Run a compiler and its children in `folder`; CalledProcessError with its output, TimeoutExpired, or OSError.

    Any termination of this process except SIGKILL ends them first.
    """
    started: list[subprocess.Popen[str]] = []
    with _before_the_end(started):
        try:
            with _held():
                pipe = subprocess.PIPE
                process = subprocess.Popen(
                    command, cwd=folder, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True
                )
                started.append(process)
            output, _ = process.communicate(timeout=timeout_s)
        except BaseException:
            for process in started:
                _kill(process)
                process.wait()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), output)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _held() -> Iterator[None]:
    """Defer signals until the block ends: a handler would miss a child process that is still starting."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (*_ENDS, signal.SIGINT)}
    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):  # a child would no longer ignore it
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
        for late in came:
            os.kill(os.getpid(), late)


@contextmanager
def _before_the_end(started: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Kill the started compilers when a signal is about to end this process, then let the signal take effect."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may install handlers
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDS}

    def end(number: int, frame: FrameType | None) -> None:
        for process in started:
            _kill(process)
        signal.signal(number, before[signal.Signals(number)])
        os.kill(os.getpid(), number)

    for number in _ENDS:
        if before[number] is signal.SIG_DFL:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number in _ENDS:
            signal.signal(number, before[number])


# C code compiled once per machine and kept in the cache; None if that is not possible.  Functions are called through
# ctypes, which releases the interpreter lock while they run.

_SHARED = Path(__file__).parents[1] / "targets" / "gpu_functions" / "kernels"
SOURCES = (*sorted(Path(__file__).with_name("stages").glob("*.[ch]")), *sorted(_SHARED.glob("[er]*.h")))
"""The host stages (`native.host_stages`), known without the packages that their callers need."""
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-w")


@cache
def build_shared_object(*sources: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """Return C files as a shared object, compiled if it is not in the cache; None if that is not possible.

    `flags` are those of the compiler beyond `FLAGS`.  Headers among `sources` are part of the cache key.  The object is
    named after the folder of several files.
    """
    compiler = c_compiler()
    if not compiler or os.environ.get("SOCSCHED_KERNEL") == "python":
        return None
    try:
        return ctypes.CDLL(str(_built(sources, compiler, (*FLAGS, *flags))))
    except MachineError as error:
        unusable(str(error))
    except (OSError, subprocess.SubprocessError):
        pass
    return None


def _built(sources: tuple[Path, ...], compiler: str, flags: tuple[str, ...]) -> Path:
    key = f"{platform.machine()} {platform.libc_ver()} {compiler} {flags}".encode()
    key += b"".join(source.read_bytes() for source in sources)
    name = f"{sources[0].stem if len(sources) == 1 else sources[0].parent.name}.so"
    code = [str(source) for source in sources if source.suffix == ".c"]

    def build(folder: Path) -> None:
        run([compiler, *flags, *code, "-o", name, "-lm"], folder, 120)

    return library("native", hashlib.sha256(key).hexdigest()[:24], name, build)


# Compilers of code for boards: Zig's wheel, which links for an old glibc, and NVRTC of the CUDA release of a board.
#
# Both are wheels, installed or fetched once by pip into the cache, not into the user's environment.

GLIBC = (2, 31)
"""The glibc of the oldest boards (JetPack 5, Debian 11)."""
_ZIG = ("ziglang==0.17.1",)
_PROGRAM = "ziglang/zig"
_MEGABYTES = 100
_MINUTES = 20
_WHEELS = ("_2_31", "_2_28", "_2_27", "_2_26", "_2_24", "_2_17", "2014")
"""What wheels for boards may be made for: a glibc as old as theirs."""


def cross_compiler(machine: str) -> tuple[str, ...] | None:
    """Return the command of a C++ compiler for another machine: Zig's, for the glibc of the boards, else GNU's."""
    target = ("c++", "-target", f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}", "-g0")
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", *target)
    fetched = cache_place() / "tools" / _key(_ZIG) / _PROGRAM
    if fetched.is_file():
        return (str(fetched), *target)
    gnu = shutil.which(f"{machine}-linux-gnu-g++")
    return (gnu,) if gnu else None


def require_zig(machine: str) -> None:
    """Fetch Zig unless it is there; MachineError with what to do if there is no compiler for `machine` afterwards."""
    compiler = cross_compiler(machine)
    if compiler is not None and "ziglang" in " ".join(compiler):
        return
    try:
        fetch(_ZIG, _PROGRAM, f"the compiler of programs for {machine}", _MEGABYTES)
    except MachineError:
        if compiler is None:  # GNU's, if it is there, makes programs for boards whose glibc is as new as its own
            raise


def fetch(packages: Sequence[str], file: str, purpose: str, megabytes: int, machine: str = "") -> Path:
    """Return `file` of wheels from the cache, fetched by pip if they are not there.

    `packages` are pinned; `purpose` and `megabytes` tell the user what is fetched; `machine`: another than this one.
    MachineError if pip fails.
    """

    def install(folder: Path) -> None:
        notice(f"fetching {packages[0]}", f"fetching {purpose}: {', '.join(packages)} ({megabytes} MB, once) with pip")
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input"]
        if machine:
            options += [f"--platform=manylinux{glibc}_{machine}" for glibc in _WHEELS]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), *packages]
        problem = ""
        try:
            run(command, folder, 60 * _MINUTES)
        except subprocess.CalledProcessError as error:
            problem = next(iter(reversed(str(error.output).strip().splitlines())), "pip failed")
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if not problem and not (folder / file).is_file():
            problem = f"the wheels have no {file}"
        if problem:
            raise MachineError(
                f"{purpose} is missing, and pip cannot fetch it: {problem}",
                f"where the package index is reachable: pip install {' '.join(packages)}",
            )

    return library("tools", _key(packages) + (f"-{machine}" if machine else ""), file, install)


def _key(packages: Sequence[str]) -> str:
    return packages[0].replace("==", "-")
