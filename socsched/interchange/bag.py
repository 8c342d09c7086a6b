"""Recordings of topics as pipelines: rate, size and release jitter of every topic become sensors.

Read: MCAP and SQLite files of rosbag2 (folders with metadata.yaml or without), any other MCAP, and bags of ROS 1
(format 2.0).  Rates are those of `pipeline_text.rate_of`, from the times at which the recorder received the messages,
since headers state when data was taken, not when it arrived.  Of files that are cut off, what is whole is read, and a
note counts the rest.

Bags of ROS 1 (http://wiki.ros.org/Bags/Format/2.0) are read by the records of the library `rosbags`.

Records are walked in the order of the file, so that neither the index at its end nor its closing is needed: a bag that
was cut off (``.bag.active``) is read up to there.  Chunks are decompressed here, since `rosbags` trusts the sizes that
a file states.  Tried on rosbags 0.11.
"""

from __future__ import annotations

import bz2
import gzip
import io
import sqlite3
import struct
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from socsched.bounded import allowance, open_file, read_head
from socsched.descriptor.source import read as read_yaml
from socsched.errors import InputError, MachineError, extra
from socsched.interchange.pipeline_text import (
    ImportedPipeline,
    Names,
    NoRate,
    Rate,
    clocks,
    document,
    duration,
    rate_of,
)
from socsched.interchange.recording_file import looks
from socsched.interchange.sqlite_file import open_sqlite
from socsched.runtime.mcap_file import MOST_MESSAGES, MOST_TOPICS, open_mcap
from socsched.text import one_line

_ROS1 = b"#ROSBAG V"
_ROS1_HINT = "give a bag of ROS 1, format 2.0; older ones are converted by `rosbag fix`"
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
        with open_file(path, "bag", _ROS1_HINT) as file:
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
                        raise ValueError(f"more than {most_topics} topics")
                else:
                    of = connections.get(header.get_uint32("conn"))
                    if of is None:
                        raise ValueError("a message of an unknown connection")
                    of[2].append(header.get_time("time"))
                    of[3].append(data)
                    count += 1
                    if count > most_messages:
                        raise ValueError(f"more than {most_messages} messages; split the bag")
    except (ReaderError, ValueError, OSError, EOFError, RuntimeError, struct.error) as error:
        raise InputError(f"{path}: not a readable bag: {one_line(str(error))[:200]}", _ROS1_HINT) from None
    return list(topics.values()), cut


def _records(file: BinaryIO, size: int, most: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (kind, header, data) of connections, of messages with the length of their data, and of the cut-off end."""
    while (at := file.tell()) < size:
        try:
            header, length = _head(file)
        except EOFError:
            if size - at > _LONGEST_HEADER or file.tell() < size:
                raise
            yield "cut", size - at, None
            return
        kind, begin = header.get_uint8("op"), file.tell()
        whole = begin + length <= size
        if kind == _CHUNK:
            content, expanded = file.read(length), header.get_uint32("size")
            if expanded > most:
                raise ValueError(f"a chunk of {expanded} bytes, more than a file of this size explains")
            most -= expanded
            yield from _chunk(header.get_string("compression"), content, expanded, whole)
        elif kind in (_CONNECTION, _MESSAGE) and whole:  # a bag without chunks
            yield kind, header, file.read(length) if kind == _CONNECTION else length
        file.seek(begin + length)
        if not whole:
            yield "cut", size - at, None
            return


def _chunk(compression: str, content: bytes, size: int, whole: bool) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the records of a chunk; of one that is cut off those that are whole."""
    data = _decompressed(compression, content, size)
    if whole and len(data) != size:
        raise ValueError(f"a chunk of {len(data)} bytes or more that states {size}")
    inner = io.BytesIO(data)
    while inner.tell() < len(data):
        try:
            header, length = _head(inner)
            begin = inner.tell()
            if begin + length > len(data):
                raise EOFError("a record longer than its chunk")
        except EOFError:
            if whole:
                raise
            return
        kind = header.get_uint8("op")
        if kind in (_CONNECTION, _MESSAGE):
            yield kind, header, data[begin : begin + length] if kind == _CONNECTION else length
        inner.seek(begin + length)


def _decompressed(compression: str, content: bytes, size: int) -> bytes:
    """Return at most size + 1 bytes of a chunk's content."""
    if compression == "none":
        return content
    if compression == "bz2":
        return bz2.BZ2Decompressor().decompress(content, size + 1)
    if compression == "lz4":
        from lz4.frame import LZ4FrameDecompressor

        return bytes(LZ4FrameDecompressor().decompress(content, size + 1))
    raise ValueError(f"chunks compressed by {compression!r}, expected none, bz2 or lz4")


def _header(file: BinaryIO) -> Any:
    """Return the header of the next record; EOFError if it is cut off or longer than any."""
    from rosbags.rosbag1.reader import Header, ReaderError

    raw = file.read(4)
    length = int.from_bytes(raw, "little")
    if len(raw) < 4 or length > _LONGEST_HEADER:
        raise EOFError("a record ends within its header" if len(raw) < 4 else f"a header of {length} bytes")
    try:
        return Header.read(io.BytesIO(raw + file.read(length)))
    except ReaderError as error:
        raise EOFError(str(error)) from None


def _head(file: BinaryIO) -> tuple[Any, int]:
    """Return the header of the next record and the length of its data; EOFError if they are cut off."""
    from rosbags.rosbag1.reader import ReaderError, read_uint32

    header = _header(file)
    try:
        return header, int(read_uint32(file))
    except ReaderError as error:
        raise EOFError(str(error)) from None


METADATA = "metadata.yaml"
_SOURCE = "recording"
_HINT = "give an .mcap, .db3 or .bag file, or the folder of `ros2 bag record`"
_MOST_FILES = 10_000
_MCAP = b"\x89MCAP"
_SQLITE, _GZIP, _ZSTD = b"SQLite format 3\x00", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_KINDS = {
    "sensor_msgs/msg/PointCloud2": "lidar",
    "sensor_msgs/msg/LaserScan": "lidar",
    "sensor_msgs/msg/Image": "camera",
    "sensor_msgs/msg/CompressedImage": "camera",
    "sensor_msgs/msg/Imu": "imu",
    "sensor_msgs/msg/NavSatFix": "gnss",
    "foxglove.PointCloud": "lidar",
    "foxglove.CompressedImage": "camera",
}
"""Message type -> kind of sensor; topics of other types are of kind "topic"."""
_OWN = ("/rosout", "/rosout_agg", "/parameter_events", "/clock", "/tf_static", "/events/write_split")
"""Topics of ROS itself: logs, parameters, time, constants."""


@dataclass(slots=True)
class RecordedTopic:
    """Arrivals (ns) and sizes (bytes) of the messages of a type on a topic, in the order of the file."""

    name: str
    type: str
    times: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))


