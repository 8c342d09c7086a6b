"""Readers of others in a process of their own, with limits on memory and processor time that the kernel enforces.

A library written in C may neither count its steps nor look for Ctrl-C.  So `Confined` starts a child that calls a
function of this package, `"module:function"`, and hands its answers back as lines of JSON: nothing is unpickled, and a
child that misbehaves is killed.  The function takes plain arguments and returns a function from a request to an
iterator of plain values.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

MEMORY = 512 * 2**20
"""Address space (bytes) of a child besides what Python itself takes."""
LONGEST = 64 * 2**20
"""Bytes of an answer."""
_BATCH = 1000
_START = "import sys; sys.path[:] = sys.argv[1:]; from socsched.confined import _serve; _serve()"
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}

Serve = Callable[[Any], Iterator[Any]]


class ConfinedError(Exception):
    """The child reported an error, took too long, took too much memory, or died."""


class Confined:
    """A child that serves requests until `close`.

    `function`: "module:name", called with `arguments` in the child.  `cpu_s`: its processor time; `memory`: bytes.
    """

    def __init__(self, function: str, *arguments: Any, cpu_s: int, memory: int = MEMORY) -> None:
        self._cpu_s = cpu_s
        self._child = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _QUIET,
            start_new_session=True,  # Ctrl-C at the terminal reaches the parent only, which kills the child
        )
        self._request({"function": function, "arguments": arguments, "cpu_s": cpu_s, "memory": memory})

    def close(self) -> None:
        """End the child."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()

    def ask(self, request: Any) -> Iterator[Any]:
        """Yield the answers to a request; ConfinedError if there are no more because something went wrong."""
        self._request(request)
        assert self._child.stdout is not None
        while True:
            line = self._child.stdout.readline(LONGEST)
            if not line.endswith(b"\n"):
                raise ConfinedError(self._end(line))
            answer = json.loads(line, object_hook=_bytes)
            if "error" in answer:
                raise ConfinedError(answer["error"])
            yield from answer["values"]
            if answer["last"]:
                return

    def _request(self, request: Any) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise ConfinedError(self._end(b"")) from None

    def _end(self, line: bytes) -> str:
        if line:
            return f"an answer of more than {LONGEST // 2**20} MiB"
        status = self._child.wait()
        if -status in (9, 24):  # SIGKILL, SIGXCPU
            return f"takes more than {self._cpu_s} s to read, which a file of this size should not"
        return f"its reader ended with status {status}"


def _serve() -> None:
    """Serve the parent that started this process, until it closes the pipe."""
    import resource
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asked = json.loads(sys.stdin.buffer.readline())
    module, name = asked["function"].split(":")
    function = getattr(import_module(module), name)  # before the limits: libraries map more than they use
    resource.setrlimit(resource.RLIMIT_CPU, (asked["cpu_s"], asked["cpu_s"] + 1))
    most = asked["memory"] + mapped()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve = None
    for line in sys.stdin.buffer:
        try:
            serve = serve or function(*asked["arguments"])
            values: list[Any] = []
            try:
                for value in serve(json.loads(line)):
                    values.append(value)
                    if len(values) == _BATCH:
                        _answer({"values": values, "last": False})
                        values = []
            except Exception:
                _answer({"values": values, "last": False})  # what came before the fault
                raise
            _answer({"values": values, "last": True})
        except MemoryError:
            _answer({"error": f"takes more than {asked['memory'] // 2**20} MiB to read"})
        except Exception as error:
            _answer({"error": f"{type(error).__name__}: {error}"[:1000]})


def _answer(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(answer, default=_plain).encode() + b"\n")
    sys.stdout.buffer.flush()


def mapped() -> int:
    """Return the address space of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    raise TypeError(f"a confined reader cannot return a {type(value).__name__}")


def _bytes(found: dict[str, Any]) -> Any:
    return b64decode(found["$bytes"]) if found.keys() == {"$bytes"} else found
