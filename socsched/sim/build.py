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
from typing import Any

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


def kernel(prefer: str | None = None, segments: int = WORTH) -> Any:
    """Return the class `Kernel` for a simulation of about so many segments, compiled if possible.

    `prefer`, or the variable SOCSCHED_KERNEL: ``compiled`` (fail if that is not possible), ``python`` (interpreted) or
    ``auto``: compiled where it is already or will pay.  Both give the same results.  Raises MachineError with the
    reason when ``compiled`` is asked for in vain.
    """
    from socsched.errors import MachineError

    wanted = prefer or os.environ.get("SOCSCHED_KERNEL") or "auto"
    if wanted == "auto" and "auto" not in _loaded and segments < WORTH and not _ready():
        return _interpreted()
    if wanted not in _loaded:
        if wanted == "python":
            _loaded[wanted] = _interpreted()
        else:
            try:
                _loaded[wanted] = _import(_built()).Kernel
            except _Impossible as reason:
                if wanted == "compiled":
                    raise MachineError(
                        f"the simulation kernel cannot be compiled: {reason}",
                        "install a C compiler and Python's headers, or leave SOCSCHED_KERNEL unset",
                    ) from None
                _loaded["why"] = str(reason)
                _loaded[wanted] = _interpreted()
    return _loaded[wanted]


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


def _digest() -> str:
    try:
        cython = version("cython")
    except PackageNotFoundError:
        raise _Impossible("Cython is not installed") from None
    seen = hashlib.sha256(
        f"{cython}{sys.implementation.cache_tag}{sysconfig.get_platform()}{_FLAGS}{_DIRECTIVES}".encode()
    )
    for path in (*sorted(_sources().glob("*.p[yx]*")), Path(__file__).with_name("merge.py")):
        seen.update(path.name.encode() + path.read_bytes())
    return seen.hexdigest()[:24]


def _home() -> Path:
    from socsched.compile.store import cache_dir

    return cache_dir() / "kernel" / _digest()


def _ready() -> bool:
    try:
        return (_home() / "ready").exists()
    except _Impossible:
        return False


def _built() -> Path:
    """Return the folder with the compiled package, building it the first time."""
    home = _home()
    if not (home / "ready").exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as aside:
            _build(Path(aside) / "new")
            (Path(aside) / "new" / "ready").touch()
            try:
                os.rename(Path(aside) / "new", home)
            except OSError:
                if not (home / "ready").exists():
                    raise
    return home


def _build(folder: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_paths()["include"])
    if not compiler:
        raise _Impossible("there is no C compiler")
    if not (headers / "Python.h").exists():
        raise _Impossible(f"Python's headers are not installed ({headers / 'Python.h'})")
    folder.mkdir(parents=True)
    for text, suffix in zip(merged(_sources(), MODULES), (".py", ".pxd"), strict=True):
        (folder / MODULE).with_suffix(suffix).write_text(text, encoding="utf-8")
    print("compiling the simulation kernel (once)", file=sys.stderr)
    command = [sys.executable, "-m", "cython", "-3", f"{MODULE}.py"]
    for key, value in _DIRECTIVES.items():
        command += ["-X", f"{key}={value}"]
    _run(command, folder)
    _run([compiler, *_FLAGS, f"-I{headers}", f"{MODULE}.c", "-o", _binary()], folder)
    (folder / f"{MODULE}.c").unlink()


def _binary() -> str:
    return f"{MODULE}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise _Impossible(f"{command[0]} failed:\n{done.stdout[-2000:]}")


def _import(home: Path) -> ModuleType:
    """Import the compiled module from its folder, under its own name."""
    if MODULE not in sys.modules:
        spec = importlib.util.spec_from_file_location(MODULE, home / _binary())
        if spec is None or spec.loader is None:
            raise _Impossible(f"{home / _binary()} is no module")
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE] = module
        spec.loader.exec_module(module)
    return sys.modules[MODULE]