@dataclass(slots=True)
class TopicRecording:
    """The topics of a recording by name and type, and notes on what of it was not read."""

    topics: dict[tuple[str, str], RecordedTopic] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def topic(self, name: str, kind: str) -> RecordedTopic:
        """Return a topic; one name may have messages of several types."""
        return self.topics.setdefault((name, kind), RecordedTopic(name, kind))


def import_bag(path: Path) -> ImportedPipeline:
    """Return a pipeline with a sensor for every topic that has a rate, and one placeholder stage.

    InputError for faulty files, and if no topic has a rate.
    """
    recording = read_recording(path)
    topics = [topic for _, topic in sorted(recording.topics.items())]
    recorded = clocks(topic.times for topic in topics)
    sensors: dict[str, Any] = {}
    names, notes, left = Names(), list[str](), list[str]()
    names.take("placeholder")
    for topic in topics:
        rate = rate_of(topic.times, recorded)
        if topic.name in _OWN:
            rate = NoRate(f"{len(topic.times)} messages of ROS itself")
        if isinstance(rate, NoRate):
            left.append(f"{one_line(topic.name)} ({one_line(topic.type)}): left out, {rate.reason}.")
            continue
        key = names.take(topic.name)
        sensors[key] = {
            "kind": _KINDS.get(topic.type, "topic"),
            "period": duration(rate.period_ns),
            "jitter": duration(min(rate.jitter_ns, rate.period_ns)),
            "bytes_per_frame": f"{max(topic.sizes)} B",
            "source": _SOURCE,
        }
        notes.append(_note(key, topic, rate))
    if not sensors:
        what = " ".join([*left[:5], *recording.notes]) or "it holds no messages"
        raise InputError(f"{path}: no topic with a rate: {what}", f"record for longer; {_HINT}")
    notes += [*left, *recording.notes]
    notes.append(
        "A recording states neither stages nor deadlines nor who published a topic: stage `placeholder` stands for "
        "yours; delete the sensors that are outputs of stages."
    )
    first = max(sensors, key=lambda key: int(sensors[key]["bytes_per_frame"].split()[0]))
    title = f"topics of the recording {one_line(path.name)}"
    stages = {"placeholder": _placeholder(first)}
    what, where = "recording of topics", one_line(path.name)[:300]
    mapping = document(path.resolve().stem, title, _SOURCE, what, where, sensors=sensors, stages=stages)
    return ImportedPipeline(mapping, tuple(notes))


