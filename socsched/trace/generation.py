"""Which files of a result folder were written together: made.json names each with its sha256.

It is put in place before the files it names, so that a folder whose update was cut off says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.files import file_digest, sync_file, sync_folder

MADE, FILES = "made.json", "files"
"""Command line, versions and machine of the simulation or run in a folder, and the digests of what it wrote there."""

_HINT = "simulate or run again with -o into this folder"


def digests(folder: Path) -> dict[str, str]:
    """Return name -> sha256 of all files below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in files}


def put_in_place(made: Path, folder: Path, first: str, stale: Iterable[str] = ()) -> None:
    """Move all files of `made` into `folder`, the one that names the others first, and remove `stale` ones there.

    `made` lies on the file system of `folder`.  Raises OSError.
    """
    files = [path for path in sorted(made.rglob("*")) if path.is_file()]
    for path in files:
        sync_file(path)
    for path in sorted(files, key=lambda path: path.name != first):
        target = folder / path.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
        if path.name == first:
            sync_folder(folder)
    for name in stale:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)


def require_one(folder: Path) -> None:
    """Raise InputError unless the files in a folder are those that were written together."""
    told = _told(folder)
    for name, digest in told.items():
        try:
            same = file_digest(folder / name) == digest
        except FileNotFoundError:
            same = False
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be read: {error.strerror}", "check permissions") from None
        if not same:
            raise InputError(
                f"{folder / name}: not of the simulation or run that {MADE} tells of: it was changed, or its update "
                "was cut off",
                _HINT,
            )


def _told(folder: Path) -> dict[str, Any]:
    """Return the digests a folder was written with; none where it is older than they are."""
    try:
        found = json.loads((folder / MADE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / MADE}: cannot be read: {error}", _HINT) from None
    told = found.get(FILES, {}) if isinstance(found, dict) else None
    if not isinstance(told, dict) or not all(Path(name).name == name for name in told):
        raise InputError(f"{folder / MADE}: expected names of files and their sha256 in {FILES!r}", _HINT)
    return told
