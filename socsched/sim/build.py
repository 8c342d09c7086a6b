"""The simulation kernel, compiled once per machine and cached; interpreted where compilation is not possible.

The kernel is Python that Cython understands (`sim.kernel`), translated and compiled once as one C file, so that the
compiler sees every call: between extension modules each would go through a table.  A file that differs from what was
built, or that other users could have changed, is never loaded (function `library` of `compiler.store`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import sysconfig
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from socsched.progress import notice

MODULE, KIND = "socsched_kernel", "kernel"
# -O2 and -O3 give no faster kernel and take more than twice as long to compile.
_FLAGS = (
    "-O1", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off", "-fno-plt", "-finline-limit=200", "-fvisibility=hidden",
    "-w", *(("-mpopcnt",) if platform.machine() in ("x86_64", "AMD64") else ()),
)  # fmt: skip
_CHECKED = (
    "-O1", "-g", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer", "-ffp-contract=off", "-w",
)  # fmt: skip
"""For tests: every access and every addition is checked, and the first fault ends the process.

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


WORTH_COMPILING = 30_000
"""Number of segments from which compiling pays off: interpreting that many takes about as long as compiling."""


def load_kernel(prefer: str | None = None, segments: int = WORTH_COMPILING, words: int = 1) -> Any:
    """Return the class `Kernel` for a simulation of about `segments` segments, compiled if possible.

    `words`: number of 64-slot words needed by the largest engine (`Lowered.tables`); the kernel is compiled separately
    for each number.

    `prefer`, or the variable SOCSCHED_KERNEL: ``compiled`` (fail if that is not possible), ``python`` (interpreted),
    ``auto`` (compiled if already built, or worth building for this simulation and the interpreted ones before it), or
    ``checked`` (compiled for tests).  All give the same results.  Raises MachineError with the reason if ``compiled``
    is requested but not possible.
    """
    from socsched.errors import MachineError

    wanted = prefer or os.environ.get("SOCSCHED_KERNEL") or "auto"
    variant = _Variant(words, wanted == "checked")
    key = f"{wanted} {words}"
    if wanted == "auto" and key not in _loaded:
        # like renting until the rent has cost as much as buying: many small simulations are worth a compiled kernel too
        expect_segments(segments, words)
        if _expected[variant] < WORTH_COMPILING and not _is_cached(variant):
            return _interpreted()
    if key not in _loaded:
        if wanted == "python":
            _loaded[key] = _interpreted()
        else:
            try:
                if variant in _failed:
                    raise _Impossible(_failed[variant])
                _loaded[key] = _import(_build_cached(variant), variant).Kernel
            except _Impossible as reason:
                _failed[variant] = str(reason)
                if wanted != "auto":
                    raise MachineError(
                        f"the simulation kernel cannot be compiled: {reason}",
                        "install a C compiler and Python's headers, or leave SOCSCHED_KERNEL unset",
                    ) from None
                _loaded["why"] = str(reason)
                _loaded[key] = _interpreted()
                notice("kernel", f"simulations run interpreted, which is slower: {reason}")
    return _loaded[key]


def expect_segments(segments: int, words: int = 1) -> None:
    """Count segments that are about to be simulated, by one simulation or by many small ones."""
    variant = _Variant(words, False)
    _expected[variant] = _expected.get(variant, 0) + segments + _SETUP


class _Variant(NamedTuple):
    """A variant of the compiled kernel."""

    words: int
    checked: bool

    @property
    def module(self) -> str:
        """Return the name of the importable module."""
        return MODULE + ("" if self.words == 1 else f"_{self.words}") + ("_checked" if self.checked else "")

    @property
    def binary(self) -> str:
        """Return the file name of the compiled module."""
        return f"{self.module}{sysconfig.get_config_var('EXT_SUFFIX')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags for the C compiler."""
        return (*(_CHECKED if self.checked else _FLAGS), f"-DSOCSCHED_WORDS={self.words}", *_numbers())


@cache
def _numbers() -> tuple[str, ...]:
    """Return the named numbers of the kernel as macros: compiled, a name read from memory would be no constant."""
    from socsched.sim.kernel import values

    named = {name: value for name, value in vars(values).items() if name.isupper() and name != "WORDS"}
    return tuple(f"-DSOCSCHED_{name}={value}LL" for name, value in named.items())


