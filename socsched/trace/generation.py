"""Consistency of a result folder: made.json lists the files written together, each with its sha256.

It is put in place before the files it names, so that an interrupted update can be detected.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from socsched.descriptor.json_file import JsonFile
from socsched.errors import InputError
from socsched.files import file_digest

MADE, FILES = "made.json", "files"
"""Command line, versions and machine of the simulation or run in a folder, and the digests of its files."""

_HINT = "simulate or run again with -o, into this folder"


def require_one(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError unless the named files of a folder are those last written together."""
    recorded = _told(folder)
    for name in set(names) & set(recorded):
        try:
            same = file_digest(folder / name) == recorded[name]
        except FileNotFoundError:
            same = False
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be read: {error.strerror}", "check permissions") from None
        if not same:
            raise InputError(
                f"{folder / name}: not from the simulation or run recorded in {MADE}: it was changed, or its "
                "update was interrupted",
                _HINT,
            )


def _told(folder: Path) -> dict[str, Any]:
    """Return the digests a folder was written with; empty for a folder older than this feature."""
    if not (folder / MADE).exists():
        return {}
    document = JsonFile.open(folder / MADE, "list of files", _HINT).data
    digests = document.get(FILES, {}) if isinstance(document, dict) else None
    if not isinstance(digests, dict):
        raise InputError(f"{folder / MADE}: expected names of files and their sha256 in {FILES!r}", _HINT)
    return digests
