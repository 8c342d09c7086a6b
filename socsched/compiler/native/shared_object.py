"""C code compiled once per machine and kept in the cache; None if that is not possible.

Functions are called through ctypes, which releases the interpreter lock while they run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path

from socsched.cache import unusable
from socsched.compiler.native import compilers
from socsched.compiler.store import library
from socsched.errors import MachineError

_FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-w")


@cache
def build_shared_object(source: Path) -> ctypes.CDLL | None:
    """Return a C file as a shared object, compiled if it is not in the cache; None if that is not possible."""
    compiler = compilers.c_compiler()
    if not compiler or os.environ.get("SOCSCHED_KERNEL") == "python":
        return None
    try:
        return ctypes.CDLL(str(_built(source, compiler)))
    except MachineError as error:
        unusable(str(error))
    except (OSError, subprocess.SubprocessError):
        pass
    return None


def _built(source: Path, compiler: str) -> Path:
    key = f"{platform.machine()} {platform.libc_ver()} {compiler} {_FLAGS}".encode() + source.read_bytes()
    name = f"{source.stem}.so"

    def build(folder: Path) -> None:
        compilers.run([compiler, *_FLAGS, str(source), "-o", name, "-lm"], folder, 120)

    return library("native", hashlib.sha256(key).hexdigest()[:24], name, build)
