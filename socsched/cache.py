"""Where results that are dear to work out are kept: $SOCSCHED_CACHE, else socsched under the user's cache folder.

What lies there is loaded and executed, so only folders that the user and root alone can write to are used.  A
folder shared by several users (one with the sticky bit, as /tmp) gets a private folder for each inside.  Values are
kept where that is possible: a cache that cannot be used costs time, never a result.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from socsched.errors import MachineError
from socsched.files import write_file
from socsched.progress import notice

_HINT = "set SOCSCHED_CACHE to a folder of your own"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_place() -> Path:
    """Return which folder was chosen, whether it exists or not; MachineError where the user has no home."""
    if "SOCSCHED_CACHE" in os.environ:
        return Path(os.environ["SOCSCHED_CACHE"])
    if sys.platform != "darwin" and os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "socsched"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():
        raise MachineError("no cache folder: this user has no home folder", _HINT)
    return home / ("Library/Caches/socsched" if sys.platform == "darwin" else ".cache/socsched")


def cache_dir() -> Path:
    """Return the cache folder, created if absent; MachineError when it cannot be, or others may write to it."""
    folder = cache_place()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid not in (0, os.geteuid()):
            raise MachineError(f"{folder}: this cache folder belongs to another user (uid {found.st_uid})", _HINT)
        if found.st_mode & _OTHERS:
            if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
                raise MachineError(f"{folder}: everybody may rename what lies in this cache folder", _HINT)
            folder = private(folder / f"user-{os.geteuid()}")
    except OSError as error:
        raise MachineError(f"{folder}: cannot use this cache folder: {error.strerror}", _HINT) from error
    return folder


def private(folder: Path) -> Path:
    """Make `folder` in a folder that is trusted, and return it; MachineError where it is another user's or a link.

    One of the user's that others may write to, as with a umask of 002, is closed to them.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, os.geteuid()):
        raise MachineError(f"{folder}: not a folder of this user (uid {found.st_uid}): nothing in it is used", _HINT)
    if found.st_mode & _OTHERS and found.st_uid == os.geteuid():
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    return folder


def own(path: Path) -> bool:
    """Return whether a file or folder is this user's or root's, and only theirs to write; False for a link."""
    found = path.lstat()
    return not stat.S_ISLNK(found.st_mode) and found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS


def recall(kind: str, key: str) -> Any:
    """Return what was kept as `kind`/`key`, None where it is absent, damaged or there is no usable cache."""
    try:
        return json.loads((cache_dir() / kind / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, MachineError):
        return None


def keep(kind: str, key: str, value: Any) -> None:
    """Keep plain data as `kind`/`key` if the cache can be used; otherwise one line says that it is not kept."""
    try:
        folder = cache_dir() / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        write_file(folder / f"{key}.json", json.dumps(value, indent=1, sort_keys=True))
    except MachineError as error:
        unusable(str(error))
    except OSError as error:
        unusable(f"{folder}: {error.strerror}")


def check() -> None:
    """Say now if nothing can be kept, for processes that work for this one and keep quiet."""
    try:
        folder = cache_dir()
        write_file(folder / "check", b"x" * 4096)
        (folder / "check").unlink(missing_ok=True)
    except MachineError as error:
        unusable(str(error))
    except OSError as error:
        unusable(f"{folder}: {error.strerror}")


def unusable(why: str) -> None:
    """Say once why the cache is not used."""
    notice("cache", f"nothing is kept for the next time: {why}")
