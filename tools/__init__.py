"""Scripts about socsched that users of the package do not need; README.md in this folder lists them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout."""
DATA = ROOT / "tests" / "data"
"""Published measurements and results that tools and tests compare with."""