def _placeholder(sensor: str) -> Mapping[str, Any]:
    time = {"value": "1 us", "kind": "assumed", "note": "the recording states no stage"}
    cost = {"platform": "none", "mode": "none", "engine": "cpu", "precision": "fp32", "time": time}
    stage = {"title": "replace by the stages that read the sensors", "after": [sensor], "precisions": ["fp32"]}
    return {**stage, "share": 1, "output_bytes": "0 B", "costs": [cost]}


def read_recording(path: Path) -> TopicRecording:
    """Return the topics of a recording: one file, or the storage files of a folder."""
    recording = TopicRecording()
    files, stated = _files(path, recording.notes)
    for file in files:
        with _expanded(file) as plain:
            head = read_head(plain, "recording", _HINT, 4096)
            readers: dict[bytes, Callable[[Path, TopicRecording], None]]
            readers = {_MCAP: _mcap, _SQLITE: _database, _ROS1: _ros1}
            read = next((reader for magic, reader in readers.items() if head.startswith(magic)), None)
            if read is None:
                what = looks(file, head)[0] if head else "an empty file"
                raise InputError(f"{file}: not a recording: it looks like {what}", f"known: {_HINT}")
            try:
                read(plain, recording)
            except InputError as error:
                raise InputError(str(error).replace(str(plain), str(file)), error.hint) from None
        total = sum(len(topic.times) for topic in recording.topics.values())
        if len(recording.topics) > MOST_TOPICS or total > MOST_MESSAGES:
            raise InputError(
                f"{path}: more than {MOST_TOPICS} topics or {MOST_MESSAGES} messages", "split the recording"
            )
    total = sum(len(topic.times) for topic in recording.topics.values())
    if stated > total:
        recording.notes.append(f"{METADATA} states {stated} messages, {total} of them are in the files.")
    return recording


def _note(key: str, topic: RecordedTopic, rate: Rate) -> str:
    lost = "" if rate.jitter_ns <= rate.period_ns else (
        f"; lateness grows to {duration(rate.jitter_ns)}, more than a period, so messages are missing or the rate "
        "changes: jitter is set to the period"
    )  # fmt: skip
    sizes = sorted(topic.sizes)
    apart = f"{duration(rate.shortest_ns)} to {duration(rate.longest_ns)} apart"
    aside = f"; {rate.note}" if rate.note else ""
    return (
        f"{key}: {one_line(topic.name)}, {one_line(topic.type)}, {len(topic.times)} messages, {apart}, "
        f"{sizes[0]} to {sizes[-1]} bytes (median {sizes[len(sizes) // 2]}){aside}{lost}."
    )


def _files(path: Path, notes: list[str]) -> tuple[list[Path], int]:
    """Return the storage files, and the number of messages that metadata.yaml states.

    They are the file itself, those that metadata.yaml lists, or without it all of the folder, in the order of their
    numbers: a recorder that was killed has not written it.
    """
    if path.is_file():
        return [path], 0
    if not path.is_dir():
        raise InputError(f"{path}: no such recording", _HINT)
    if not (path / METADATA).is_file():
        found = sorted((file for file in path.iterdir() if _is_storage(file)), key=_order)
        if not found or len(found) > _MOST_FILES:
            raise InputError(f"{path}: no {METADATA} in this folder, and no .mcap or .db3 file", _HINT)
        notes.append(f"The folder has no {METADATA}: its files were read in the order of their numbers.")
        return found, 0
    document = read_yaml(path / METADATA)
    document.check()
    described = document.data.get("rosbag2_bagfile_information") if isinstance(document.data, Mapping) else None
    listed = described.get("relative_file_paths") if isinstance(described, Mapping) else None
    if not isinstance(listed, list) or not listed or len(listed) > _MOST_FILES:
        where = f"{path / METADATA}: rosbag2_bagfile_information.relative_file_paths"
        raise InputError(f"{where}: expected a list of 1 to {_MOST_FILES} files", _HINT)
    assert isinstance(described, Mapping)
    if str(described.get("compression_mode") or "none").lower() == "message":
        notes.append("rosbag2 compressed every message: sizes are those of compressed messages.")
    found, missing = list[Path](), list[str]()
    for name in map(str, listed):
        place = Path(name)
        if place.is_absolute() or ".." in place.parts or len(place.parts) > 2:
            raise InputError(f"{path / METADATA}: {one_line(name)[:200]} is not a file of this folder", _HINT)
        file = path / place.name  # the first versions wrote the folder's name before it
        if file.is_file():
            found.append(file)
        else:
            missing.append(one_line(name)[:200])
    if not found:
        raise InputError(f"{path / METADATA}: {missing[0]} is not a file of this folder", _HINT)
    if missing:
        notes.append(
            f"{len(missing)} of {len(listed)} files that {METADATA} lists are missing: {', '.join(missing[:5])}."
        )
    stated = described.get("message_count")
    return found, stated if isinstance(stated, int) else 0


