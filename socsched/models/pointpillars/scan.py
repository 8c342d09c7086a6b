"""KITTI-style scan files: rows of float32 x, y, z (metres, x forward, y left, z up) and intensity, little endian."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from socsched.errors import InputError
from socsched.files import write_file
from socsched.models.arrays import aligned_zeros

ROW_BYTES = 16
_FORMAT_HINT = "a scan is a .bin file of float32 rows x, y, z, intensity, 16 bytes each, as in KITTI's velodyne folders"


def list_scans(path: str | Path) -> tuple[Path, ...]:
    """Return the scan files at `path`: itself, or all .bin files of a folder in order of name.

    Raises InputError if the path does not exist, the folder has no .bin file, or the file is not a .bin.
    """
    path = Path(path)
    if path.is_dir():
        scans = tuple(sorted(entry for entry in path.iterdir() if entry.suffix == ".bin" and entry.is_file()))
        if not scans:
            raise InputError(f"{path}: no scan in this folder, expected at least one .bin file", _FORMAT_HINT)
        return scans
    if not path.exists():
        raise InputError(f"{path}: no such scan or folder", "check the path given as input")
    _check_name(path)
    return (path,)


def read_scan(path: str | Path) -> npt.NDArray[np.float32]:
    """Return the points of a scan file as float32 [N, 4] aligned to 64 bytes, N >= 1.

    Raises InputError for a file that is missing, not a .bin, empty, truncated within a row, or holds NaN or infinite
    values.  A scan with such values is rejected whole rather than filtered: drivers omit absent returns, so these
    values mean a fault upstream (broken transfer, wrong format, bad unit), and the neighbouring numbers are no more
    trustworthy; filtering would turn the fault into silently missing obstacles.
    """
    path = Path(path)
    _check_name(path)
    points = _rows(path, _content(path))
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        bad, first = int(np.count_nonzero(~finite)), int(np.argmin(finite))
        raise InputError(
            f"{path}: {bad} of {len(points)} rows hold NaN or infinite values, the first is row {first} "
            f"({', '.join(f'{value:g}' for value in points[first])}); expected finite numbers only",
            "the recording or its conversion is damaged: write the scan again from the source",
        )
    return points


def write_bin(path: str | Path, points: npt.NDArray[np.float32]) -> None:
    """Write points [N, 4] (m, intensity) as a scan file that `read_scan` reads."""
    write_file(path, np.ascontiguousarray(points, "<f4").tobytes())


def _check_name(path: Path) -> None:
    if path.suffix != ".bin":
        raise InputError(f"{path}: not a scan, expected a file name that ends in .bin", _FORMAT_HINT)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such scan", "check the path given as input") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})", "check that it is a readable file") from None


def _rows(path: Path, content: bytes) -> npt.NDArray[np.float32]:
    rows, rest = divmod(len(content), ROW_BYTES)
    if not content:
        raise InputError(f"{path}: empty, expected at least one row of {ROW_BYTES} bytes", "record the scan again")
    if rest:
        raise InputError(
            f"{path}: {len(content)} bytes, expected a multiple of {ROW_BYTES}: row {rows} breaks off after {rest}",
            "the file is truncated or not a scan: copy it again; " + _FORMAT_HINT,
        )
    points = aligned_zeros((rows, 4), np.float32)
    points[:] = np.frombuffer(content, "<f4").reshape(rows, 4)
    return points  # type: ignore[return-value]
