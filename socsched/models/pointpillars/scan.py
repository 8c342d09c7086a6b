"""Point clouds from files: rows of numbers (.bin, .npy) and PCD, as float32 x, y, z (metres) and intensity.

Rows carry no description of themselves, so a layout is stated by the pipeline's sensor (`columns`), or detected where
one alone fits the values.  A layout that does not fit where another does is refused: read with the wrong width, a scan
is a cloud of points that was not measured, and a detector finds something in it.

Tried on: KITTI velodyne (.bin, 4 columns), nuScenes (.pcd.bin, 5), PCL 1.13 (.pcd: ascii, binary, binary_compressed).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.bounded import read_bytes
from socsched.errors import InputError
from socsched.files import write_file
from socsched.models.host import aligned_zeros

Points = npt.NDArray[np.float32]
ROWS, ARRAY, PCD = ".bin", ".npy", ".pcd"
SUFFIXES = (ROWS, ARRAY, PCD)
MOST_BYTES = 2**28
"""Bytes of one scan: ten million points of six columns."""
_TELLING = 100
"""Rows from which on the values may speak against what was stated."""
_NUSCENES = ".pcd.bin"
_FORMAT_HINT = (
    "a scan is a .bin of float32 rows x, y, z, intensity, 16 bytes each, as in KITTI's velodyne folders (other rows: "
    "columns of the "
    "pipeline's sensor), a .npy [points, columns], or a .pcd"
)
_STATE = "state them in the pipeline's sensor, such as columns: [x, y, z, intensity, ring]"


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a row in order, by name, and the type of its numbers (float32 or float64)."""

    columns: tuple[str, ...] = ("x", "y", "z", "intensity")
    dtype: str = "float32"

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return len(self.columns) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype} rows {', '.join(self.columns)}"

    def points(self, table: npt.NDArray[Any]) -> Points:
        """Return x, y, z and intensity (0 where there is none) of a table [N, columns], aligned to 64 bytes."""
        points = aligned_zeros((len(table), 4), np.float32)
        for place, name in enumerate(("x", "y", "z", "intensity")):
            if name in self.columns:
                points[:, place] = table[:, self.columns.index(name)]
        return points  # type: ignore[return-value]


KITTI = Layout()
_NAMES = ("x", "y", "z", "intensity", "ring", "time")


def _others() -> Iterator[Layout]:
    for dtype in ("float32", "float64"):
        for width in range(3, 7):
            yield Layout(_NAMES[:width], dtype)


def list_scans(path: str | Path) -> tuple[Path, ...]:
    """Return the scan files at `path`: itself, or all scans of a folder in order of name.

    Raises InputError if the path does not exist, the folder has no scan, or the file is none.
    """
    path = Path(path)
    if path.is_dir():
        scans = tuple(sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.is_file()))
        if not scans:
            raise InputError(f"{path}: no scan in this folder, expected at least one .bin file", _FORMAT_HINT)
        return scans
    if not path.exists():
        raise InputError(f"{path}: no such scan or folder", "check the path given as input")
    _check_name(path)
    return (path,)


def read_scan(path: str | Path, layout: Layout | None = KITTI) -> Points:
    """Return the points of a scan file as float32 [N, 4] aligned to 64 bytes, N >= 1.

    `layout` is that of rows; None detects it.  Raises InputError for a file that is missing, no scan, empty, truncated
    within a row, of another layout, or with NaN or infinite values.  A scan of rows with such values is rejected whole
    rather than filtered: drivers omit absent returns, so these values mean a fault upstream (broken transfer, wrong
    format, bad unit), and the neighbouring numbers are no more trustworthy; filtering would turn the fault into
    silently missing obstacles.  In a PCD, NaN is an absent return by definition.
    """
    path = Path(path)
    _check_name(path)
    content = read_bytes(path, "scan", _FORMAT_HINT, MOST_BYTES)
    if path.suffix == PCD:
        return _finite(path, _pcd(path, content))
    if path.suffix == ARRAY:
        return _finite(path, _array(path, content, layout))
    if not content:
        raise InputError(
            f"{path}: empty, expected at least one row of {(layout or KITTI).row_bytes} bytes", _FORMAT_HINT
        )
    if path.name.endswith(_NUSCENES) and layout == KITTI:
        layout = Layout(_NAMES[:5])
    layout = _detected(path, content) if layout is None else layout
    rows, rest = divmod(len(content), layout.row_bytes)
    fitting = _fitting(content)
    if fitting and len(content) >= _TELLING * layout.row_bytes and (rest or not _fits(content, layout)):
        raise InputError(f"{path}: no {layout}; its values look like {fitting[0]}", _STATE)
    if rest:
        raise InputError(
            f"{path}: {len(content)} bytes, expected a multiple of {layout.row_bytes}: row {rows} breaks off after "
            f"{rest}",
            "the file is truncated or not a scan: copy it again; " + _FORMAT_HINT,
        )
    return _finite(path, layout.points(_table(content, layout)))


