"""A sweep's rows as one Parquet table, its columns documented in the file; the same rows give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from socsched.errors import MachineError, extra
from socsched.study.columns import Column
from socsched.study.store import replace_file


def write(path: Path, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], about: Mapping[str, str]) -> None:
    """Write rows to a Parquet file; `about` is added to its metadata next to the column descriptions."""
    pa, pq = _arrow()
    kinds = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}
    fields = [pa.field(c.name, kinds[c.kind], metadata={"meaning": c.meaning}) for c in columns]
    schema = pa.schema(fields, metadata=dict(about))
    table = pa.Table.from_pydict({c.name: [row[c.name] for row in rows] for c in columns}, schema=schema)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=65_536)
    replace_file(path, buffer.getvalue())


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file."""
    _, pq = _arrow()
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def require() -> None:
    """Raise MachineError if tables cannot be written."""
    _arrow()


def _arrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise MachineError("sweeps write Parquet, but pyarrow is not installed", extra("sweep")) from None
