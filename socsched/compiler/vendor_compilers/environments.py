"""Vendors' compilers as packages of Python, each in an environment of its own.

Their packages need other versions of Python and numpy than socsched, and one replaces the library that another brings.
An environment is a folder with `bin/python`, made by `socsched doctor --install NAME` from a pinned list of packages
(`requirements/NAME.txt`); nothing of a vendor is part of socsched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from socsched.cache import is_private
from socsched.errors import MachineError, UsageError
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
        found = self.python()
        if found is None:
            raise MachineError(f"{self.title} is not installed", self.command)
        return found


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


def install(wanted: Environment, note: Callable[[str], None]) -> Path:
    """Make an environment, or make it anew, and return its interpreter.

    The packages come from the index that pip is configured for, as wheels only, without their dependencies: the list is
    complete.  Raises MachineError if no fitting Python is installed or pip fails.
    """
    python = _fitting(wanted.pythons)
    if python is None:
        versions = " or ".join(f"3.{minor}" for minor in wanted.pythons)
        raise MachineError(f"{wanted.title} needs Python {versions}, none is on PATH", f"install Python {versions}")
    target = place() / wanted.name
    note(f"{wanted.title} {wanted.version}, about {wanted.megabytes} MB, into {target}")
    note(f"licence: {wanted.licence}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".old-") as old:
            if target.is_symlink():
                target.unlink()
            elif target.exists():
                target.rename(Path(old) / "environment")
        _run([python, "-m", "venv", str(target)], wanted)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
        _run([*pip, "--no-input", "--disable-pip-version-check", "-r", str(wanted.requirements)], wanted)
    except OSError as error:
        raise MachineError(f"{target}: {error.strerror or error}", "set SOCSCHED_VENDORS to another folder") from error
    return target / "bin" / "python"


def _run(command: list[str], wanted: Environment) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise MachineError(f"installing {wanted.title} took longer than {INSTALL_SECONDS} s", "try again") from None
    if done.returncode:
        shutil.rmtree(place() / wanted.name, ignore_errors=True)
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise MachineError(f"{wanted.title} could not be installed: {errors[0].strip()[:300]}", "check pip's index")


def _fitting(minors: Iterable[int]) -> str | None:
    """Return an interpreter of one of these versions that runs, this one if it fits."""
    if sys.version_info[:2] in {(3, minor) for minor in minors}:
        return sys.executable
    names = (f"python3.{minor}" for minor in sorted(minors, reverse=True))
    found = (path for name in names if (path := shutil.which(name)))
    return next((path for path in found if _runs(path)), None)


def _runs(path: str) -> bool:
    try:
        done = subprocess.run([path, "-c", "import venv, ensurepip"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


@cache
def identity(wanted: Environment) -> str:
    """Return a digest of what decides an environment's results: its packages and the helper's script."""
    serving = wanted.worker.with_name("serving.py")
    return "-".join(file_digest(path)[:16] for path in (wanted.requirements, wanted.worker, serving))
