"""SQLite files of others, opened so that reading one neither changes it nor runs for longer than its size explains."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

_EVERY = 100_000
_STEPS = 2 * 10**9
"""Instructions of SQLite's virtual machine for one file; a view in a hostile file could take forever."""


@contextmanager
def open_sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection; sqlite3.Error for what is no database, or after too many steps."""
    with closing(sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True)) as base:
        base.execute("PRAGMA trusted_schema=OFF")
        spent = 0

        def limit() -> int:
            nonlocal spent
            spent += _EVERY
            return int(spent > _STEPS)

        base.set_progress_handler(limit, _EVERY)
        yield base
