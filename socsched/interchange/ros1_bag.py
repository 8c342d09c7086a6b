"""Bags of ROS 1 (format 2.0, http://wiki.ros.org/Bags/Format/2.0), by the records of the library `rosbags`.

Records are walked in the order of the file, so that neither the index at its end nor its closing is needed: a bag that
was cut off (``.bag.active``) is read up to there.  Chunks are decompressed here, since `rosbags` trusts the sizes that
a file states.  Tried on rosbags 0.11.
"""

from __future__ import annotations

import bz2
import io
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from socsched.bounded import allowance, open_file
from socsched.errors import InputError, MachineError, extra
from socsched.text import one_line

MAGIC = b"#ROSBAG V"
_HINT = "give a bag of ROS 1, format 2.0; older ones are converted by `rosbag fix`"
_LONGEST_HEADER = 2**24
"""A connection's header holds the definition of its message type."""
_MESSAGE, _CHUNK, _CONNECTION = 2, 5, 7

Topic = tuple[str, str, "array[int]", "array[int]"]
"""Name, type as in ROS 2, times (ns), sizes (bytes)."""


def read_topics(path: Path, most_topics: int, most_messages: int) -> tuple[list[Topic], str]:
    """Return the topics of a bag, one for each name and type, and what is said of a bag that is cut off.

    InputError for a damaged bag or too many topics or messages, MachineError without the library.
    """
    try:
        from rosbags.rosbag1.reader import ReaderError
        from rosbags.typesys.msg import normalize_msgtype
    except ImportError:
        raise MachineError(f"{path}: bags of ROS 1 need the package rosbags", extra("ros1")) from None
    topics: dict[tuple[str, str], Topic] = {}
    connections: dict[int, Topic] = {}
    count, cut = 0, ""
    try:
        with open_file(path, "bag", _HINT) as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            if file.readline(20) != b"#ROSBAG V2.0\n":
                raise ReaderError("expected format 2.0")
            for kind, header, data in _records(file, size, allowance(size)):
                if kind == "cut":
                    cut = f"ends within a record: of its last {header} bytes, what is whole is read"
                elif kind == _CONNECTION:
                    inner = _header(io.BytesIO(struct.pack("<I", len(data)) + data))
                    name, given = header.get_string("topic"), inner.get_string("type")
                    key = name, normalize_msgtype(given)
                    topic = topics.setdefault(key, (*key, array("q"), array("q")))
                    connections[header.get_uint32("conn")] = topic
                    if len(topics) > most_topics:
                        raise ReaderError(f"more than {most_topics} topics")
                else:
                    of = connections.get(header.get_uint32("conn"))
                    if of is None:
                        raise ReaderError("a message of an unknown connection")
                    of[2].append(header.get_time("time"))
                    of[3].append(data)
                    count += 1
                    if count > most_messages:
                        raise ReaderError(f"more than {most_messages} messages; split the bag")
    except (ReaderError, ValueError, OSError, EOFError, RuntimeError, struct.error) as error:
        raise InputError(f"{path}: not a readable bag: {one_line(str(error))[:200]}", _HINT) from None
    return list(topics.values()), cut


def _records(file: BinaryIO, size: int, most: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (kind, header, data) of connections, of messages with the length of their data, and of the cut-off end."""
    from rosbags.rosbag1.reader import ReaderError

    while (at := file.tell()) < size:
        try:
            header = _header(file)
            length = _length(file)
        except ReaderError as error:
            if size - at > _LONGEST_HEADER or file.tell() < size:
                raise error
            yield "cut", size - at, None
            return
        kind = header.get_uint8("op")
        whole = file.tell() + length <= size
        if kind == _CHUNK:
            content, expanded = file.read(length), header.get_uint32("size")
            if expanded > most:
                raise ReaderError(f"a chunk of {expanded} bytes, more than a file of this size explains")
            most -= expanded
            yield from _chunk(header.get_string("compression"), content, expanded, whole)
        elif kind == _CONNECTION and whole:
            yield kind, header, file.read(length)
        elif kind == _MESSAGE and whole:  # a bag without chunks
            file.seek(length, io.SEEK_CUR)
            yield kind, header, length
        else:
            file.seek(length, io.SEEK_CUR)
        if not whole:
            yield "cut", size - at, None
            return


def _chunk(compression: str, content: bytes, size: int, whole: bool) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the records of a chunk; of one that is cut off those that are whole."""
    from rosbags.rosbag1.reader import ReaderError

    data = _expanded(compression, content, size, whole)
    if whole and len(data) != size:
        raise ReaderError(f"a chunk of {len(data)} bytes or more that states {size}")
    inner = io.BytesIO(data)
    while inner.tell() < len(data):
        try:
            header = _header(inner)
            length = _length(inner)
        except ReaderError:
            if whole:
                raise
            return
        kind, begin = header.get_uint8("op"), inner.tell()
        if begin + length > len(data):
            if whole:
                raise ReaderError("a record longer than its chunk")
            return
        if kind == _CONNECTION:
            yield kind, header, data[begin : begin + length]
        elif kind == _MESSAGE:
            yield kind, header, length
        inner.seek(begin + length)


def _expanded(compression: str, content: bytes, size: int, whole: bool) -> bytes:
    """Return at most size + 1 bytes of a chunk's content."""
    from rosbags.rosbag1.reader import ReaderError

    if compression == "none":
        return content
    if compression == "bz2":
        return bz2.BZ2Decompressor().decompress(content, size + 1)
    if compression == "lz4":
        from lz4.frame import LZ4FrameDecompressor

        return bytes(LZ4FrameDecompressor().decompress(content, size + 1))
    raise ReaderError(f"chunks compressed by {compression!r}, expected none, bz2 or lz4")


def _header(file: BinaryIO) -> Any:
    """Return the header of the next record; ReaderError if it is cut off or longer than any."""
    from rosbags.rosbag1.reader import Header, ReaderError

    raw = file.read(4)
    length = int.from_bytes(raw, "little")
    if len(raw) < 4 or length > _LONGEST_HEADER:
        raise ReaderError("a record ends within its header" if len(raw) < 4 else f"a header of {length} bytes")
    return Header.read(io.BytesIO(raw + file.read(length)))


def _length(file: BinaryIO) -> int:
    from rosbags.rosbag1.reader import read_uint32

    return int(read_uint32(file))
