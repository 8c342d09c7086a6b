"""Tables of whole numbers in blocks of rows: written as they fill, read by column and by rows.

A block holds up to `BLOCK` rows, and each of its columns is packed for itself, so that reading one column does not
touch the others.  Within a block the rows are ordered by the table's `key` (the task of a job), and a column is stored
as its 0th, 1st or 2nd differences there, less its `base` (a start counts from the activation): what repeats with every
job of a task becomes 0.  They are split into planes of their lowest, second ... bytes, each compressed; a plane of
zeros takes no room.  Few distinct numbers are places in a list of them.

A time is the place of its instant in the trace's `Clock`: most of what happens ends or begins with something else.

Chosen with figures: 100,000 jobs of 256 tasks whose times are drawn take 57 bytes a job with times as differences
and 15 so, of which 4 are the instants themselves.  Parquet with differences and zstd knows no differences within a task
and would need pyarrow, which is optional here.
"""

from __future__ import annotations

import bz2
import os
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from socsched.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.stored import Stored

    Ints = NDArray[np.int64]

BLOCK = 1 << 16
"""Most rows of a block."""
CACHED = 140 * 2**20
"""Bytes of whole columns that are kept of a file."""
_KEPT = 48
"""Columns of single blocks that are kept of a file."""
_LEVEL = 6
_HEAD = struct.Struct("<BBII")
"""Of packed numbers: how they are differences (`_pack`), mask of their planes, bytes and number of the first values."""
_SIGNED, _THOROUGH, _LISTED = 4, 8, 16
"""Added to how: numbers are zigzag numbers; planes are compressed with bz2; what is packed are places in a list of the
numbers there are, which precedes the first values."""
_FEW_ROWS = 256
_COLUMN = struct.Struct("<BIqq")
"""Of a column: whether it holds places in the clock, bytes of its numbers, behind which is what places leave of the
times, and its extremes where it counts from a derived column."""
_ROWS = 3
"""Differences from row to row instead of within a group."""
_RECENT = 1 << 20
"""Instants in which a time is looked for that is written."""
_FEW = 8
"""Blocks up to which entries are taken from single blocks, not from the whole column."""


