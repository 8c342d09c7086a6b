"""Vendors' compilers as packages of Python, each in an environment and a process of its own.

Their packages need other versions of Python and numpy than socsched, and one replaces the library that another brings.
An environment is a folder with `bin/python`, made by `socsched doctor --install NAME` from a pinned list of packages
(`requirements/NAME.txt`); nothing of a vendor is part of socsched.

A helper, asked by lines of JSON, reads and writes files of one temporary folder.  Requests name an action and files; no
text of a user's file is part of a command line.  An answer takes a bounded time and a bounded number of bytes, and
files a bounded size; a helper that exceeds them is ended.

A process apart, because the vendors' packages print on stdout, may crash or hang, and exclude each other (numpy 1 and
2); extras that pull them into socsched's own environment are unsolvable for pip.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from socsched.cache import is_private
from socsched.errors import CompileError, MachineError, UsageError
from socsched.files import file_digest

_HERE = Path(__file__).parent
INSTALL_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class Environment:
    """A vendor's compiler: the package that decides its version, and the Python versions (minor) that it exists for.

    `megabytes`: disk space of the environment.  `licence`: the terms that installing it accepts.
    """

    name: str
    title: str
    package: str
    pythons: tuple[int, ...]
    megabytes: int
    licence: str

    @property
    def requirements(self) -> Path:
        return _HERE / "requirements" / f"{self.name}.txt"

    @property
    def worker(self) -> Path:
        return _HERE / "worker" / f"{self.name}.py"

    @property
    def command(self) -> str:
        """Return the command that makes the environment."""
        return f"socsched doctor --install {self.name}"

    @property
    def version(self) -> str:
        """Return the pinned version of its package."""
        pins = dict(line.split("==") for line in self.requirements.read_text(encoding="utf-8").split() if "==" in line)
        return pins[self.package]

    def python(self) -> Path | None:
        """Return the environment's interpreter, None if it is not installed.

        Raises MachineError if another user could have replaced it.
        """
        folder = place() / self.name
        path = folder / "bin" / "python"
        if not path.exists():
            return None
        for checked in (folder.resolve(), path.parent.resolve()):
            if not is_private(checked):
                raise MachineError(f"{checked}: other users may write to this environment", "set SOCSCHED_VENDORS")
        return path

    def require(self) -> Path:
        """Return the environment's interpreter; MachineError naming the command that makes the environment."""
        python = self.python()
        if python is None:
            raise MachineError(f"{self.title} is not installed", self.command)
        return python


ENVIRONMENTS = {
    one.name: one
    for one in (
        Environment(
            "qualcomm",
            "Qualcomm's HTP compiler",
            "onnxruntime-qnn",
            (11, 12, 13, 14),
            600,
            "ONNX Runtime: MIT; Qualcomm's libraries: Qualcomm_LICENSE.pdf inside the package",
        ),
        Environment(
            "rockchip",
            "Rockchip's RKNN compiler",
            "rknn-toolkit2",
            (11, 12),
            700,
            "Rockchip's terms in github.com/airockchip/rknn-toolkit2",
        ),
    )
}


def place() -> Path:
    """Return the folder of all environments: $SOCSCHED_VENDORS, else socsched/vendors under the user's data folder."""
    if given := os.environ.get("SOCSCHED_VENDORS"):
        return Path(given)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "socsched" / "vendors"


def environment(name: str) -> Environment:
    """Return an environment by name; UsageError listing the known ones."""
    if name not in ENVIRONMENTS:
        raise UsageError(f"no vendor's compiler {name!r}", f"known: {', '.join(ENVIRONMENTS)}")
    return ENVIRONMENTS[name]


def install(vendor: Environment, note: Callable[[str], None]) -> Path:
    """Make an environment, or make it anew, and return its interpreter.

    The packages come from the index that pip is configured for, as wheels only, without their dependencies: the list is
    complete.  Raises MachineError if no fitting Python is installed or pip fails.
    """
    python = _fitting(vendor.pythons)
    if python is None:
        versions = " or ".join(f"3.{minor}" for minor in vendor.pythons)
        raise MachineError(f"{vendor.title} needs Python {versions}, none is on PATH", f"install Python {versions}")
    target = place() / vendor.name
    note(f"{vendor.title} {vendor.version}, about {vendor.megabytes} MB, into {target}")
    note(f"licence: {vendor.licence}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".old-") as old:
            if target.is_symlink():
                target.unlink()
            elif target.exists():
                target.rename(Path(old) / "environment")
        _run([python, "-m", "venv", str(target)], vendor)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        _run([*pip, "--no-input", "--disable-pip-version-check", "-r", str(vendor.requirements)], vendor)
    except OSError as error:
        raise MachineError(f"{target}: {error.strerror or error}", "set SOCSCHED_VENDORS to another folder") from error
    return target / "bin" / "python"


def _run(command: list[str], vendor: Environment) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(f"installing {vendor.title} took longer than {INSTALL_SECONDS} s", "try again") from None
    if done.returncode:
        shutil.rmtree(place() / vendor.name, ignore_errors=True)
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise MachineError(f"{vendor.title} could not be installed: {errors[0].strip()[:300]}", "check pip's index")


def _fitting(minors: Iterable[int]) -> str | None:
    """Return an interpreter of one of these versions that runs, this one if it fits."""
    if sys.version_info[:2] in {(3, minor) for minor in minors}:
        return sys.executable
    names = (f"python3.{minor}" for minor in sorted(minors, reverse=True))
    paths = (path for name in names if (path := shutil.which(name)))
    return next((path for path in paths if _runs(path)), None)


def _runs(path: str) -> bool:
    try:
        done = subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


@cache
def identity(vendor: Environment) -> str:
    """Return a digest of what decides an environment's results: its packages and the helper's script."""
    serving = vendor.worker.with_name("serving.py")
    return "-".join(file_digest(path)[:16] for path in (vendor.requirements, vendor.worker, serving))


LONGEST_ANSWER = 8 << 20
START_SECONDS = 120.0
SECONDS = 600.0
END_SECONDS = 5.0
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
        try:
            answer = json.loads(self._line(seconds))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise self._ended("gave an answer that is no JSON object")
        if not answer.get("ok"):
            raise Refused(f"{self.environment.title}: {answer.get('error', 'no reason given')}")
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
                    raise self._ended(f"took longer than {seconds:g} s", "place the stage elsewhere, or a part of it")
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    raise self._ended(self._end())
                self._rest += data
                if len(self._rest) > LONGEST_ANSWER:
                    raise self._ended(f"answered more than {LONGEST_ANSWER >> 20} MiB")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _end(self) -> str:
        """Return how a helper ended that answers no more; one that goes on without is not waited for."""
        try:
            return f"ended with status {self._process.wait(END_SECONDS)}"
        except subprocess.TimeoutExpired:
            return "closed its answers"

    def _ended(self, what: str, hint: str = "") -> Ended:
        last = self._last_lines()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        hint = hint or f"its environment may be damaged: {self.environment.command}"
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
