"""Reading of MCAP files (https://mcap.dev/spec): topics, and messages by number; the files are untrusted.

Chunks are decompressed here rather than by the `mcap` package, which trusts the sizes that a file states.  Messages
keep the order of the file, so neither a summary nor an index is needed.
"""

from __future__ import annotations

import io
import struct
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

from socsched.bounded import allowance, open_file
from socsched.errors import InputError, MachineError, extra
from socsched.text import printable

T = TypeVar("T")
MOST_RECORD = 1 << 30
"""Bytes of a record."""
MOST_MESSAGES = 5_000_000
MOST_TOPICS = 4096
_HINT = "record it again, or repair it with `mcap recover`"
_HEAD = 9
"""Bytes before a record's content: opcode and length."""


@dataclass(slots=True)
class Topic:
    """The messages of a topic: log times in ns, sizes in bytes, and places (file offset, number within the chunk)."""

    name: str
    type: str
    encoding: str
    times: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    numbers: array[int] = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.times)


@dataclass(slots=True)
class McapFile:
    """An MCAP file that has been read through once.

    `topics`: by name; of a name with several types, the second and later ones by name and type.  `cut`: what is said of
    a file that ends before its footer, else empty.
    """

    path: Path
    topics: dict[str, Topic]
    cut: str = ""
    _cached: tuple[int, list[bytes]] = (-1, [])

    def message(self, topic: Topic, number: int) -> bytes:
        """Return the content of message `number` of a topic.

        The chunk read last is kept, since messages are usually read in order.
        """
        offset, index = topic.offsets[number], topic.numbers[number]
        if self._cached[0] != offset:
            self._cached = offset, _guarded(self.path, lambda: self._messages(offset))
        messages = self._cached[1]
        if index >= len(messages):
            raise InputError(f"{self.path}: changed while it was read", "do not write to it during the run")
        return messages[index]

    def _messages(self, offset: int) -> list[bytes]:
        from mcap.records import Message

        with open_file(self.path, "recording", _HINT) as file:
            allowed = allowance(file.seek(0, io.SEEK_END))
            file.seek(offset)
            record = next(_records(file), None)
        return [message.data for message in _contents(record, allowed)[0] if isinstance(message, Message)]


def open_mcap(path: Path, partial: bool = False) -> McapFile:
    """Return the topics of a file and where their messages are; of one that is cut off, if `partial`, what is whole.

    Raises InputError for a file that is damaged, truncated or exceeds the limits, MachineError without the package.
    """
    try:
        import mcap.stream_reader  # noqa: F401
    except ImportError:
        raise MachineError(f"{path}: MCAP files need the package mcap", extra("mcap")) from None
    return _guarded(path, lambda: McapFile(path, *_topics(path, partial)))


def _guarded(path: Path, read: Callable[[], T]) -> T:
    """Call `read`; whatever a damaged file makes it raise becomes an InputError."""
    from mcap.exceptions import EndOfFile, McapError

    try:
        return read()
    except EndOfFile:
        raise InputError(f"{path}: the MCAP file ends within a record", _HINT) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}", "check the path") from None
    except (McapError, ValueError, KeyError, struct.error, MemoryError, OverflowError, RuntimeError) as error:
        reason = printable(str(error))[:200] or type(error).__name__
        raise InputError(f"{path}: not a readable MCAP file: {reason}", _HINT) from None


def _topics(path: Path, partial: bool) -> tuple[dict[str, Topic], str]:
    from mcap.exceptions import EndOfFile
    from mcap.records import Channel, Message, Schema
    from mcap.stream_reader import read_magic

    types: dict[int, str] = {0: ""}
    channels: dict[int, Topic] = {}
    topics: dict[str, Topic] = {}
    total, cut = 0, ""
    with open_file(path, "recording", _HINT) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        read_magic(_stream(file))
        offset, left, records = file.tell(), allowance(size), _records(file, partial)
        while True:
            try:
                record = next(records, None)
            except EndOfFile:
                if not partial:
                    raise
                rest = size - offset
                cut = f"ends before its footer, {rest} bytes after its last whole record are left out"
                break
            if record is None:
                break
            number = 0
            contents, used = _contents(record, left)
            left -= used
            for entry in contents:
                if isinstance(entry, Schema):
                    types[entry.id] = entry.name
                elif isinstance(entry, Channel):
                    channels[entry.id] = _topic(topics, entry, types)
                elif isinstance(entry, Message):
                    topic = channels.get(entry.channel_id)
                    if topic is None:
                        raise ValueError(f"byte {offset}: a message of channel {entry.channel_id} before the channel")
                    topic.times.append(entry.log_time)
                    topic.sizes.append(len(entry.data))
                    topic.offsets.append(offset)
                    topic.numbers.append(number)
                    number += 1
            total += number
            if total > MOST_MESSAGES:
                raise ValueError(f"more than {MOST_MESSAGES} messages; split the recording")
            if isinstance(record, _CutChunk):
                cut = f"ends within a chunk, of which {number} messages are whole"
                break
            offset = file.tell()
    return topics, cut


