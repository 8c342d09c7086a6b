"""The simulation kernel, compiled once a machine and kept in the cache; interpreted where that is not possible.

The kernel is Python that Cython understands (`sim.kernel`).  Its sources are copied, translated and compiled aside, and
the finished package is renamed into place, so that concurrent processes and interrupted builds leave nothing broken.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "socsched_kernel"
MODULES = (
    "codes", "arithmetic", "columns", "events", "memory", "records", "totals", "tables", "slots", "state", "books",
    "reservations", "progress", "orders", "places", "jobs", "queues", "dispatching", "kernel",
)  # fmt: skip
_FLAGS = ("-O2", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing", "-w")
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
    for path in sorted(_sources().glob("*.p[yx]*")):
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
            _build(Path(aside) / "new" / PACKAGE)
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
    for path in _sources().glob("*.p[yx]*"):
        shutil.copy(path, folder)
    print("compiling the simulation kernel (once)", file=sys.stderr)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    command = [sys.executable, "-m", "cython", "-3", *(f"{PACKAGE}/{name}.py" for name in MODULES)]
    for key, value in _DIRECTIVES.items():
        command += ["-X", f"{key}={value}"]
    _run([command], folder.parent)
    link = [compiler, *_FLAGS, f"-I{headers}"]
    _run([[*link, f"{PACKAGE}/{name}.c", "-o", f"{PACKAGE}/{name}{suffix}"] for name in MODULES], folder.parent)
    for path in folder.glob("*.c"):
        path.unlink()


def _run(commands: Sequence[list[str]], folder: Path) -> None:
    """Run commands side by side."""
    started = [
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    ended = [(process.communicate()[0], process.returncode) for process in started]
    for output, code in ended:
        if code:
            raise _Impossible(f"{commands[0][0]} failed:\n{output[-2000:]}")


def _import(home: Path) -> ModuleType:
    """Import the compiled package from its folder, under its own name."""
    if PACKAGE not in sys.modules:
        where = home / PACKAGE
        spec = importlib.util.spec_from_file_location(
            PACKAGE, where / "__init__.py", submodule_search_locations=[str(where)]
        )
        if spec is None or spec.loader is None:
            raise _Impossible(f"{where} is not a package")
        module = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{PACKAGE}.kernel")
