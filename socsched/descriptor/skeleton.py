"""A starter platform file: commented, valid, and all placeholders."""

from __future__ import annotations

import re
from pathlib import Path

from socsched.descriptor.fields import NAME_PATTERN
from socsched.errors import UsageError, unwritable

_TEMPLATE = Path(__file__).with_name("skeleton.yaml")


def write_skeleton(name: str, file: Path) -> Path:
    """Write the skeleton of platform `name` to `file` and return it.

    Raises UsageError for an invalid platform name and for a file that exists, MachineError or InputError if it cannot
    be written.
    """
    if not re.fullmatch(NAME_PATTERN, name) or len(name) > 64:
        raise UsageError(f"{name!r} cannot be the name of a platform", f"expected {NAME_PATTERN}, such as my-board")
    text = _TEMPLATE.read_text(encoding="utf-8").replace("@NAME@", name)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise UsageError(f"{file} already exists", "choose another file with -o, or edit the existing one") from None
    except OSError as error:
        raise unwritable(file, error) from None
    return file
