"""SQLite files of others, read in a process that can be ended, since SQL functions in a schema may take for ever.

A view or generated column of a hostile file may call them; their steps are not counted by SQLite's progress handler.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from socsched.bounded import open_file, seconds
from socsched.confined import Confined, ConfinedError

_LIMITS = {"LENGTH": 2**20, "SQL_LENGTH": 2**20, "COLUMN": 1000, "EXPR_DEPTH": 50, "COMPOUND_SELECT": 10,
           "FUNCTION_ARG": 10, "ATTACHED": 0, "LIKE_PATTERN_LENGTH": 100, "TRIGGER_DEPTH": 1}  # fmt: skip


class Database:
    """A database opened for reading."""

    def __init__(self, child: Confined) -> None:
        self._child = child

    def execute(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query; sqlite3.Error for what is no database, or takes too long or too much memory."""
        try:
            yield from map(tuple, self._child.ask([query, list(values)]))
        except ConfinedError as error:
            raise sqlite3.DatabaseError(str(error)) from None


@contextmanager
def open_sqlite(path: Path, what: str = "database", hint: str = "", partial: bool = False) -> Iterator[Database]:
    """Yield a database, read without changing the file; InputError if it is no file that can be read.

    `partial`: one that is cut off is read up to there; a query then yields rows before it raises sqlite3.Error.
    """
    with open_file(path, what, hint) as file:
        size = file.seek(0, 2)
    with closing(Confined(f"{__name__}:serve", str(path.resolve()), partial, cpu_s=seconds(size))) as child:
        yield Database(child)


def serve(path: str, partial: bool) -> Callable[[list[Any]], Iterator[Any]]:
    """Open a database in the child and return what executes [query, values]."""
    base = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    base.execute("PRAGMA trusted_schema=OFF")
    if hasattr(base, "setlimit"):  # Python 3.11
        for name, most in _LIMITS.items():
            base.setlimit(getattr(sqlite3, f"SQLITE_LIMIT_{name}"), most)
    if partial:  # without it, a file shorter than its header states is refused as a whole
        base.execute("PRAGMA writable_schema=ON")
    return lambda request: base.execute(*request)
