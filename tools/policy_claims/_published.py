"""Where the published measurements lie that claims are checked with: the folder of test data, beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def data(*parts: str) -> Path:
    """Return a file or folder of the test data; FileNotFoundError saying where it was looked for."""
    root = Path(os.environ.get("SOCSCHED_SHARED", CHECKOUT.parent / "shared")) / "data"
    path = root.joinpath(*parts)
    if not path.exists():
        raise FileNotFoundError(f"no {'/'.join(parts)} in {root}; set SOCSCHED_SHARED to the folder that holds data/")
    return path
