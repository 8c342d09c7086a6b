"""C compilers as child processes that never outlive the process that started them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

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
