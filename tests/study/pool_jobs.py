"""Jobs of pool workers in tests; in a module, since processes import them by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any


def squares(folder: str) -> Callable[[Any], Any]:
    """Return a function of (what, number): squares, dies, dies once, raises."""

    def call(job: tuple[str, int]) -> int:
        what, number = job
        if what in ("die", "die once"):
            mark = Path(folder) / str(number)
            if what == "die" or not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        if what == "raise":
            raise ValueError(f"no {number}")
        return number * number

    return call
