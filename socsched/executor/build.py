"""The native executor, built on first use and kept in the cache; cross-built for boards."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from socsched.cache import alone
from socsched.compiler.native import compilers
from socsched.compiler.native.compilers import FLAGS, GLIBC
from socsched.compiler.native.compilers import SOURCES as STAGES
from socsched.compiler.store import library, scratch
from socsched.errors import MachineError
from socsched.progress import notice, tell

NAME = "socsched-executor"
SOURCES = Path(__file__).with_name("native")
ADAPTER, PARTS = "_adapter", 8
_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-pthread")
_STAGE_FLAGS = tuple(flag for flag in FLAGS if flag not in ("-fPIC", "-shared"))
"""Host stages are C, and their results must equal those of the shared object that Python calls."""
_LINKED = ("-ldl", "-lm", "-static-libstdc++", "-static-libgcc")
"""The C++ library is linked in, so that a board needs the C library only."""
_EXPORTED = "{ global: TVMFFIErrorSetRaisedFromCStrParts; local: *; };\n"
"""What compiled kernels call; nothing else, so that vendors' libraries find no symbol of the linked C++ library.

Zig's linker exports more, but its C++ library has names of its own (std::__1).
"""
_HINT = "install g++ or clang++ (build-essential), or set CXX"


def cxx_compiler() -> str | None:
    """Return the C++ compiler of this machine: $CXX, c++, g++ or clang++."""
    return os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


@cache
def find_executor() -> Path | None:
    """Return the native executor of this machine, built if it is not in the cache; None without a C++ compiler.

    Raises MachineError if it cannot be built.
    """
    compiler = cxx_compiler()
    if not compiler:
        return None
    return build_executor((compiler,), platform.machine())


def require_executor() -> Path:
    """Return the native executor of this machine; MachineError where it cannot be built."""
    if (found := find_executor()) is None:
        raise MachineError("running a plan needs a C++ compiler, and there is none", _HINT)
    return found


def build_executor(compiler: Sequence[str], machine: str, flags: tuple[str, ...] = ()) -> Path:
    """Return the executor for `machine` as built by a compiler command; MachineError if it fails."""
    sources = sorted((*SOURCES.iterdir(), *STAGES))
    key = hashlib.sha256(
        f"{machine} {platform.libc_ver()} {[*compiler]} {_FLAGS} {_STAGE_FLAGS} {_LINKED} {_EXPORTED} {flags}".encode()
    )
    for source in sources:
        key.update(source.name.encode() + b"\0" + source.read_bytes())
    include = (f"-I{STAGES[0].parent}", f"-I{SOURCES}")

    def build(folder: Path) -> None:
        notice(f"executor for {machine}", f"building the native executor for {machine} (half a minute, once)")
        with scratch(folder.parent) as aside:

            def compile_one(source: Path) -> str:
                how = ("-x", "c", *_STAGE_FLAGS) if source.suffix == ".c" else (*_FLAGS, *include)
                made = f"{aside / source.name}.o"
                compilers.run([*compiler, *how, *flags, "-c", str(source), "-o", made], aside, 600)
                return made

            code = _units(sources, aside)
            objects: list[str] = []
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                for made in pool.map(compile_one, code):
                    objects.append(made)
                    tell("building the native executor", len(objects), len(code), "files")
            (aside / "exported").write_text(_EXPORTED)
            exports = ("-rdynamic", f"-Wl,--version-script={aside / 'exported'}")
            compilers.run([*compiler, *_FLAGS, *flags, *objects, "-o", NAME, *_LINKED, *exports], folder, 600)

    try:
        with alone(NAME):  # the installation builds it too, and is awaited
            return library("executor", key.hexdigest()[:24], NAME, build)
    except subprocess.CalledProcessError as error:
        raise MachineError(f"the native executor cannot be built: {str(error.output)[-2000:]}", _HINT) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"the native executor cannot be built: {error}", _HINT) from error


def _units(sources: Sequence[Path], folder: Path) -> list[Path]:
    """Return what is compiled at once: C files, adapters of vendors' types, the rest in as many parts as processors.

    Most of a small file's time goes into the headers of the C++ library, which a part reads once.
    """
    code = [one for one in sources if one.suffix == ".cpp"]
    apart = [one for one in sources if one.suffix == ".c" or one.stem.endswith(ADAPTER)]
    parts: list[list[Path]] = [[] for _ in range(min(os.cpu_count() or 1, PARTS))]
    for source in sorted(set(code) - set(apart), key=lambda one: (-one.stat().st_size, one.name)):
        min(parts, key=lambda part: sum(one.stat().st_size for one in part)).append(source)
    units = [folder / f"part{number}.cpp" for number in range(len(parts))]
    for unit, part in zip(units, parts, strict=True):
        unit.write_text("".join(f'#include "{source.name}"\n' for source in part))
    return units + apart


def newest_glibc(program: bytes) -> tuple[int, int]:
    """Return the newest version of glibc that a program's symbols ask for, (0, 0) for none."""
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", program)
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


def glibc_note(program: bytes, machine: str) -> str:
    """Return what to say of a program that the oldest boards cannot start, "" if they can."""
    if (newest := newest_glibc(program)) <= GLIBC:
        return ""
    return (
        f"the native executor for {machine} needs glibc {_dotted(newest)}, since its compiler links against that one; "
        f"with Zig (pip install ziglang) it needs {_dotted(GLIBC)}"
    )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
