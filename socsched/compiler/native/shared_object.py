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

SOURCES = tuple(sorted(Path(__file__).with_name("stages").glob("*.[ch]")))
"""The host stages (`native.host_stages`), known without the packages that their callers need."""
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-ffp-contract=off", "-fno-math-errno", "-w")


@cache
def build_shared_object(*sources: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """Return C files as a shared object, compiled if it is not in the cache; None if that is not possible.

    `flags` are those of the compiler beyond `FLAGS`.  Headers among `sources` are part of the cache key.  The object is
    named after the folder of several files.
    """
    compiler = compilers.c_compiler()
    if not compiler or os.environ.get("SOCSCHED_KERNEL") == "python":
        return None
    try:
        return ctypes.CDLL(str(_built(sources, compiler, (*FLAGS, *flags))))
    except MachineError as error:
        unusable(str(error))
    except (OSError, subprocess.SubprocessError):
        pass
    return None


def _built(sources: tuple[Path, ...], compiler: str, flags: tuple[str, ...]) -> Path:
    key = f"{platform.machine()} {platform.libc_ver()} {compiler} {flags}".encode()
    key += b"".join(source.read_bytes() for source in sources)
    name = f"{sources[0].stem if len(sources) == 1 else sources[0].parent.name}.so"
    code = [str(source) for source in sources if source.suffix == ".c"]

    def build(folder: Path) -> None:
        compilers.run([compiler, *flags, *code, "-o", name, "-lm"], folder, 120)

    return library("native", hashlib.sha256(key).hexdigest()[:24], name, build)
