"""Bounded reading of untrusted files: memory stays proportional to the size on disk, whatever a file claims."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from socsched.errors import InputError

SLACK = 64 * 2**20
"""Bytes that a file of any size may expand to."""
RATIO = 16
"""Additional bytes per byte on disk; network weights compress by less than 2, traces by up to 12."""
_STEP = 2**20


def allowance(size: int) -> int:
    """Return the number of bytes that a file of `size` bytes may expand to."""
    return SLACK + RATIO * size


def read_bytes(path: str | Path, what: str, hint: str, most: int) -> bytes:
    """Return the content of a file; InputError when it cannot be read or is larger than `most` bytes.

    Devices and pipes that never end are read up to the limit only.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: the {what} cannot be read: {reason}", hint) from None
    if len(raw) > most:
        raise InputError(f"{path}: larger than the {most // 2**20} MiB a {what} may have", hint)
    return raw


def gunzip(raw: bytes, most: int) -> bytes:
    """Return the content of a gzip file; ValueError when it is damaged or longer than `most` bytes."""
    parts: list[bytes] = []
    total = 0
    while raw:
        stream = zlib.decompressobj(wbits=31)
        try:
            while raw and not stream.eof:
                part = stream.decompress(raw, _STEP)
                raw = stream.unconsumed_tail
                total += len(part)
                if total > most:
                    raise ValueError(f"expands to more than {most // 2**20} MiB")
                parts.append(part)
        except zlib.error as error:
            raise ValueError(f"damaged gzip: {error}") from None
        if not stream.eof:
            raise ValueError("damaged gzip: the file is truncated")
        raw = stream.unused_data.lstrip(b"\0")
    return b"".join(parts)


def check_archive(archive: zipfile.ZipFile, size: int) -> None:
    """Raise ValueError if the members of a zip file of `size` bytes expand to more than its allowance."""
    total = sum(entry.file_size for entry in archive.infolist())
    if total > allowance(size):
        raise ValueError(f"expands to {total} bytes, more than {allowance(size) // 2**20} MiB for a file of {size}")
