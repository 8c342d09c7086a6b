"""The content-addressed cache on disk: $SOCSCHED_CACHE, else socsched under the user's cache folder.

An entry appears whole or not at all (written aside, then renamed), so processes may share the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from socsched.errors import MachineError


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


def write_atomic(path: Path, fill: Callable[[Path], None]) -> None:
    """Call `fill` with a path aside and rename the result to `path`; MachineError when the folder is not writable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".new-") as folder:
            aside = Path(folder) / path.name
            fill(aside)
            os.replace(aside, path)
    except OSError as error:
        raise MachineError(
            f"{path}: cannot write: {error.strerror or error}", "free space or set SOCSCHED_CACHE"
        ) from error


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
