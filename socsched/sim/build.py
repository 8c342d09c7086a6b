"""The simulation kernel, compiled once a machine and kept in the cache; interpreted where that is not possible.

The kernel is Python that Cython understands (`sim.kernel`).  Its modules are put together as one (`sim.merge`),
translated and compiled aside, and the finished folder is renamed into place, so that concurrent processes and
interrupted builds leave nothing broken.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from socsched.sim.merge import merged

MODULE = "socsched_kernel"
MODULES = (
    "codes", "arithmetic", "columns", "events", "memory", "records", "totals", "tables", "slots", "state", "books",
    "reservations", "credits", "progress", "orders", "places", "jobs", "queues", "guests", "dispatching", "slack",
    "steering", "kernel",
)  # fmt: skip
_FLAGS = (
    "-O3", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off", "-fno-plt", "-finline-limit=200", "-fvisibility=hidden",
    "-w", *(("-mpopcnt",) if platform.machine() in ("x86_64", "AMD64") else ()),
)  # fmt: skip
_CHECKED = (
    "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer", "-ffp-contract=off", "-w",
)  # fmt: skip
"""For tests: every access and every sum is checked, and the first wrong one ends the process.

The process needs the compiler's libasan loaded before anything else (LD_PRELOAD), and PYTHONMALLOC=malloc.
"""
_DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    "infer_types": False,
}

_loaded: dict[str, Any] = {}


WORTH = 30_000
"""Segments from which on compiling pays: about as long as interpreting them takes."""


def kernel(prefer: str | None = None, segments: int = WORTH, words: int = 1) -> Any:
    """Return the class `Kernel` for a simulation of about so many segments, compiled if possible.

    `words`: of 64 lanes, that the largest engine needs (`Lowered.tables`); each number of them is compiled by itself.

    `prefer`, or the variable SOCSCHED_KERNEL: ``compiled`` (fail if that is not possible), ``python`` (interpreted) or
    ``auto``: compiled where it is already or will pay, or ``checked``: compiled for tests.  All give the same results.
    Raises MachineError with the
    reason when ``compiled`` is asked for in vain.
    """
    from socsched.errors import MachineError

    wanted = prefer or os.environ.get("SOCSCHED_KERNEL") or "auto"
    flavour = _Flavour(words, wanted == "checked")
    key = f"{wanted} {words}"
    if wanted == "auto" and key not in _loaded and segments < WORTH and not _ready(flavour):
        return _interpreted()
    if key not in _loaded:
        if wanted == "python":
            _loaded[key] = _interpreted()
        else:
            try:
                if flavour in _failed:
                    raise _Impossible(_failed[flavour])
                _loaded[key] = _import(_built(flavour), flavour).Kernel
            except _Impossible as reason:
                _failed[flavour] = str(reason)
                if wanted != "auto":
                    raise MachineError(
                        f"the simulation kernel cannot be compiled: {reason}",
                        "install a C compiler and Python's headers, or leave SOCSCHED_KERNEL unset",
                    ) from None
                _loaded["why"] = str(reason)
                _loaded[key] = _interpreted()
    return _loaded[key]


class _Flavour(NamedTuple):
    """One way of compiling the kernel."""

    words: int
    checked: bool

    @property
    def module(self) -> str:
        """The name it is imported by."""
        return MODULE + ("" if self.words == 1 else f"_{self.words}") + ("_checked" if self.checked else "")

    @property
    def flags(self) -> tuple[str, ...]:
        """What the C compiler is given."""
        return (*(_CHECKED if self.checked else _FLAGS), f"-DSOCSCHED_WORDS={self.words}")


_failed: dict[_Flavour, str] = {}
"""Why a flavour cannot be compiled, so that it is not tried again."""


def _interpreted() -> Any:
    from socsched.sim.kernel.kernel import Kernel

    return Kernel


def why_interpreted() -> str:
    """Return why the last `kernel()` is interpreted, empty when it is compiled."""
    return str(_loaded.get("why", ""))


class _Impossible(Exception):
    """The kernel cannot be compiled here, and why."""


def _sources() -> Path:
    return Path(__file__).with_name("kernel")


def _digest(flavour: _Flavour) -> str:
    try:
        cython = version("cython")
    except PackageNotFoundError:
        raise _Impossible("Cython is not installed") from None
    seen = hashlib.sha256(
        f"{cython}{sys.implementation.cache_tag}{sysconfig.get_platform()}{flavour.flags}{_DIRECTIVES}".encode()
    )
    for path in (*sorted(_sources().glob("*.p[yx]*")), Path(__file__).with_name("merge.py")):
        seen.update(path.name.encode() + path.read_bytes())
    return seen.hexdigest()[:24]


def _home(flavour: _Flavour) -> Path:
    from socsched.compile.store import cache_dir

    return cache_dir() / "kernel" / _digest(flavour)


def _ready(flavour: _Flavour) -> bool:
    try:
        return (_home(flavour) / "ready").exists()
    except _Impossible:
        return False


def _built(flavour: _Flavour) -> Path:
    """Return the folder with the compiled package, building it the first time."""
    home = _home(flavour)
    if not (home / "ready").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as aside:
            _build(Path(aside) / "new", flavour)
            (Path(aside) / "new" / "ready").touch()
            try:
                os.rename(Path(aside) / "new", home)
            except OSError:
                if not (home / "ready").exists():
                    raise
    return home


def _build(folder: Path, flavour: _Flavour) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_paths()["include"])
    if not compiler:
        raise _Impossible("there is no C compiler")
    if not (headers / "Python.h").exists():
        raise _Impossible(f"Python's headers are not installed ({headers / 'Python.h'})")
    folder.mkdir(parents=True)
    for text, suffix in zip(merged(_sources(), MODULES), (".py", ".pxd"), strict=True):
        (folder / flavour.module).with_suffix(suffix).write_text(text, encoding="utf-8")
    print("compiling the simulation kernel (once)", file=sys.stderr)
    command = [sys.executable, "-m", "cython", "-3", f"{flavour.module}.py"]
    for key, value in _DIRECTIVES.items():
        command += ["-X", f"{key}={value}"]
    _run(command, folder)
    _run([compiler, *flavour.flags, f"-I{headers}", f"{flavour.module}.c", "-o", _binary(flavour)], folder)
    (folder / f"{flavour.module}.c").unlink()


def _binary(flavour: _Flavour) -> str:
    return f"{flavour.module}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise _Impossible(f"{command[0]} failed:\n{done.stdout[-2000:]}")


def _import(home: Path, flavour: _Flavour) -> ModuleType:
    """Import the compiled module from its folder, under its own name."""
    name, file = flavour.module, home / _binary(flavour)
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise _Impossible(f"{file} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