Derived = Callable[["Stored", Callable[[str], "Ints"], tuple[int, int]], "Ints"]
"""Makes a column of a block of others of it, and of the extremes of the column that counts from it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table: its columns, the one that orders rows within a block, and signed sums of columns that others count from.

    `key` precedes all others, and a column those that count from it.  `times` are columns of instants, `begin` and
    `end` those by which blocks are found.  `derived` columns are made of others, and only counted from.
    """

    columns: tuple[str, ...]
    key: str = ""
    base: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    times: tuple[str, ...] = ()
    begin: str = ""
    end: str = ""
    derived: Mapping[str, Derived] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block is, in bytes, its number of rows, and the least and greatest of its times (ns)."""

    offset: int
    size: int
    rows: int
    begin: int
    end: int


class Table:
    """A table in a file: appended block by block, or read."""

    def __init__(self, owner: Stored, name: str, layout: Layout) -> None:
        self.owner, self.file, self.name, self.layout = owner, owner.file, name, layout
        self.blocks: list[Block] = []
        self.bounds: dict[str, tuple[int, int]] = {}
        self.late: dict[int, dict[int, dict[str, int]]] = {}
        self._begins: Ints | None = None

    def __len__(self) -> int:
        return int(self.begins[-1])

    @property
    def begins(self) -> Ints:
        """Return the first row of every block, and the number of rows."""
        if self._begins is None or len(self._begins) != len(self.blocks) + 1:
            self._begins = np.cumsum([0, *(block.rows for block in self.blocks)])
        return self._begins

    def append(self, columns: Mapping[str, Ints]) -> None:
        """Write rows, in blocks."""
        count = len(columns[self.layout.columns[0]])
        for at in range(0, count, BLOCK):
            self._write({name: columns[name][at : at + BLOCK] for name in self.layout.columns})

    def mend(self, row: int, values: Mapping[str, int]) -> None:
        """Replace a row written earlier: the subject of it ended long after those that began with it."""
        number = int(np.searchsorted(self.begins, row, side="right")) - 1
        self.late.setdefault(number, {})[row - int(self.begins[number])] = dict(values)
        self._bound({name: np.array([value]) for name, value in values.items()})
        if self.layout.begin:
            old = self.blocks[number]
            begin, end = min(old.begin, values[self.layout.begin]), max(old.end, values[self.layout.end])
            self.blocks[number] = Block(old.offset, old.size, old.rows, begin, end)

    def _bound(self, columns: Mapping[str, Ints]) -> None:
        for name, values in columns.items():
            low, high = self.bounds.get(name, (1 << 62, -(1 << 62)))
            self.bounds[name] = min(low, int(values.min())), max(high, int(values.max()))

    def _write(self, columns: Mapping[str, Ints]) -> None:
        layout, rows = self.layout, len(columns[self.layout.columns[0]])
        self._bound(columns)
        groups = groups_of(columns[layout.key]) if layout.key else None
        placed: dict[str, Ints] = {}
        parts = [self._packed(name, columns, groups, placed) for name in layout.columns]
        data = b"".join([struct.pack(f"<{len(parts)}I", *map(len, parts)), *parts])
        begin = int(columns[layout.begin].min()) if layout.begin else 0
        end = int(columns[layout.end].max()) if layout.end else 0
        self.blocks.append(Block(self.file.write(data), len(data), rows, begin, end))

    def _packed(self, name: str, columns: Mapping[str, Ints], groups: Groups | None, placed: dict[str, Ints]) -> bytes:
        """Return a column of a block, as places in the clock if they take less room; these then enter `placed`."""
        layout, values, window = self.layout, columns[name], (0, 0)
        base, key = layout.base.get(name, ()), name == layout.key
        groups = None if key else groups
        for sign, other in base:
            if made := layout.derived.get(other):
                window = int(columns[name].min()), int(columns[name].max())
                values = values - sign * made(self.owner, columns.__getitem__, window)
            else:
                values = values - sign * columns[other]
        packed, left = _pack(values, groups, key), b""
        if name in layout.times and all(other in placed for _, other in base):
            places, rest = self.owner.clock.places(columns[name])
            counted = places
            for sign, other in base:
                counted = counted - sign * placed[other]
            ours = _pack(counted, groups), _pack(rest, groups) if rest.any() else b""
            if sum(map(len, ours)) < len(packed):
                (packed, left), placed[name] = ours, places
        return _COLUMN.pack(name in placed, len(packed), *window) + packed + left

    def block(self, number: int, name: str) -> Ints:
        """Return a column of a block."""
        values = self._raw(number, name)
        if number in self.late:
            values = values.copy()
            for row, late in self.late[number].items():
                values[row] = late[name]
        low, high = self.bounds[name]
        if values.min() < low or values.max() > high:
            raise self.file.damaged(f"{self.name}: {name} from {low} to {high} expected")
        return values

    def _raw(self, number: int, name: str) -> Ints:
        return self._read(number, name)[0]

    def _read(self, number: int, name: str) -> tuple[Ints, Ints | None]:
        """Return a column of a block as written, and its places in the clock if it holds them."""
        found: tuple[Ints, Ints | None]
        found = self.file.kept((self.name, number, name), lambda: self._unpacked(number, name))
        return found

    def _unpacked(self, number: int, name: str) -> tuple[Ints, Ints | None]:
        layout, block = self.layout, self.blocks[number]
        count, base = len(layout.columns), layout.base.get(name, ())
        try:
            sizes = struct.unpack(f"<{count}I", self.file.read(block.offset, 4 * count))
            if 4 * count + sum(sizes) != block.size:
                raise ValueError("its columns do not add up")
            place = layout.columns.index(name)
            data = self.file.read(block.offset + 4 * count + sum(sizes[:place]), sizes[place])
            placed, size, *window = _COLUMN.unpack_from(data)
            main, left = data[_COLUMN.size : _COLUMN.size + size], data[_COLUMN.size + size :]
            groups = self._grouped(number) if layout.key not in ("", name) else None
            values = _unpack(main, block.rows, groups)
            if placed:
                for sign, other in base:
                    places = self._read(number, other)[1]
                    if places is None:
                        raise ValueError("a place counted from a time")
                    values = values + sign * places
                times = self.owner.clock.times(values)
                return times + _unpack(left, block.rows, groups) if left else times, values
            for sign, other in base:
                if made := layout.derived.get(other):
                    values = values + sign * made(self.owner, lambda column: self._raw(number, column), (*window,))
                else:
                    values = values + sign * self._raw(number, other)
            return values, None
        except (struct.error, zlib.error, OSError, EOFError, ValueError, IndexError, OverflowError) as error:
            raise self.file.damaged(f"{self.name}, block {number}: {error}") from None

    def written(self, name: str, begin: int, end: int) -> Ints:
        """Return entries of a column as they were written, before any was mended; ValueError beyond the last."""
        begins = self.begins
        if not 0 <= begin < end <= begins[-1]:
            raise ValueError("rows beyond the table")
        first, last = (int(np.searchsorted(begins, at, side="right")) - 1 for at in (begin, end - 1))
        parts = [self._raw(number, name) for number in range(first, last + 1)]
        rows: Ints = np.concatenate(parts)[begin - begins[first] : end - begins[first]]
        return rows

    def _grouped(self, number: int) -> Groups:
        def made() -> Groups:
            begin, end = self.begins[number : number + 2].tolist()
            known = None if number in self.late else self.file.known(self, self.layout.key)
            return groups_of(self._raw(number, self.layout.key) if known is None else known[begin:end])

        groups: Groups = self.file.kept((self.name, number, ""), made)
        return groups

    def between(self, begin: int, end: int) -> list[int]:
        """Return the blocks with rows that touch a window (ns)."""
        return [n for n, block in enumerate(self.blocks) if block.begin <= end and block.end >= begin]

    def column(self, name: str) -> Column:
        """Return a column, which is read when asked for."""
        return Column(self, name)


class Clock:
    """The instants at which something ends or is released, in order; the first is 0.

    A time is the place of the last instant up to it, and what is left; a negative one is itself.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._recent, self._first, self._waiting = np.zeros(1, np.int64), 0, np.zeros(0, np.int64)
        self._written = 0

    def add(self, times: Sequence[Ints], upto: int) -> None:
        """Add the instants up to a time; those after it are kept, since more may follow before them."""
        fresh = np.unique(np.concatenate((self._waiting, *times)))
        here = int(np.searchsorted(fresh, upto, side="right"))
        fresh, self._waiting = fresh[:here], fresh[here:]
        self._recent = np.concatenate((self._recent, fresh[np.searchsorted(fresh, self._recent[-1], side="right") :]))
        while self.left >= BLOCK:
            self.write(BLOCK)

    def forget(self) -> None:
        """Keep no more instants in memory than those in which times of rows yet to come may be looked for."""
        old = max(self._written - _RECENT - self._first, 0)
        self._recent, self._first = self._recent[old:], self._first + old

    @property
    def left(self) -> int:
        """Return how many instants are not in the file yet."""
        return self._first + len(self._recent) - self._written

    def write(self, most: int) -> None:
        """Write at most so many of the instants that are not in the file yet."""
        part = self._recent[self._written - self._first :][:most]
        self.table.append({"time_ns": part})
        self._written += len(part)

    def places(self, times: Ints) -> tuple[Ints, Ints]:
        """Return the places of times up to the last instant, and what is left."""
        at = np.searchsorted(self._recent, times, side="right") - 1
        # one older than all that are looked at counts from the first instant
        places = np.where(at < 0, np.minimum(times, 0), at + self._first)
        return places, np.where(at < 0, np.maximum(times, 0), times - self._recent[at])

    def times(self, places: Ints) -> Ints:
        """Return the instants at places."""
        inside = places >= 0
        times: Ints = places.copy()
        times[inside] = self.table.column("time_ns")[places[inside]]
        return times


