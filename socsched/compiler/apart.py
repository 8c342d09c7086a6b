"""Compilation in a process of its own, with limits on memory and time: LLVM and TVM end a process at what they reject.

A forked child, not a spawned one: it has TVM, the network and its weights without a second import or a copy (10 ms a
stage, where an import takes a second).  It returns plain data or the exception it raised, and leaves files in a folder.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from tempfile import TemporaryFile
from typing import Any, TypeVar

from socsched.confined import mapped
from socsched.progress import Step, heard, notice, speaking, tell

CPU_S = 900
"""Processor time of one compilation (s); the largest networks of the corpus take 30."""
MEMORY = 8 << 30
"""Address space (bytes) of one besides what the process has and `data`."""
_LAST_WORDS = 300
_T = TypeVar("_T")


class Ended(Exception):
    """The child ended without an answer; `str` says how, with its last words."""


def apart(work: Callable[[], _T], data: int = 0, cpu_s: int = CPU_S) -> _T:
    """Return what `work` returns in a child process, or raise what it raises there; Ended if it dies or takes too long.

    `data`: bytes of the network's weights, of which several forms are in memory at once.
    """
    with TemporaryFile() as words:
        own_end, child_end = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, which the child is without
            child = os.fork()
        if not child:
            os.close(own_end)
            os.dup2(words.fileno(), 2)
            _work(work, Connection(child_end, readable=False), cpu_s, MEMORY + 32 * data)
        os.close(child_end)
        try:
            with Connection(own_end, writable=False) as pipe:
                good, value = _heard(pipe, 4 * cpu_s)
        except (EOFError, OSError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                os.kill(child, signal.SIGKILL)
            raise Ended(_how(os.waitpid(child, 0)[1], words, cpu_s)) from None
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        os.waitpid(child, 0)
        words.seek(0)
        sys.stderr.write(words.read().decode(errors="replace"))
    if good:
        result: _T = value
        return result
    raise value


def _heard(pipe: Connection, seconds: float) -> tuple[bool, Any]:
    """Return the child's answer, passing its progress and notices on."""
    while True:
        if not pipe.poll(seconds):
            raise TimeoutError
        kind, value = pipe.recv()
        if kind == "step":
            tell(*value)
        elif kind == "notice":
            notice(value, value)
        else:
            return kind == "result", value


def _work(work: Callable[[], Any], pipe: Connection, cpu_s: int, memory: int) -> None:
    """Work in the child, and end it."""

    def step(one: Step) -> None:
        pipe.send(("step", (one.what, one.done, one.total, one.unit, one.detail)))

    def serve() -> None:
        answer: tuple[str, Any]
        try:
            with heard(step), speaking(lambda text: pipe.send(("notice", text))):
                answer = "result", work()
        except BaseException as error:
            answer = "error", ExceptionWithTraceback(error, error.__traceback__)
        try:
            pipe.send(answer)
        except Exception:  # it cannot be written, of which nothing was sent
            pipe.send(("error", RuntimeError(f"{type(answer[1].exc).__name__}: {answer[1].exc}")))

    gc.freeze()  # what the parent left to collect may wait for threads that are not here (ONNX Runtime's sessions)
    faulthandler.disable()  # the last words are LLVM's
    with suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (mapped() + memory, mapped() + memory))
    with suppress(BaseException):
        thread = threading.Thread(target=serve)  # TVM's workers belong to a thread, and those of the parent's are gone
        thread.start()
        thread.join()
    os._exit(0)


def _how(status: int, words: Any, cpu_s: int) -> str:
    words.seek(0)
    lines = words.read().decode(errors="replace").strip().splitlines()
    said = next((line for line in lines if "ERROR" in line or "terminate" in line), lines[-1] if lines else "")
    code = os.waitstatus_to_exitcode(status)
    if -code in (signal.SIGKILL, signal.SIGXCPU):
        return f"took more than {cpu_s} s of processor time, or was killed for its memory"
    how = f"ended with {signal.Signals(-code).name}, exit code {128 - code}" if code < 0 else f"ended with code {code}"
    return how + (f": {said[:_LAST_WORDS]}" if said else "")
