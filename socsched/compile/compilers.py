"""C compilers as child processes that never outlive what they work for."""

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
    """Run a compiler with all its children in `folder`; CalledProcessError with what it said, TimeoutExpired, OSError.

    Whatever ends this process, but for SIGKILL, ends them first.
    """
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        with _before_the_end(process):
            said, _ = process.communicate(timeout=timeout_s)
    except BaseException:
        _kill(process)
        process.wait()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), said)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _before_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the compiler when a signal is about to end this process, and let it end as it would have."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may ask for signals
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDS}

    def end(number: int, frame: FrameType | None) -> None:
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
