"""C compiled once a machine and kept in the cache; nothing where there is no compiler.

Sources are compiled aside and renamed into place, so that concurrent processes and interrupted builds leave nothing
broken.  Functions are called through ctypes, which lets the interpreter go while they run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

from socsched.compile.store import cache_dir, scratch
from socsched.errors import MachineError

_FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-w")


@cache
def shared_object(source: Path) -> ctypes.CDLL | None:
    """Return a C file as a shared object, compiled now if it is not in the cache; None where that is not possible."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler or os.environ.get("SOCSCHED_KERNEL") == "python":
        return None
    try:
        return ctypes.CDLL(str(_built(source, compiler)))
    except (OSError, MachineError, subprocess.CalledProcessError):
        return None


def _built(source: Path, compiler: str) -> Path:
    key = f"{platform.machine()} {platform.libc_ver()} {compiler} {_FLAGS}".encode() + source.read_bytes()
    home = cache_dir() / "native" / hashlib.sha256(key).hexdigest()[:24]
    file = home / f"{source.stem}.so"
    if not file.exists():
        with scratch(home.parent) as aside:
            made = aside / "new"
            made.mkdir()
            command = [compiler, *_FLAGS, str(source), "-o", str(made / file.name), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            try:
                os.rename(made, home)
            except OSError:
                if not file.exists():  # else somebody was faster
                    raise
    return file
