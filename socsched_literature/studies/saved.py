"""What a study leaves: a folder with its data and its figure, both named after the subject."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from socsched.errors import unwritable
from socsched.files import write_file


def save_study(folder: Path, subject: str, document: Mapping[str, Any], figure: str = "", rows: str = "") -> list[Path]:
    """Write ``SUBJECT.json``, ``SUBJECT.svg`` if there is a figure, ``SUBJECT.csv`` of `rows`, and return their paths.

    Raises InputError or MachineError if the folder cannot be written.
    """
    content = {f"{subject}.json": json.dumps({"schema_version": "1", **document}, indent=2)}
    content |= {f"{subject}.svg": figure} if figure else {}
    content |= {f"{subject}.csv": rows.removesuffix("\n")} if rows else {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in content.items():
            write_file(folder / name, f"{text}\n")
    except OSError as error:
        raise unwritable(folder, error) from None
    return [folder / name for name in content]