def write_bin(path: str | Path, points: Points) -> None:
    """Write points [N, 4] (m, intensity) as a scan file that `read_scan` reads."""
    write_file(path, np.ascontiguousarray(points, "<f4").tobytes())


def _check_name(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: not a scan, expected a file name that ends in {', '.join(SUFFIXES)}", _FORMAT_HINT)


def _finite(path: Path, points: Points) -> Points:
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        bad, first = int(np.count_nonzero(~finite)), int(np.argmin(finite))
        raise InputError(
            f"{path}: {bad} of {len(points)} rows hold NaN or infinite values, the first is row {first} "
            f"({', '.join(f'{value:g}' for value in points[first])}); expected finite numbers only",
            "the recording or its conversion is damaged: write the scan again from the source",
        )
    if not len(points):
        raise InputError(f"{path}: no point", "record the scan again")
    return points


def _table(content: bytes, layout: Layout) -> npt.NDArray[Any]:
    kind = np.dtype(layout.dtype).newbyteorder("<")
    return np.frombuffer(content, kind, len(content) // layout.row_bytes * len(layout.columns)).reshape(
        -1, len(layout.columns)
    )


def _fits(content: bytes, layout: Layout) -> bool:
    """Return whether values are those of a LiDAR in this layout.

    Ranges below 500 m, heights within 100 m and spread less than the ground is wide, intensities and all after them not
    negative (times may be, by up to a second).  In a wrong width every column holds x, y and z in turn, so that heights
    spread like ranges and intensities are negative; in a wrong type numbers are out of all ranges.
    """
    if len(content) % layout.row_bytes:
        return False
    table = _table(content, layout)
    with np.errstate(all="ignore"):
        if not np.isfinite(table).all():
            return False
        x, y, z = (table[:, layout.columns.index(name)] for name in ("x", "y", "z"))
        if max(np.abs(x).max(), np.abs(y).max()) > 500 or np.abs(z).max() > 100:
            return False
        if len(table) > 1 and z.std() > 0.5 * max(x.std(), y.std()):
            return False
        if "intensity" in layout.columns:
            intensity = table[:, layout.columns.index("intensity")]
            if intensity.min() < 0 or intensity.max() > 65535:
                return False
        rest = [place for place, name in enumerate(layout.columns) if name not in ("x", "y", "z", "intensity")]
        return all(table[:, place].min() >= -1 for place in rest)


def _fitting(content: bytes) -> list[Layout]:
    """Return the layouts that fit, but for those whose rows are parts of the rows of another one."""
    fitting = [layout for layout in _others() if _fits(content, layout)]
    return [
        one
        for one in fitting
        if not any(
            one != other and other.row_bytes % one.row_bytes == 0 for other in fitting if one.dtype == other.dtype
        )
    ]


def _detected(path: Path, content: bytes) -> Layout:
    """Return the only layout that fits; InputError if none or several do, or it has no intensity."""
    fitting = _fitting(content)
    if len(fitting) == 1 and "intensity" in fitting[0].columns:
        return fitting[0]
    if len(fitting) == 1:
        raise InputError(
            f"{path}: {fitting[0]} have no intensity", f"{_STATE} (here [x, y, z]: intensity is taken as 0)"
        )
    if not fitting and len(content) % KITTI.row_bytes == 0:
        _finite(path, KITTI.points(_table(content, KITTI)))
    what = (
        f"{len(content)} bytes could be {'; '.join(map(str, fitting))}" if fitting else "its values fit no known rows"
    )
    raise InputError(f"{path}: {what}", _STATE)


def _array(path: Path, content: bytes, layout: Layout | None) -> Points:
    from numpy.lib import format as npy

    try:
        stream = io.BytesIO(content)
        version = npy.read_magic(stream)
        header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = header(stream)
        body = memoryview(content)[stream.tell() :]
        good = len(shape) == 2 and 3 <= shape[1] <= 64 and dtype.kind in "fiu" and 0 < dtype.itemsize <= 8
        if not good or shape[0] * shape[1] * dtype.itemsize != len(body):
            raise ValueError(f"{dtype} {list(shape)} in {len(body)} bytes")
        table = np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")
    except Exception as error:  # numpy evaluates the header, and raises anything for a damaged one
        raise InputError(f"{path}: expected numbers [points, 3 to 64 columns], got {error}", _FORMAT_HINT) from None
    if layout is None or len(layout.columns) != shape[1]:
        if layout is not None and layout != KITTI:
            raise InputError(f"{path}: {shape[1]} columns, stated are {', '.join(layout.columns)}", _STATE)
        if not 4 <= shape[1] <= len(_NAMES):
            raise InputError(f"{path}: {shape[1]} columns, whose meaning is not known", _STATE)
        layout = Layout(_NAMES[: shape[1]])
    return layout.points(table)


_TYPES = {("F", 4): "<f4", ("F", 8): "<f8", **{(k, n): f"<{k.lower()}{n}" for k in "IU" for n in (1, 2, 4, 8)}}


def _pcd(path: Path, content: bytes) -> Points:
    """Return the points of a PCD file: fields x, y, z, and intensity, i or reflectivity if there is one."""
    header: dict[str, list[str]] = {}
    start = 0
    while "DATA" not in header:
        end = content.find(b"\n", start, start + 4096)
        if end < 0 or len(header) > 32:
            raise InputError(f"{path}: no PCD file: its header has no line DATA", _FORMAT_HINT)
        words = content[start:end].decode("ascii", "replace").split()
        start = end + 1
        if words and not words[0].startswith("#"):
            header[words[0].upper()] = words[1:]
    try:
        fields, kinds = header["FIELDS"], header["TYPE"]
        sizes, counts = ([int(word) for word in header.get(key, ["1"] * len(fields))] for key in ("SIZE", "COUNT"))
        number = int(header["POINTS"][0]) if "POINTS" in header else int(header["WIDTH"][0]) * int(header["HEIGHT"][0])
        if not 0 < len(fields) <= 64 or not all(0 < count <= 4096 for count in counts) or not 0 <= number <= MOST_BYTES:
            raise ValueError("sizes out of range")
        columns = list(zip(fields, kinds, sizes, counts, strict=True))
        rows = np.dtype([(f"f{n}", _TYPES[kind, size], (count,)) for n, (_, kind, size, count) in enumerate(columns)])
        body = _body(header["DATA"][0], content[start:], rows, number)
        places = {name: f"f{n}" for n, name in reversed(list(enumerate(fields)))}
        points = aligned_zeros((number, 4), np.float32)
        for place, names in enumerate((("x",), ("y",), ("z",), ("intensity", "i", "reflectivity"))):
            name = next((name for name in names if name in places), None)
            if name is None and place < 3:
                raise ValueError(f"no field {names[0]}")
            if name is not None:
                points[:, place] = body[places[name]][:, 0]
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"{path}: no PCD file that is understood: {error}", _FORMAT_HINT) from None
    present = np.isfinite(points[:, :3]).all(axis=1)
    if present.all():
        return points  # type: ignore[return-value]
    kept = aligned_zeros((int(present.sum()), 4), np.float32)
    kept[:] = points[present]
    return kept  # type: ignore[return-value]


