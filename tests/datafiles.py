"""The folder of test data and the reader of its documents; tests/data/README.md names the sources."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def read(name: str) -> Any:
    """Return the content of a JSON file of tests/data, which is compressed where it ends in .xz."""
    content = (DATA / name).read_bytes()
    return json.loads(lzma.decompress(content) if name.endswith(".xz") else content)