_expected: dict[_Variant, int] = {}
"""Segments simulated so far, or announced, for which a kernel was not loaded yet."""
_SETUP = 260
"""Segments that a simulation counts for beside its own: what simulates a hundred small sets may go on to thousands."""
_failed: dict[_Variant, str] = {}
"""Reason a variant cannot be compiled, kept so that it is not tried again."""


def _interpreted() -> Any:
    from socsched.sim.kernel.kernel import Kernel

    return Kernel


def explain_interpreted() -> str:
    """Return the reason the last `load_kernel()` is interpreted, empty if it is compiled."""
    return str(_loaded.get("why", ""))


class _Impossible(Exception):
    """The kernel cannot be compiled here; the message gives the reason."""


def _sources() -> Path:
    return Path(__file__).with_name("kernel")


def _digest(variant: _Variant) -> str:
    try:
        cython = version("cython")
    except PackageNotFoundError:
        raise _Impossible("Cython is not installed") from None
    seen = hashlib.sha256(
        f"{cython}{sys.implementation.cache_tag}{sysconfig.get_platform()}{variant.flags}{_DIRECTIVES}".encode()
    )
    for path in sorted(_sources().glob("*.p[yx]*")):
        seen.update(path.name.encode() + path.read_bytes())
    return seen.hexdigest()[:24]


@cache
def _is_cached(variant: _Variant) -> bool:
    """Return whether a compiled kernel was in the cache when first asked; loading may still reject it."""
    from socsched.cache import cache_dir
    from socsched.errors import MachineError

    try:
        return (cache_dir() / KIND / _digest(variant) / variant.binary).exists()
    except (_Impossible, MachineError, OSError):
        return False


def _build_cached(variant: _Variant) -> Path:
    """Return the compiled module, building it on first use."""
    from socsched.compiler.store import library
    from socsched.errors import MachineError

    try:
        return library(KIND, _digest(variant), variant.binary, lambda folder: _build(folder, variant))
    except (MachineError, OSError) as error:
        raise _Impossible(str(error)) from None


def _build(folder: Path, variant: _Variant) -> None:
    from socsched.compiler.native import compilers

    compiler = compilers.c_compiler()
    headers = Path(sysconfig.get_paths()["include"])
    if not compiler:
        raise _Impossible("there is no C compiler")
    if not (headers / "Python.h").exists():
        raise _Impossible(f"Python's headers are not installed ({headers / 'Python.h'})")
    texts = [(_sources() / f"{name}.py").read_text(encoding="utf-8") for name in ("stores", "kernel")]
    whole = "".join(text.replace("from __future__ import annotations\n", "") for text in texts)
    (folder / f"{variant.module}.py").write_text(whole, encoding="utf-8")
    declared = (_sources() / "kernel.pxd").read_text(encoding="utf-8")
    (folder / f"{variant.module}.pxd").write_text(declared, encoding="utf-8")
    print("compiling the simulation kernel (once)", file=sys.stderr)
    command = [sys.executable, "-m", "cython", "-3", f"{variant.module}.py"]
    for key, value in _DIRECTIVES.items():
        command += ["-X", f"{key}={value}"]
    try:
        compilers.run(command, folder)
        compile_c = [compiler, *variant.flags, f"-I{headers}", f"{variant.module}.c", "-o", variant.binary]
        compilers.run(compile_c, folder)
    except subprocess.CalledProcessError as error:
        raise _Impossible(f"{error.cmd[0]} failed:\n{error.stdout[-2000:]}") from None
    except subprocess.TimeoutExpired as error:
        raise _Impossible(f"{error.cmd[0]} took longer than {error.timeout:.0f} s") from None
    (folder / f"{variant.module}.c").unlink()


def _import(file: Path, variant: _Variant) -> ModuleType:
    """Import the compiled module from its file, under its own name."""
    name = variant.module
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise _Impossible(f"{file} is not a Python module")
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        except ImportError as error:
            sys.modules.pop(name, None)
            raise _Impossible(f"{file} cannot be loaded: {error}") from None
    return sys.modules[name]
