"""A vendor's compiler in a process of its own, asked by lines of JSON.

The helper reads and writes files of one temporary folder.  Requests name an action and files; no text of a user's file
is part of a command line.  An answer takes a bounded time and a bounded number of bytes, and files a bounded size; a
helper that exceeds them is ended.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from socsched.compiler.vendor_compilers.environments import Environment
from socsched.errors import CompileError, MachineError

LONGEST_ANSWER = 8 << 20
START_SECONDS = 120.0
SECONDS = 600.0
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")


class Refused(CompileError):
    """The vendor's compiler answered that it cannot do what was asked."""


class Ended(MachineError):
    """The helper ended, or was ended because it took too long or answered too much."""


class Helper:
    """A running helper; a context manager.  `folder` is its working folder, `versions` those of its compiler."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        python = environment.require()
        self._held = tempfile.TemporaryDirectory(prefix=f"socsched-{environment.name}-")
        self.folder = Path(self._held.name)
        self._rest = b""
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), "-I", "-B", str(environment.worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.folder,
                env=kept,
                start_new_session=True,
            )
        try:
            self.versions: dict[str, str] = dict(self._answer(START_SECONDS)["versions"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, action: str, seconds: float = SECONDS, **arguments: Any) -> dict[str, Any]:
        """Return the answer to an action; Refused with the compiler's own reason, Ended if the helper ended."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps({"do": action, **arguments}).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise self._ended("ended") from None
        return self._answer(seconds)

    def close(self) -> None:
        """End the helper and remove its folder."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._process.wait()
        self._held.cleanup()

    def _answer(self, seconds: float) -> dict[str, Any]:
        answer = self._parsed(self._line(seconds))
        if not answer.get("ok"):
            raise Refused(f"{self.environment.title}: {answer.get('error', 'no reason given')}")
        return answer

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._ended("gave an answer that is no JSON object")
        return answer

    def _line(self, seconds: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise self._ended(f"took longer than {seconds:g} s")
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    raise self._ended(f"ended with status {self._process.wait()}")
                self._rest += data
                if len(self._rest) > LONGEST_ANSWER:
                    raise self._ended(f"answered more than {LONGEST_ANSWER >> 20} MiB")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, what: str) -> Ended:
        last = self._last_lines()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        hint = f"its environment may be damaged: {self.environment.command}"
        return Ended(f"{self.environment.title} {what}{last}", hint)

    def _last_lines(self) -> str:
        try:
            with (self.folder / "log").open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2000))
                lines = log.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        shown = [" ".join(line.split()) for line in lines if line.strip()]
        text = "".join(c for c in (shown[-1] if shown else "") if c.isprintable())
        return f": {text[:200]}" if text else ""
