"""Atomic file replacement: write a temporary file, sync it and rename it, so that no reader sees a partial file.

Anything but a regular file (a terminal, a pipe, /dev/null) is written to directly.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import struct
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

PREFIX = ".socsched-new-"
"""Name prefix of temporary files and folders."""
STALE_S = 3600
"""Age (s) at which the leftovers of a killed process are removed; no live process goes this long without writing."""


def write_file(path: str | Path, data: str | bytes, mode: int | None = None) -> None:
    """Replace a file by `data` (text as UTF-8); `mode`: new permissions, else unchanged.  Raises OSError."""
    with replacing(path, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)


@contextmanager
def replacing(path: str | Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Yield a binary file that replaces `path` when the block ends without an error.  Raises OSError."""
    if not replaceable(path):
        with open(path, "wb") as file:
            yield file
        return
    place = Path(os.path.realpath(path))  # replace the target of a link and keep the link
    found = _present(place)
    if mode is None and found is not None:
        mode = stat.S_IMODE(found.st_mode)
    aside = place.with_name(f"{PREFIX}{os.urandom(8).hex()}")
    try:
        sweep(place.parent)
        with open(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, place)
        sync_folder(place.parent)
    except OSError as error:
        if error.filename in (None, str(aside), str(place.parent)):
            error.filename = str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Yield a new folder inside `parent` for files to be renamed into place, and remove it at the end.

    A process killed here leaves its folder behind; a process running an hour or more later removes it.  Raises OSError.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=PREFIX))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove the leftovers of killed processes from a folder."""
    for name in os.listdir(parent):
        if name.startswith(PREFIX):
            leftover = parent / name
            with suppress(OSError):  # its owner is still running, or has just finished
                newest = max(path.lstat().st_mtime for path in (leftover, *leftover.rglob("*")))
                if time.time() - newest > STALE_S:
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def replaceable(path: str | Path) -> bool:
    """Return whether `path` is a regular file or does not exist yet; False for anything under /dev or /proc."""
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return False
    found = _present(Path(path))
    return found is None or stat.S_ISREG(found.st_mode)


def is_same_file(one: str | Path, other: str | Path) -> bool:
    """Return whether two names refer to the same existing file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # if the file system cannot sync folders, the rename is still atomic
            os.fsync(handle)
    finally:
        os.close(handle)


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """Return name -> sha256 of all files below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


SOURCES = {".py", ".pxd", ".c", ".cpp", ".h", ".hpp", ".sh", ".json", ".yaml", ".npz"}
_SHIPPED = {"platforms", "pipelines", "studies", "schemas"}
"""Folders of descriptors, which a wheel has inside the package and a checkout next to it."""


@cache
def sources_digest() -> str:
    """Return the sha256 of socsched's own sources, the same from a checkout and from an installed wheel."""
    package = Path(__file__).parent
    total = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.suffix in SOURCES and name.parts[0] not in _SHIPPED and "__pycache__" not in name.parts:
            total.update(f"{name.as_posix()} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class GzipWriter:
    """A file in the gzip format as it is written: no time, no name, the same header from every version of Python."""

    def __init__(self, target: IO[bytes], level: int) -> None:
        """Write the header to `target`."""
        self._target, self._packer = target, zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._check, self._size = 0, 0
        unknown_system = 255
        target.write(struct.pack("<4sIBB", b"\x1f\x8b\x08\0", 0, 0, unknown_system))

    def write(self, data: bytes | memoryview) -> None:
        """Append data to the content."""
        self._check, self._size = zlib.crc32(data, self._check), self._size + len(data)
        self._target.write(self._packer.compress(data))

    def finish(self) -> None:
        """Write what is left and the check of the content; the target stays open."""
        self._target.write(self._packer.flush() + struct.pack("<II", self._check, self._size & 0xFFFFFFFF))


def gzipped(data: bytes, level: int) -> bytes:
    """Return data in the gzip format, as `GzipWriter` writes it."""
    target = io.BytesIO()
    writer = GzipWriter(target, level)
    writer.write(data)
    writer.finish()
    return target.getvalue()


def put_in_place(made: Path, folder: Path, first: str, stale: Iterable[str] = (), whole: str = "") -> None:
    """Move all files of `made` into `folder`, starting with `first`, which lists the others; remove `stale` ones there.

    `made` is on the same file system as `folder`.  The subfolder `whole` is replaced as a unit.  Raises OSError.
    """
    files = [path for path in sorted(made.rglob("*")) if path.is_file()]
    for path in files:
        _sync_file(path)
    os.replace(made / first, folder / first)
    sync_folder(folder)
    if whole:
        if (folder / whole).exists():
            os.rename(folder / whole, made / f"{PREFIX}old")
        os.rename(made / whole, folder / whole)
    for path in files:
        if path.exists():
            target = folder / path.relative_to(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)


def _present(path: Path) -> os.stat_result | None:
    """Return the status of an existing file; PermissionError if it is not writable."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode) and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(path))
    return found
