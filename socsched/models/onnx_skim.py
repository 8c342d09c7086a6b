"""ONNX files without the values of their weights: shapes are all that planning needs, and weights are most of a file.

The protocol-buffer encoding is read as a stream, and the payload of every large float initialiser is skipped, so memory
does not grow with the weights.  Files may be compressed (`.onnx.xz`): weights of zeros then take no space either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from socsched.bounded import allowance, open_file

PACKED = ".xz"
_LARGE = 16384
"""Bytes from which on a payload is skipped; shapes depend on smaller tensors only."""
_CHUNK = 2**20
_MOST_FIELDS = 500_000
"""Fields looked into, several times those of the largest model that is read."""
_MOST_MEMORY = 2**28
"""Bytes that decompression may use for its dictionary."""
_GRAPH, _INITIALISER = 7, 5
_DIMS, _DATA_TYPE, _FLOATS, _RAW, _DOUBLES = 1, 2, 4, 9, 10
_FLOAT_SIZES = {1: 4, 10: 2, 11: 8, 16: 2}
"""Bytes of an element by the data type of a tensor: float, float16, double, bfloat16."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Stream:
    """Bytes of a source in order: taken, which counts against `room`, or skipped; ValueError past the end or `most`."""

    def __init__(self, source: _Source, room: int, most: int) -> None:
        self.source, self.room, self.most = source, room, most
        self.position = self.fields = 0
        self._ahead = b""

    def take(self, size: int) -> bytes:
        self.room -= size
        if self.room < 0:
            raise ValueError("far larger than its file, weights aside")
        return b"".join(self._chunks(size))

    def skip(self, size: int) -> None:
        for _ in self._chunks(size):
            pass

    def _chunks(self, size: int) -> Iterator[bytes]:
        self.position += size
        if self.position > self.most:
            raise ValueError(f"larger than the {self.most // 2**20} MiB an ONNX file may have")
        while size:
            chunk = self.source.read(min(size, _CHUNK))
            if not chunk:
                raise ValueError("it breaks off")
            size -= len(chunk)
            yield chunk

    def ended(self) -> bool:
        """Return whether the source is at its end; if not, its next byte is kept for the next field."""
        self._ahead = self.source.read(1)
        return not self._ahead

    def key(self) -> tuple[int, int, bytes]:
        """Return number and wire type of the field whose first byte `ended` has read, and its encoded key."""
        self.position += 1
        return self.field(self._ahead)

    def varint(self, first: bytes = b"") -> tuple[int, bytes]:
        """Return a variable-length number and its encoding."""
        raw = first or self.take(1)
        while raw[-1] & 0x80:
            if len(raw) == 10:
                raise ValueError("a number in it is too long")
            raw += self.take(1)
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw)), raw

    def field(self, first: bytes = b"") -> tuple[int, int, bytes]:
        """Return number, wire type and encoded key of the next field."""
        self.fields += 1
        if self.fields > _MOST_FIELDS:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        number, raw = self.varint(first)
        return number >> 3, number & 7, raw

    def value(self, wire: int) -> bytes:
        """Return the encoded value of a field of a wire type."""
        if wire == 0:
            return self.varint()[1]
        if wire in (1, 5):
            return self.take(8 if wire == 1 else 4)
        if wire != 2:
            raise ValueError(f"a field in it has the unknown wire type {wire}")
        size, raw = self.varint()
        return raw + self.take(size)


def skim(path: Path, most: int) -> tuple[bytes, dict[int, int], int]:
    """Return a model's encoding without large weights, the bytes left out by index of initialiser, and the whole size.

    What is kept of a compressed file is bounded by its size on disk.  Raises OSError, and ValueError for a file that is
    damaged or expands to more than `most` bytes.
    """
    size = path.stat().st_size
    with _opened(path) as source:
        room = allowance(size) if path.suffix == PACKED else most
        stream = _Stream(source, room, most)
        parts = bytearray()
        left_out: dict[int, int] = {}
        count = 0
        while not stream.ended():
            number, wire, key = stream.key()
            if (number, wire) != (_GRAPH, 2):
                parts += key + stream.value(wire)
                continue
            graph = bytearray()
            length, _ = stream.varint()
            end = stream.position + length
            while stream.position < end:
                number, wire, raw = stream.field()
                if (number, wire) != (_INITIALISER, 2):
                    graph += raw + stream.value(wire)
                    continue
                tensor, skipped = _tensor(stream)
                graph += raw + _encoded(len(tensor)) + tensor
                if skipped:
                    left_out[count] = skipped
                count += 1
            if stream.position != end:
                raise ValueError("a message in it ends inside a field")
            parts += key + _encoded(len(graph)) + graph
        return bytes(parts), left_out, stream.position


def _tensor(stream: _Stream) -> tuple[bytes, int]:
    """Return the encoding of the tensor that follows without a large float payload, and the bytes left out."""
    length, _ = stream.varint()
    if length < _LARGE:
        return stream.take(length), 0
    end, kept, skipped, count, kind = stream.position + length, bytearray(), 0, 1, 0
    while stream.position < end:
        number, wire, key = stream.field()
        if wire == 2 and number in (_FLOATS, _RAW, _DOUBLES) and not skipped and kind in _FLOAT_SIZES:
            size, raw = stream.varint()
            if size >= _LARGE and size == count * _FLOAT_SIZES[kind]:
                stream.skip(size)
                skipped = size
                continue
            kept += key + raw + stream.take(size)
            continue
        value = stream.value(wire)
        kept += key + value
        if number == _DIMS:
            for side in _numbers(value, wire):
                count *= side
        elif number == _DATA_TYPE and wire == 0:
            kind = _numbers(value, wire)[0]
    if stream.position != end:
        raise ValueError("a tensor in it ends inside a field")
    return bytes(kept), skipped


def _numbers(value: bytes, wire: int) -> list[int]:
    """Return the numbers of a field of variable-length numbers, one or packed."""
    found, number, place = [], 0, 0
    raw = value
    if wire == 2:  # the length comes first
        start = next((index for index, byte in enumerate(raw) if byte < 0x80), len(raw) - 1) + 1
        raw = raw[start:]
    for byte in raw:
        number |= (byte & 0x7F) << place
        place += 7
        if byte < 0x80:
            found.append(number)
            number = place = 0
    return found


def _encoded(number: int) -> bytes:
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    with open_file(path, "ONNX file", "check the path") as file:
        yield _Xz(file) if path.suffix == PACKED else file


class _Xz:
    """The content of an .xz file as a source; ValueError if it is damaged."""

    def __init__(self, file: Any) -> None:
        import lzma

        self.file, self.error = file, lzma.LZMAError
        self.stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY)
        self.ready, self.at = b"", 0

    def read(self, size: int, /) -> bytes:
        if self.at == len(self.ready):
            self.ready, self.at = self._more(), 0
        chunk = self.ready[self.at : self.at + size]
        self.at += len(chunk)
        return chunk

    def _more(self) -> bytes:
        while not self.stream.eof:
            raw = self.file.read(_CHUNK) if self.stream.needs_input else b""
            if self.stream.needs_input and not raw:
                raise ValueError("damaged xz: it breaks off")
            try:
                found = self.stream.decompress(raw, _CHUNK)
            except self.error as error:
                raise ValueError(f"damaged xz: {error}") from None
            if found:
                return found
        return b""