class File:
    """A file of blocks, written or read; what was read lately is kept."""

    def __init__(self, file: IO[bytes], name: str = "the recording", end: int = 0) -> None:
        self.file, self.name, self.end = file, name, end
        self._kept: OrderedDict[Any, Any] = OrderedDict()
        self._whole: OrderedDict[Any, NDArray[Any]] = OrderedDict()

    def damaged(self, what: str) -> InputError:
        """Return the error for content that cannot be."""
        return InputError(f"{self.name}: damaged trace: {what}", "record it again")

    def write(self, data: bytes) -> int:
        """Append bytes and return where they begin."""
        at, self.end = self.end, self.end + len(data)
        self.file.write(data)
        return at

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes; ValueError beyond the end."""
        if not 0 <= offset <= offset + size <= self.end:
            raise ValueError("beyond the end of the file")
        self.file.flush()
        data = os.pread(self.file.fileno(), size, offset)
        if len(data) != size:
            raise ValueError("the file is shorter than before")
        return data

    def kept(self, key: Any, make: Any) -> Any:
        """Return what `make` returns, made once while it is in use."""
        if key not in self._kept:
            value = make()
            while len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
            self._kept[key] = value
        self._kept.move_to_end(key)
        return self._kept[key]

    def forget(self) -> None:
        """Drop everything that is kept."""
        self._kept.clear()
        self._whole.clear()

    def known(self, table: Table, name: str) -> NDArray[Any] | None:
        """Return a whole column if it is kept."""
        return self._whole.get((table.name, name))

    def whole(self, table: Table, name: str) -> NDArray[Any]:
        """Return a whole column, in the narrowest type."""
        key = table.name, name
        if key not in self._whole:
            kind = np.min_scalar_type(table.bounds[name][0]), np.min_scalar_type(table.bounds[name][1])
            values = np.empty(len(table), np.result_type(*kind))
            while self._whole and values.nbytes + sum(old.nbytes for old in self._whole.values()) > CACHED:
                self._whole.popitem(last=False)
            for number, at in enumerate(table.begins[:-1].tolist()):
                part = table.block(number, name)
                values[at : at + len(part)] = part
            self._whole[key] = values
        self._whole.move_to_end(key)
        return self._whole[key]


class Column(NDArrayOperatorsMixin):
    """A column of int64 that is read when asked for; entries, ranges and selections are arrays, like those of one."""

    dtype = np.dtype(np.int64)

    def __init__(self, table: Table, name: str) -> None:
        self.table, self.name = table, name

    def __len__(self) -> int:
        return len(self.table)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.narrow().astype(dtype or np.int64)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Column) else x for x in inputs), **options)

    def narrow(self) -> NDArray[Any]:
        """Return the whole column in the narrowest type, for reading."""
        return self.table.file.whole(self.table, self.name) if len(self) else np.zeros(0, np.int64)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            begin, stop, step = which.indices(len(self))
            if step == 1 and stop - begin <= _FEW * BLOCK:
                return self._range(begin, stop)
            return self.narrow()[which].astype(np.int64)
        if isinstance(which, int | np.integer):
            row = int(which)
            return self._range(row + len(self) * (row < 0), row + len(self) * (row < 0) + 1)[0]
        rows = np.asarray(which)
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows.astype(np.int64)
        if not len(rows):
            return np.zeros(0, np.int64)
        if self.table.file.known(self.table, self.name) is not None:
            return self.narrow()[rows].astype(np.int64)
        begins, rows = self.table.begins, np.where(rows < 0, rows + len(self), rows)
        if rows.min() < 0 or rows.max() >= len(self):
            raise IndexError(f"rows 0 to {len(self) - 1} expected")
        place = np.searchsorted(begins, rows, side="right") - 1
        numbers = np.flatnonzero(np.bincount(place)).tolist()
        if len(numbers) > _FEW:
            return self.narrow()[rows].astype(np.int64)
        values = np.empty(len(rows), np.int64)
        for number in numbers:
            here = place == number
            values[here] = self.table.block(number, self.name)[rows[here] - begins[number]]
        return values

    def _range(self, begin: int, stop: int) -> Ints:
        if not 0 <= begin < stop:
            return np.zeros(0, np.int64)
        begins = self.table.begins
        first, last = (int(np.searchsorted(begins, at, side="right")) - 1 for at in (begin, stop - 1))
        parts = [self.table.block(number, self.name) for number in range(first, last + 1)]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return joined[begin - begins[first] : stop - begins[first]]

    def tolist(self) -> list[int]:
        """Return the whole column as a list."""
        found: list[int] = self.narrow().tolist()
        return found

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest number."""
        return self.table.bounds[self.name]

    def min(self) -> int:
        """Return the least number, as the file states it; rows are checked against it when they are read."""
        return self.bounds[0]

    def max(self, initial: int | None = None) -> int:
        """Return the greatest number, as the file states it; `initial` without any."""
        if not len(self) and initial is not None:
            return initial
        return self.bounds[1] if initial is None else max(self.bounds[1], initial)

    def any(self) -> bool:
        """Return whether a number is not 0."""
        return len(self) > 0 and self.bounds != (0, 0)


