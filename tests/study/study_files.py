"""Types that tests of studies share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

Writer = Callable[..., Path]
