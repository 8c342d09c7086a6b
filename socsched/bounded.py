"""Bounded reading of untrusted files: time and memory stay proportional to the size on disk, whatever a file claims.

Every file that a user gives is opened here (tests/test_readers.py walks the package for others), or by a parser of its
own container that starts from `open_file`: `models.npz`, `models.torch_file`, `runtime.mcap_file`.  Programs of others
that parse a file (SQLite) run in a process that can be ended: `confined`.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import stat
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from socsched.errors import InputError

SLACK = 64 * 2**20
"""Bytes that a file of any size may expand to."""
RATIO = 16
"""Additional bytes per byte on disk; network weights compress by less than 2, traces by up to 12."""
PIPE_BYTES = 64 * 2**20
"""Bytes read from a pipe, whose length is not known beforehand."""
PIPE_SECONDS = 10.0
"""Longest silence of a pipe."""
_STEP = 2**20
_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks; those of UTF-32 begin like those of UTF-16."""


class Unreadable(InputError):
    """A file that cannot be read at all; `reason` says why, without its path."""

    def __init__(self, path: str | Path, what: str, reason: str, hint: str) -> None:
        super().__init__(f"{path}: the {what} cannot be read: {reason}", hint)
        self.reason = reason


def allowance(size: int) -> int:
    """Return the number of bytes that a file of `size` bytes may expand to."""
    return SLACK + RATIO * size


def seconds(size: int) -> int:
    """Return the processor time (s) that a program of others may take for a file of `size` bytes."""
    return 5 + size // (4 * 2**20)


def open_file(path: str | Path, what: str, hint: str) -> BinaryIO:
    """Open a regular file, for readers that need to seek; InputError for what is none, or cannot be opened."""
    return io.BufferedReader(io.FileIO(_open(path, what, hint, seeking=True), closefd=True))


def read_bytes(path: str | Path, what: str, hint: str, most: int) -> bytes:
    """Return the content of a file; InputError when it cannot be read or is larger than `most` bytes.

    Devices are refused unopened, since opening one may already act on the machine; a pipe is read up to `PIPE_BYTES`.
    """
    handle = _open(path, what, hint)
    try:
        pipe = stat.S_ISFIFO(os.fstat(handle).st_mode)
        most = min(most, PIPE_BYTES) if pipe else most
        parts, total = list[bytes](), 0
        while total <= most and (part := _part(handle, pipe)):
            parts.append(part)
            total += len(part)
    except OSError as error:
        raise Unreadable(path, what, str(error.strerror or error), hint) from None
    finally:
        os.close(handle)
    if total > most:
        raise InputError(f"{path}: larger than the {most / 2**20:.3g} MiB a {what} may have", hint)
    return b"".join(parts)


def read_head(path: str | Path, what: str, hint: str, count: int) -> bytes:
    """Return the first bytes of a regular file, at most `count`; of a gzip file those of its content."""
    with open_file(path, what, hint) as file:
        raw = file.read(count)
    if not raw.startswith(_GZIP):
        return raw
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, count)
    except zlib.error:
        return raw


def read_plain(path: str | Path, what: str, hint: str, most: int) -> bytes:
    """Return the content of a file, expanded if it is gzipped whatever its name; otherwise as `read_bytes`."""
    raw = read_bytes(path, what, hint, most)
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gunzip(raw, min(most, allowance(len(raw))))
    except ValueError as error:
        raise InputError(f"{path}: the {what} {error}", hint) from None


def read_text(path: str | Path, what: str, hint: str, most: int, errors: str = "strict") -> str:
    """Return the text of a file, also a gzipped one, with lines that end in a newline; see `decode`.

    InputError with the line of the first wrong byte, unless `errors` is "replace".
    """
    raw = read_plain(path, what, hint, most)
    try:
        return decode(raw, errors)
    except UnicodeDecodeError as error:
        line = decode(bytes(error.object[: error.start]), "replace").count("\n") + 1
        raise InputError(f"{path}:{line}: expected {error.encoding.upper()} text, got other bytes", hint) from None


def decode(raw: bytes, errors: str = "strict") -> str:
    r"""Return text in UTF-8, or in UTF-16 or UTF-32 if it says so; `\r\n` and `\r` become `\n`.

    A byte order mark says so, or, in its absence, that every other one of the first bytes is 0.
    """
    raw, encoding = _encoding(raw)
    text = raw.decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def utf8(raw: bytes) -> bytes:
    """Return text as UTF-8 without a byte order mark; bytes that are no text in the encoding they state as they are."""
    plain, encoding = _encoding(raw)
    try:
        return plain if encoding == "utf-8" else plain.decode(encoding).encode()
    except UnicodeError:
        return raw


def _encoding(raw: bytes) -> tuple[bytes, str]:
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :], encoding
    head = raw[:256]
    if len(head) >= 4 and len(raw) % 2 == 0:
        for encoding, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
            if zeros.count(0) > 0.7 * len(zeros) and not others.count(0):
                return raw, encoding
    return raw, "utf-8"


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


def read_lines(path: str | Path, what: str, hint: str, longest: int) -> Iterator[bytes]:
    """Yield the lines of a regular file with their newlines; InputError for one longer than `longest` bytes."""
    with open_file(path, what, hint) as file:
        for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
            if len(line) > longest:
                raise InputError(f"{path}:{number}: a line longer than {longest} bytes", hint)
            yield line


def check_archive(archive: zipfile.ZipFile, size: int, most: int | None = None) -> None:
    """Raise ValueError if the members of a zip file of `size` bytes expand to more than `most`, or its allowance."""
    most = allowance(size) if most is None else most
    total = sum(entry.file_size for entry in archive.infolist())
    if total > most:
        raise ValueError(f"expands to {total} bytes, more than {most // 2**20} MiB for a file of {size}")


def _open(path: str | Path, what: str, hint: str, seeking: bool = False) -> int:
    try:
        _check_kind(path, os.stat(path), what, hint, seeking)
        # without O_NONBLOCK, opening a pipe without a writer blocks for ever
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise Unreadable(path, what, str(getattr(error, "strerror", None) or error), hint) from None
    try:
        _check_kind(path, os.fstat(handle), what, hint, seeking)  # it may have been replaced in between
    except InputError:
        os.close(handle)
        raise
    return handle


def _check_kind(path: str | Path, found: os.stat_result, what: str, hint: str, seeking: bool) -> None:
    if stat.S_ISREG(found.st_mode) or (stat.S_ISFIFO(found.st_mode) and not seeking):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "a device, which may be larger than any file")
    raise Unreadable(path, what, f"it is {kind}", hint)


def _part(handle: int, waiting: bool) -> bytes:
    if waiting:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(1000 * PIPE_SECONDS):
            raise OSError(0, f"nothing came through the pipe for {PIPE_SECONDS:g} s")
    return os.read(handle, _STEP)
