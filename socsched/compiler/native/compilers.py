"""C compilers as child processes that never outlive the process that started them, and what they make for here."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType

from socsched.cache import unusable
from socsched.compiler.store import library
from socsched.errors import MachineError

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