def narrow(column: Any) -> NDArray[Any]:
    """Return a column as an array of any whole type, for reading."""
    return column.narrow() if isinstance(column, Column) else column


def spans(count: int) -> Iterator[slice]:
    """Yield the ranges of rows in which a long column is best read."""
    for at in range(0, count, BLOCK):
        yield slice(at, min(at + BLOCK, count))


# Packed columns


Groups = tuple["NDArray[Any]", "NDArray[Any]"]
"""What `groups_of` returns."""


def groups_of(key: Ints) -> Groups:
    """Return the order of rows by key, and where each group of equal keys begins in it."""
    small = len(key) and int(key.min()) >= 0 and int(key.max()) < 1 << 16
    order = np.argsort(key.astype(np.uint16) if small else key, kind="stable")
    ordered = key[order]
    return order, np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))


def _pack(values: Ints, groups: Groups | None, thorough: bool = False) -> bytes:
    """Return numbers as their 0th to 2nd differences within groups, or their first from row to row."""
    order, fresh = groups or (slice(None), np.zeros(1, np.int64))
    plain = values[order]
    steps = np.diff(plain, prepend=plain[:1])
    steps[fresh] = 0
    second = np.diff(steps, prepend=steps[:1])
    second[fresh] = 0
    choices = [plain, steps, second]
    if groups is not None:
        choices.append(np.diff(values, prepend=values[:1]))
    how, best = min(enumerate(choices), key=lambda entry: _weight(entry[1]))
    first = values[:1] if how == _ROWS else plain[fresh] if how else plain[:0]
    packed = _packed_planes(how, first, best, thorough)
    if len(best) > _FEW_ROWS and packed[1] & ~1:  # of several planes, each would say anew which of few numbers it is
        numbers, index, counts = np.unique(best, return_inverse=True, return_counts=True)
        if len(numbers) < len(best) // 4:
            order = np.argsort(-counts, kind="stable")  # what is frequent has a short place
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            few = _packed_planes(how | _LISTED, np.concatenate((numbers[order], first)), place[index], False)
            packed = min(packed, few, key=len)
    return packed