@dataclass(frozen=True, slots=True)
class _CutChunk:
    """A chunk that the file ends within."""

    compression: str
    data: bytes
    uncompressed_size: int


def _cut_chunk(content: bytes) -> _CutChunk:
    """Return the beginning of a chunk record: two times, size, checksum, compression, length and data."""
    (size,) = struct.unpack_from("<Q", content, 16)
    (length,) = struct.unpack_from("<I", content, 28)
    return _CutChunk(content[32 : 32 + length].decode("utf-8", "replace"), content[40 + length :], size)


def _topic(topics: dict[str, Topic], channel: Any, types: dict[int, str]) -> Topic:
    if channel.schema_id not in types:
        raise ValueError(f"topic {channel.topic!r}: schema {channel.schema_id} is not in the file")
    kind = types[channel.schema_id], channel.message_encoding
    key = channel.topic
    if key in topics and (topics[key].type, topics[key].encoding) != kind:
        key = f"{channel.topic} ({', '.join(filter(None, kind))})"
    if key not in topics:
        if len(topics) >= MOST_TOPICS:
            raise ValueError(f"more than {MOST_TOPICS} topics")
        topics[key] = Topic(channel.topic, *kind)
    return topics[key]


def _stream(file: IO[bytes]) -> Any:
    from mcap.data_stream import ReadDataStream

    return ReadDataStream(file)


def _records(file: IO[bytes], partial: bool = False) -> Iterator[Any]:
    """Yield the records from the file's position on, up to the footer; the position is then after the record.

    `partial`: also a chunk that the file ends within.
    """
    from mcap.exceptions import EndOfFile
    from mcap.opcode import Opcode
    from mcap.records import Channel, Chunk, Message, Schema

    kinds = {Opcode.CHANNEL: Channel, Opcode.CHUNK: Chunk, Opcode.SCHEMA: Schema, Opcode.MESSAGE: Message}
    while True:
        head = file.read(_HEAD)
        if len(head) < _HEAD:
            raise EndOfFile()
        opcode, length = head[0], int.from_bytes(head[1:], "little")
        if opcode == Opcode.FOOTER:
            return
        if opcode not in kinds:
            file.seek(length, io.SEEK_CUR)
            yield ()
            continue
        if length > MOST_RECORD:
            raise ValueError(f"byte {file.tell() - _HEAD}: a record of {length} bytes, expected at most {MOST_RECORD}")
        content = file.read(length)
        if len(content) < length:
            if partial and opcode == Opcode.CHUNK and len(content) > 64:
                yield _cut_chunk(content)
            raise EndOfFile()
        yield _parsed(kinds[Opcode(opcode)], content)


def _parsed(kind: Any, content: bytes) -> Any:
    from mcap.records import Message

    stream = _stream(io.BytesIO(content))
    return Message.read(stream, len(content)) if kind is Message else kind.read(stream)


def _contents(record: Any, most: int) -> tuple[list[Any], int]:
    """Return a record itself, or the records within a chunk, and the bytes that the chunk expands to, up to `most`."""
    from mcap.records import Chunk
    from mcap.stream_reader import breakup_chunk

    if record == () or record is None:
        return [], 0
    if not isinstance(record, Chunk | _CutChunk):
        return [record], 0
    if record.uncompressed_size > most:
        raise ValueError(f"a chunk of {record.uncompressed_size} bytes, more than a file of this size explains")
    whole = isinstance(record, Chunk)
    data = _decompressed(record.compression, record.data, record.uncompressed_size, whole)
    check = record.uncompressed_crc if isinstance(record, Chunk) else 0
    if not whole:
        data = data[: _whole_records(data)]
    found: list[Any] = breakup_chunk(Chunk("", data, 0, 0, check, len(data)), validate_crc=whole)
    return found, len(data)


def _whole_records(data: bytes) -> int:
    """Return the length of the records at the beginning of a chunk's data that are whole."""
    at = 0
    while at + _HEAD <= len(data):
        end = at + _HEAD + int.from_bytes(data[at + 1 : at + _HEAD], "little")
        if end > len(data):
            break
        at = end
    return at


def _decompressed(compression: str, data: bytes, size: int, whole: bool) -> bytes:
    """Return the content of a chunk; ValueError if it has not the size that is stated and is `whole`."""
    plain: bytes
    if compression == "zstd":
        import zstandard

        try:
            with zstandard.ZstdDecompressor().stream_reader(data) as reader:
                plain = reader.read(size + 1)
        except zstandard.ZstdError as error:
            raise ValueError(f"damaged chunk: {error}") from None
    elif compression == "lz4":
        from lz4.frame import LZ4FrameDecompressor

        plain = LZ4FrameDecompressor().decompress(data, size + 1)
    elif compression:
        raise ValueError(f"chunks compressed by {compression!r}, expected zstd, lz4 or none")
    else:
        plain = data
    if len(plain) > size or (whole and len(plain) < size):
        raise ValueError(f"a chunk of {len(plain)} bytes or more that states {size}")
    return plain
