"""Version dependencies of cached artefacts and analyses: TVM's versions and socsched's own sources.

Nothing here imports TVM, so that a cache hit costs nothing.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PINNED = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post0"}
"""The only pair known to work: MetaSchedule crashes with the next FFI release."""


@cache
def rule_sources() -> str:
    """Return a digest of the compiler's sources and of the pinned versions."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(repr(PINNED).encode())
    for folder in ("compiler", "graph"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