def _packed_planes(how: int, first: Ints, values: Ints, thorough: bool) -> bytes:
    if values.min() < 0:
        how, values = how | _SIGNED, (values << 1) ^ (values >> 63)
    if thorough:
        how |= _THOROUGH
    planes = values.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    firsts = zlib.compress(np.diff(first, prepend=0).astype("<i8").tobytes(), _LEVEL) if len(first) else b""
    used = [k for k in range(8) if planes[:, k].any()]
    raw = [planes[:, k].tobytes() for k in used]
    parts = [bz2.compress(data) if thorough else zlib.compress(data, _LEVEL) for data in raw]
    sizes = struct.pack(f"<{len(parts)}I", *map(len, parts))
    return b"".join([_HEAD.pack(how, sum(1 << k for k in used), len(firsts), len(first)), sizes, firsts, *parts])


def _weight(values: Ints) -> float:
    """Return about how many bits an eighth of a column takes."""
    return float(np.log2(np.abs(values[3::8].astype(np.float64)) + 1).sum())


def _unpack(data: bytes, rows: int, groups: Groups | None) -> Ints:
    how, mask, size, count = _HEAD.unpack_from(data)
    used = [k for k in range(8) if mask >> k & 1]
    sizes = struct.unpack_from(f"<{len(used)}I", data, _HEAD.size)
    at = _HEAD.size + 4 * len(used)
    times, listed = how & _ROWS, how & _LISTED
    if how >= 2 * _LISTED or at + size + sum(sizes) != len(data):
        raise ValueError("a column that does not add up")
    order, fresh = (None if times == _ROWS else groups) or (slice(None), np.zeros(1, np.int64))
    planes = np.zeros((rows, 8), np.uint8)
    start = at + size
    for k, length in zip(used, sizes, strict=True):
        planes[:, k] = np.frombuffer(_expanded(data[start : start + length], rows, how & _THOROUGH), np.uint8)
        start += length
    plain = planes.view("<i8").reshape(-1)
    if how & _SIGNED:
        plain = (plain.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(plain & 1)
    if times or listed:
        most = (len(fresh) if times else 0) + (rows if listed else 0)
        if count > most:
            raise ValueError("more first values than groups")
        firsts = np.cumsum(np.frombuffer(_expanded(data[at : at + size], 8 * count), "<i8"))
        if listed:
            plain = firsts[: count - len(fresh) * (times > 0)][plain]
        if times:
            counts = np.diff(np.append(fresh, rows))
            for _ in range(1 if times == _ROWS else times):
                plain = np.cumsum(plain)
                plain -= np.repeat(plain[fresh], counts)
            plain += np.repeat(firsts[count - len(fresh) :], counts)
    values = np.empty(rows, np.int64)
    values[order] = plain
    return values


def _expanded(data: bytes, size: int, thorough: int = 0) -> bytes:
    expander = bz2.BZ2Decompressor() if thorough else zlib.decompressobj()
    found = expander.decompress(data, size + 1)
    if len(found) != size:
        raise ValueError(f"{size} bytes expected")
    return found
