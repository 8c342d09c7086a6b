"""Cache for expensive results: $SOCSCHED_CACHE, else socsched under the user's cache folder.

Cached content is loaded and executed, so the cache uses only folders writable by no user but this one and root.  In a
folder shared by several users (one with the sticky bit, such as /tmp) each user gets a private subfolder.  Caching is
best effort: an unusable cache costs time, never a result.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from socsched.errors import MachineError
from socsched.files import write_file
from socsched.progress import notice

_HINT = "set SOCSCHED_CACHE to a folder that you own"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_place() -> Path:
    """Return the chosen folder, whether it exists or not; MachineError if the user has no home folder."""
    if "SOCSCHED_CACHE" in os.environ:
        return Path(os.environ["SOCSCHED_CACHE"])
    if sys.platform != "darwin" and os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "socsched"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():
        raise MachineError("no cache folder: this user has no home folder", _HINT)
    return home / ("Library/Caches/socsched" if sys.platform == "darwin" else ".cache/socsched")


def cache_dir() -> Path:
    """Return the cache folder, created if absent; MachineError if that fails or if other users may write to it."""
    folder = cache_place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise MachineError(f"{folder}: this cache folder belongs to another user (uid {found.st_uid})", _HINT)
        if found.st_mode & _OTHERS:
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                raise MachineError(f"{folder}: any user may rename files in this cache folder", _HINT)
            folder = private(folder / f"user-{os.geteuid()}")
    except OSError as error:
        raise MachineError(f"{folder}: cannot use this cache folder: {error.strerror}", _HINT) from error
    return folder


def private(folder: Path) -> Path:
    """Create `folder` in a trusted folder and return it; MachineError if it belongs to another user or is a link.

    If it belongs to the user but others may write to it, as with a umask of 002, their write permission is removed.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        raise MachineError(
            f"{folder}: not a folder of this user (uid {found.st_uid}), so its files are not used", _HINT
        )
    if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    return folder


def is_private(path: Path) -> bool:
    """Return whether a path belongs to this user or root and is writable by no other user; False for a link."""
    found = path.lstat()
    return not stat.S_ISLNK(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS


def recall(kind: str, key: str) -> Any:
    """Return the value cached as `kind`/`key`, None if it is absent, damaged or the cache is unusable."""
    try:
        return json.loads((cache_dir() / kind / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MachineError):
        return None


def keep(kind: str, key: str, value: Any) -> None:
    """Cache plain data as `kind`/`key`; if the cache is unusable, print one line about it."""
    try:
        folder = cache_dir() / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        write_file(folder / f"{key}.json", json.dumps(value, indent=1, sort_keys=True))
    except MachineError as error:
        unusable(str(error))
    except OSError as error:
        unusable(f"{folder}: {error.strerror}")


@contextmanager
def alone(kind: str) -> Iterator[None]:
    """Let one process at a time make what is cached as `kind`: the others find it when their turn comes.

    Where the cache is unusable, no process waits.
    """
    with ExitStack() as held:
        with suppress(OSError, MachineError):
            lock = held.enter_context((cache_dir() / f"{kind}.lock").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process ends, however it ends
        yield


def check() -> None:
    """Report an unusable cache now, on behalf of worker processes, which do not print."""
    try:
        folder = cache_dir()
        write_file(folder / "check", b"x" * 4096)
        (folder / "check").unlink(missing_ok=True)
    except MachineError as error:
        unusable(str(error))
    except OSError as error:
        unusable(f"{folder}: {error.strerror}")


def unusable(why: str) -> None:
    """Report once the reason why the cache is not used."""
    notice("cache", f"results are not cached: {why}")
