"""Descriptor files by name: the search path for platforms and pipelines, and the names available.

Search order of a name: an explicit path, the folders of $SOCSCHED_PATH, the current folder, the user's folder, the
files shipped with socsched.  Each of these folders holds ``platforms/NAME.yaml``, ``pipelines/NAME.yaml`` and
``studies/NAME.yaml``.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from pathlib import Path

from socsched.errors import UsageError

KINDS = ("platforms", "pipelines", "studies")
SUFFIXES = (".yaml", ".yml")


def folders(kind: str) -> list[Path]:
    """Return the existing folders with descriptors of `kind` ("platforms" or "pipelines"), in search order."""
    roots = [Path(entry) for entry in os.environ.get("SOCSCHED_PATH", "").split(os.pathsep) if entry]
    candidates = [*(root / kind for root in [*roots, Path(), _user_folder()]), *_shipped(kind)]
    unique = {str(folder.absolute()): folder for folder in reversed(candidates) if folder.is_dir()}
    return list(reversed(unique.values()))


def names(kind: str) -> list[str]:
    """Return the names of all descriptors of `kind` that `find` accepts, sorted."""
    return sorted({path.stem for folder in folders(kind) for path in _files(folder)})


def find(kind: str, name_or_path: str) -> Path:
    """Return the file of a descriptor; UsageError with the nearest names if it does not exist.

    Text with a path separator or a YAML suffix is a path, anything else a name.
    """
    if is_path(name_or_path):
        path = Path(os.path.expanduser(name_or_path))
        if path.is_file():
            return path
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise UsageError(f"{name_or_path}: {what}", f"expected a {_one(kind)} file or one of: {', '.join(names(kind))}")
    for folder in folders(kind):
        for suffix in SUFFIXES:
            if (folder / f"{name_or_path}{suffix}").is_file():
                return folder / f"{name_or_path}{suffix}"
    raise UsageError(f"no {_one(kind)} is called {name_or_path!r}", _hint(kind, name_or_path))


def is_path(name_or_path: str) -> bool:
    """Return whether text given for a descriptor is a path rather than a name."""
    separators = {"/", os.sep, os.altsep or os.sep}
    return name_or_path.lower().endswith(SUFFIXES) or any(separator in name_or_path for separator in separators)


def nearest(name: str, known: Iterable[str], count: int = 4) -> list[str]:
    """Return the likely matches for `name`: known names that start with it, else those that contain or resemble it."""
    plain, names_ = name.lower(), list(dict.fromkeys(known))
    if plain:
        for found in (
            [other for other in names_ if other.lower().startswith(plain)],
            [other for other in names_ if plain in other.lower()],
        ):
            if found:
                return found[:count]
    return difflib.get_close_matches(name, names_, n=count, cutoff=0.4)


def _hint(kind: str, name: str) -> str:
    known = names(kind)
    near = nearest(name, known)
    listed = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}"
    shows = f"`socsched {kind} list` shows all; " if kind in KINDS[:2] else ""
    return f"{listed} ({shows}a path to a YAML file works too)"


def _one(kind: str) -> str:
    return "study" if kind == "studies" else kind[:-1]


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file()]


def _user_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.environ.get("APPDATA")
    return (Path(base) if base else Path(os.path.expanduser("~/.config"))) / "socsched"


def _shipped(kind: str) -> list[Path]:
    """Return the possible folders of the shipped files: inside the package (installed) or next to it (a checkout)."""
    package = Path(__file__).parent
    return [package / kind, package.parent / kind]