@contextmanager
def _expanded(file: Path) -> Iterator[Path]:
    """Yield a storage file, expanded if it was compressed as a whole, by gzip or by rosbag2 with zstd."""
    with open_file(file, "recording", _HINT) as raw:
        head = raw.read(4)
        if not head.startswith(_GZIP) and head != _ZSTD:
            yield file
            return
        raw.seek(0)
        with tempfile.TemporaryDirectory(prefix="socsched-") as folder:
            plain = Path(folder) / file.stem
            left = allowance(file.stat().st_size)
            try:
                with plain.open("wb") as target, _decompressor(file, raw, head) as content:
                    while block := content.read(2**20):
                        left -= len(block)
                        if left < 0:
                            raise ValueError("it expands to more than a file of this size explains")
                        target.write(block)
            except Exception as error:  # whatever the library raises for damaged data
                if isinstance(error, MachineError):
                    raise
                reason = one_line(str(error))[:200] or type(error).__name__
                raise InputError(f"{file}: cannot be decompressed: {reason}", _HINT) from None
            yield plain


def _decompressor(file: Path, raw: BinaryIO, head: bytes) -> Any:
    if head.startswith(_GZIP):
        return gzip.open(raw)
    try:
        import zstandard
    except ImportError:
        raise MachineError(f"{file}: zstd needs the package zstandard", extra("mcap")) from None
    return zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(raw, read_across_frames=True)


def _is_storage(file: Path) -> bool:
    return any(suffix in (".mcap", ".db3") for suffix in file.suffixes[-2:]) and file.is_file()


def _order(file: Path) -> tuple[int, str]:
    """Return the key by which storage files are sorted: rosbag2 numbers them NAME_0, NAME_1, ..., NAME_10."""
    number = file.name.partition(".")[0].rpartition("_")[2]
    return (int(number) if number.isdecimal() and len(number) < 9 else -1), file.name


def _mcap(path: Path, recording: TopicRecording) -> None:
    file = open_mcap(path, partial=True)
    for each in file.topics.values():
        topic = recording.topic(each.name, each.type)
        topic.times.extend(each.times)
        topic.sizes.extend(each.sizes)
    if file.cut:
        recording.notes.append(f"{one_line(path.name)} {file.cut}.")


def _ros1(path: Path, recording: TopicRecording) -> None:
    topics, cut = read_topics(path, MOST_TOPICS, MOST_MESSAGES)
    for name, kind, times, sizes in topics:
        topic = recording.topic(name, kind)
        topic.times.extend(times)
        topic.sizes.extend(sizes)
    if cut:
        recording.notes.append(f"{one_line(path.name)} {cut}.")


def _database(path: Path, recording: TopicRecording) -> None:
    """Take in a SQLite file of rosbag2: tables `topics` and `messages`, of all versions since Dashing."""
    topics: dict[int, RecordedTopic] = {}
    query = "SELECT topic_id, timestamp, length(data) FROM messages LIMIT ?"
    fault, count = "", 0
    try:
        with open_sqlite(path, "recording", _HINT, partial=True) as base:
            for number, name, kind in base.execute("SELECT id, name, type FROM topics LIMIT ?", (MOST_TOPICS,)):
                topics[int(number)] = recording.topic(str(name), str(kind))
            try:
                for number, time_ns, size in base.execute(query, (MOST_MESSAGES + 1,)):
                    if number is None and count:
                        raise sqlite3.DatabaseError("a message without a topic")
                    topics[number].times.append(time_ns)
                    topics[number].sizes.append(size)
                    count += 1
            except sqlite3.Error as error:
                fault = one_line(str(error))
                if not count:
                    raise
    except (sqlite3.Error, OverflowError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a readable rosbag2 file: {one_line(str(error))}", _HINT) from None
    except KeyError as error:
        raise InputError(f"{path}: a message of topic {error}, which the table topics lacks", _HINT) from None
    if fault:
        pages, there = _pages(path)
        rest = f"{pages - there} of its {pages} pages are missing" if there < pages else fault
        recording.notes.append(f"{one_line(path.name)} is cut off or damaged after {count} messages: {rest}.")
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        recording.notes.append(
            f"{one_line(log.name)} holds messages that are not in the database yet and were not read: close the "
            f"recording with `sqlite3 {one_line(path.name)} 'PRAGMA wal_checkpoint(TRUNCATE)'`."
        )


def _pages(path: Path) -> tuple[int, int]:
    """Return the number of pages that a database states, and that the file has."""
    head = read_head(path, "recording", _HINT, 100)
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else max(size, 512)
    return int.from_bytes(head[28:32], "big"), path.stat().st_size // size