def _body(form: str, body: bytes, rows: np.dtype[Any], number: int) -> Any:
    """Return the rows of a PCD as a structured array; ValueError where there are fewer than stated."""
    if form == "ascii":
        table = np.loadtxt(io.BytesIO(body), np.float64, ndmin=2, max_rows=max(number, 1))
        spread = np.zeros(number, rows)
        ends = np.cumsum([0, *(rows[name].shape[0] for name in rows.names or ())])
        if table.shape != (number, ends[-1]):
            raise ValueError(f"{table.shape[0]} rows of {table.shape[1]} numbers, stated are {number} of {ends[-1]}")
        for name, begin, end in zip(rows.names or (), ends, ends[1:], strict=False):
            spread[name] = table[:, begin:end]
        return spread
    if form == "binary_compressed":
        packed, size = (int.from_bytes(body[at : at + 4], "little") for at in (0, 4))
        if size != number * rows.itemsize:
            raise ValueError(f"{size} bytes for {number} points of {rows.itemsize}")
        body = _unpacked(body[8 : 8 + packed], size)
        spread, at = np.zeros(number, rows), 0
        for name in rows.names or ():  # field after field
            length = number * rows[name].itemsize
            spread[name] = np.frombuffer(body, rows[name].base, number * rows[name].shape[0], at).reshape(number, -1)
            at += length
        return spread
    if form != "binary":
        raise ValueError(f"data {form!r}")
    if len(body) < number * rows.itemsize:
        raise ValueError(f"{len(body)} bytes for {number} points of {rows.itemsize}")
    return np.frombuffer(body, rows, number)


def _unpacked(packed: bytes, size: int) -> bytes:
    """Return what LZF compressed: runs of bytes as they are, and repetitions of earlier ones (liblzf's format)."""
    plain, at = bytearray(), 0
    while at < len(packed) and len(plain) <= size:
        control = packed[at]
        at += 1
        if control < 32:
            plain += packed[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += packed[at]
            at += 1
        back = len(plain) - ((control & 31) << 8 | packed[at]) - 1
        at += 1
        if back < 0:
            raise ValueError("a repetition of nothing")
        for place in range(back, back + length + 2):  # may overlap itself
            plain.append(plain[place])
    if len(plain) != size:
        raise ValueError(f"{len(plain)} of {size} bytes")
    return bytes(plain)
