"""The content-addressed cache on disk: $SOCSCHED_CACHE, else socsched under the user's cache folder.

An entry appears whole or not at all (written aside, then renamed), so processes may share the folder, be killed or run
out of space at any time.  What is damaged afterwards (a truncated file) is found by its digest and built again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from socsched.errors import MachineError

PREFIX = ".new-"
STALE_S = 3600
"""Age (s) at which what a killed process left is removed; no build is silent for so long."""


def cache_dir() -> Path:
    """Return the cache folder, created if absent; MachineError when it cannot be."""
    if "SOCSCHED_CACHE" in os.environ:
        folder = Path(os.environ["SOCSCHED_CACHE"])
    elif sys.platform == "darwin":
        folder = Path.home() / "Library/Caches/socsched"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "socsched"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"{folder}: cannot use this cache folder: {error.strerror}", "set SOCSCHED_CACHE") from error
    return folder


def digest(*parts: object) -> str:
    """Return the sha256 of plain data (numbers, text, tuples, mappings, dataclass reprs), the same in every process."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yield a new folder inside `parent`, for what is then renamed into place, and remove it in the end.

    A process killed here leaves its folder behind; whoever comes an hour later sweeps it away.  Raises MachineError
    when the folder cannot be written or the disk is full.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
    except OSError as error:
        raise _unwritable(parent, error) from error
    try:
        yield folder
    except OSError as error:
        if error.filename and not str(error.filename).startswith(str(parent)):  # something else, a tool or an input
            raise
        raise _unwritable(parent, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_space(folder: Path, size: int) -> None:
    """Raise OSError unless `size` bytes are free: LLVM ends the whole process when a write fails."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, f"no space left on device ({size / 2**20:.0f} MiB are needed)")


def _unwritable(parent: Path, error: OSError) -> MachineError:
    return MachineError(f"{parent}: cannot write: {error.strerror or error}", "free space or set SOCSCHED_CACHE")


def _sweep(parent: Path) -> None:
    for leftover in parent.glob(f"{PREFIX}*"):
        try:
            newest = max(path.lstat().st_mtime for path in (leftover, *leftover.rglob("*")))
        except OSError:  # its owner is at work, or has just finished
            continue
        if time.time() - newest > STALE_S:
            shutil.rmtree(leftover, ignore_errors=True)


def publish(made: Path, place: Path, whole: Callable[[Path], bool]) -> None:
    """Move the folder `made` to `place`; whoever comes second keeps the first one's, a damaged one is replaced.

    `made` lies in a folder of `scratch`, on the same file system, which takes what was damaged.
    """
    with (place.parent / ".lock").open("w") as lock:
        with suppress(OSError):  # a file system without locks: the renames alone still keep entries whole
            fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the process ends, however it ends
        if whole(place):
            return
        try:
            if place.exists():
                os.rename(place, made.parent / "damaged")
            os.rename(made, place)
        except OSError:
            if not whole(place):
                raise


def write_atomic(path: Path, fill: Callable[[Path], None]) -> None:
    """Call `fill` with a path aside and rename the result to `path`; MachineError when the folder is not writable."""
    with scratch(path.parent) as folder:
        aside = folder / path.name
        fill(aside)
        os.replace(aside, path)


def read_json(path: Path) -> Any:
    """Return the parsed file, or None when it is absent or damaged (it is then to be built again)."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, atomically."""
    text = json.dumps(value, indent=1, sort_keys=True)

    def fill(aside: Path) -> None:
        aside.write_text(text)

    write_atomic(path, fill)
