"""Compilers of code for boards: Zig's wheel, which links for an old glibc, and NVRTC of the CUDA release of a board.

Both are wheels, installed or fetched once by pip into the cache, not into the user's environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from socsched.cache import cache_place
from socsched.compiler.native import compilers
from socsched.compiler.store import library
from socsched.errors import MachineError
from socsched.progress import notice

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
            compilers.run(command, folder, 60 * _MINUTES)
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
