"""Files replaced whole: written aside, put on the disk and renamed into place, so that no reader sees half of one.

What is no regular file (a terminal, a pipe, /dev/null) is written to as it is.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

STALE_S = 3600
"""Age (s) at which what a killed process left aside is removed."""


def write_file(path: str | Path, data: str | bytes, mode: int | None = None) -> None:
    """Replace a file by `data` (text as UTF-8); `mode`: its permissions, else those it has.  Raises OSError."""
    with replacing(path, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: str | Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Yield a binary file that takes the place of `path` when the block ends without an error.  Raises OSError."""
    if not replaceable(path):
        with open(path, "wb") as file:
            yield file
        return
    place = Path(os.path.realpath(path))  # what a link points to is replaced, the link stays
    found = _present(place)
    _sweep(place)
    aside = place.with_name(f".{place.name[:200]}.{os.getpid()}.{os.urandom(4).hex()}.new")
    try:
        with open(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b") as file:
            if mode is None and found is not None:
                mode = stat.S_IMODE(found.st_mode)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, place)
        sync_folder(place.parent)
    except OSError as error:
        error.filename = str(path) if error.filename in (None, str(aside)) else error.filename
        raise
    finally:
        aside.unlink(missing_ok=True)


def replaceable(path: str | Path) -> bool:
    """Return whether `path` is a regular file or none yet; what processes hand each other (/dev, /proc) never is."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return False
    found = _present(Path(path))
    return found is None or stat.S_ISREG(found.st_mode)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that cannot: the rename is whole all the same
            os.fsync(handle)
    finally:
        os.close(handle)


def _present(path: Path) -> os.stat_result | None:
    """Return what is known of an existing file; PermissionError where it may not be written."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode) and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    return found


def _sweep(place: Path) -> None:
    """Remove what killed processes left aside of this file."""
    for name in os.listdir(place.parent):
        if name.startswith(f".{place.name[:200]}.") and name.endswith(".new"):
            leftover = place.with_name(name)
            with suppress(OSError):
                if time.time() - leftover.lstat().st_mtime > STALE_S:
                    leftover.unlink()
