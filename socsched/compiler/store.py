"""Cache folder of build results, keyed by the digest of their inputs, TVM's version and our own sources.

An entry appears completely or not at all (written elsewhere, then renamed), so processes may share the folder, be
killed or run out of space at any time.  Later damage (a truncated file) is detected by digest, and the entry is
rebuilt.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from socsched import files
from socsched.cache import cache_dir, is_private, private
from socsched.errors import MachineError
from socsched.files import file_digest, write_file


def digest(*parts: object) -> str:
    """Return the sha256 of plain data (numbers, text, tuples, mappings, dataclass reprs), the same in every process."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yield a new folder in a folder of the cache, as `files.scratch`; MachineError if it cannot be written."""
    try:
        with files.scratch(parent) as folder:
            yield folder
    except OSError as error:
        if error.filename and not str(error.filename).startswith(str(parent)):  # not the cache: a tool or an input
            raise
        raise _unwritable(parent, error) from error


def require_space(folder: Path, size: int) -> None:
    """Raise OSError unless `size` bytes are free: LLVM terminates the process when a write fails."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"no space left on device ({size / 2**20:.0f} MiB are needed)")


def _unwritable(parent: Path, error: OSError) -> MachineError:
    return MachineError(f"{parent}: cannot write: {error.strerror or error}", "free space or set SOCSCHED_CACHE")


def publish(made: Path, place: Path, whole: Callable[[Path], bool]) -> None:
    """Move the folder `made` to `place`; an existing intact entry is kept, a damaged one is replaced.

    `made` is in a folder of `scratch` on the same file system, which receives the damaged entry.
    """
    with (place.parent / ".lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks: the renames alone keep entries complete
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
        if whole(place):
            return
        try:
            if place.exists():
                os.rename(place, made.parent / "damaged")
            os.rename(made, place)
        except OSError:
            if not whole(place):
                raise


def library(kind: str, key: str, name: str, build: Callable[[Path], None]) -> Path:
    """Return the shared object `name` of cache entry `kind`/`key`, complete and owned by this user or root.

    `build` is called with an output folder if the entry is absent or differs from what was built.  Raises MachineError
    for an unusable cache, and the errors of `build`.
    """
    parent = cache_dir()
    try:
        home = private(parent / kind) / key
    except OSError as error:
        raise _unwritable(parent / kind, error) from error

    def sound(place: Path) -> bool:
        file = place / name
        try:
            kept = all(map(is_private, (place, file, _sum(file))))
            return kept and _sum(file).read_text(encoding="utf-8") == file_digest(file)
        except (OSError, UnicodeDecodeError):
            return False

    if not sound(home):
        with scratch(home.parent) as aside:
            staged = aside / "new"
            staged.mkdir(mode=0o700)
            build(staged)
            (staged / name).chmod(0o700)
            write_file(_sum(staged / name), file_digest(staged / name), 0o600)
            publish(staged, home, sound)
        if not sound(home):
            raise MachineError(f"{home / name}: what was just built cannot be read back", "set SOCSCHED_CACHE")
    return home / name


def _sum(file: Path) -> Path:
    return file.with_name(f"{file.name}.sha256")


def read_json(path: Path) -> Any:
    """Return the parsed file, or None if it is absent or damaged (and to be rebuilt)."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, completely or not at all; MachineError if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(value, indent=1, sort_keys=True))
    except OSError as error:
        raise _unwritable(path.parent, error) from error


# Version dependencies of cached artefacts and analyses: TVM's versions and socsched's own sources.

PINNED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"}
"""The only pair known to work: MetaSchedule crashes with the next FFI release."""


@cache
def rule_sources() -> str:
    """Return a digest of the compiler's sources and of the pinned versions."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(repr(PINNED).encode())
    for folder in ("compiler", "graph"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
