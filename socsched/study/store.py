"""Finished rows on disk, and as one Parquet table.

A row is finished when its checksummed line is on disk; SQLite would gain nothing over lines that are only appended.
"""

from __future__ import annotations

import errno
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import JsonFile
from socsched.errors import DescriptorError, MachineError, UsageError, extra
from socsched.files import sync_folder, write_file
from socsched.study.columns import Column

ROWS, OPEN = ".rows", ".open"
PER_PART = 5000
"""Number of lines after which a part is closed."""
_FORMAT = 1
_ANEW = "choose another folder with -o"
_MOST_BYTES = 2**28
"""Bytes of a part: 5000 rows of some 2 KiB."""
Row = dict[str, Any]


@dataclass(slots=True)
class Store:
    """Rows by (config, rung) or (config, vehicle) below `folder`; opened by `create`."""

    folder: Path
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    damaged: int = 0
    _file: int = -1
    _name: Path = Path()
    _lines: int = 0
    _good: int = 0

    def add(self, rows: Sequence[Row]) -> None:
        """Write rows to disk; MachineError if it is full, in which case all earlier rows are safe."""
        fresh = [row for row in rows if _key(row) not in self.rows]
        if not fresh:
            return
        if self._file < 0:
            self._start()
        data = b"".join(map(encode, fresh))
        try:
            _write(self._file, data)
            os.fsync(self._file)
        except OSError as error:
            # truncate a partial write, so that the file ends with a complete line
            os.ftruncate(self._file, self._good)
            raise _full(error, self._name) from error
        self._good += len(data)
        self._lines += len(fresh)
        self.rows.update((_key(row), row) for row in fresh)
        if self._lines >= PER_PART:
            self.close()

    def _start(self) -> None:
        number = 1 + max((int(path.stem) for path in (self.folder / "parts").glob("*[0-9].*")), default=0)
        self._name = self.folder / "parts" / f"{number:06d}{OPEN}"
        try:
            self._file = os.open(self._name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            raise _full(error, self._name) from error
        self._lines = self._good = 0

    def close(self) -> None:
        """Close the open part and give it its final name."""
        if self._file < 0:
            return
        os.close(self._file)
        self._file = -1
        os.rename(self._name, self._name.with_suffix(ROWS))
        sync_folder(self._name.parent)


def create(folder: Path, digest: str, resume: bool) -> Store:
    """Return the store of a study below `folder`; with `resume`, including its existing rows.

    Raises UsageError if results exist and `resume` is False, or if they belong to another study.
    """
    identity = folder / "study.json"
    stored = _identity(identity)
    if stored is not None and not resume:
        raise UsageError(f"{folder} already contains results", "resume with --resume, or choose another folder with -o")
    if stored is not None and (stored.get("digest") != digest or stored.get("format") != _FORMAT):
        raise UsageError(
            f"{folder} contains results of another study, of other files or of another version",
            "results of different inputs are never mixed: choose another folder with -o",
        )
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        (folder / "plans").mkdir(exist_ok=True)
        if stored is None:
            replace_file(identity, json.dumps({"format": _FORMAT, "digest": digest}).encode())
    except OSError as error:
        raise _full(error, folder) from error
    store = Store(folder)
    for path in sorted((folder / "parts").glob("*[0-9].*")):
        _recover(store, path)
    return store


def _identity(path: Path) -> Any:
    """Return the content of study.json, None if it is missing or incomplete."""
    if not path.exists():
        return None
    try:
        document = JsonFile.open(path, "identity of a study", _ANEW).data
    except DescriptorError:
        return None
    return document if isinstance(document, dict) else None


def _recover(store: Store, path: Path) -> None:
    """Load the complete lines of a part; a part left open is closed."""
    rows = 0
    for row in _lines(store, read_bytes(path, "part of a study", _ANEW, _MOST_BYTES)):
        store.rows.setdefault(_key(row), row)
        rows += 1
    if path.suffix == OPEN and rows:
        os.rename(path, path.with_suffix(ROWS))
    elif path.suffix == OPEN:
        path.unlink()


def _lines(store: Store, data: bytes) -> Iterator[Row]:
    for line in data.split(b"\n"):
        row = decode(line)
        if row is not None and all(isinstance(row.get(name), int) for name in ("config", _second(row))):
            yield row
        elif line:
            store.damaged += 1


def encode(row: Row) -> bytes:
    """Return a row as a line of a part."""
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(line: bytes) -> Row | None:
    """Return the row of a line, None if its checksum does not match."""
    check, _, text = line.partition(b" ")
    if len(check) != 8 or check != b"%08x" % zlib.crc32(text):
        return None
    try:
        row = JsonFile(text, "row").data
    except DescriptorError:
        return None
    return row if isinstance(row, dict) else None


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file, sync it and rename it into place; MachineError if the disk is full."""
    try:
        write_file(path, data)
    except OSError as error:
        raise _full(error, path) from error


def _write(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _full(error: OSError, path: Path) -> MachineError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return MachineError(f"{path}: the disk is full", "free some space and resume with --resume: no result is lost")
    return MachineError(f"{path}: {error.strerror}", "check the folder, then resume with --resume")


def _key(row: Row) -> tuple[int, int]:
    return row["config"], row[_second(row)]


def _second(row: Row) -> str:
    return "vehicle" if "vehicle" in row else "rung"


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
