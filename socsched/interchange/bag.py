"""MCAP and rosbag2 recordings: rate, size and release jitter of every topic become sensors of a pipeline.

A rosbag2 folder has metadata.yaml and storage files, MCAP or SQLite (.db3, table `messages`).  The period is the mean
distance of messages, the jitter their largest lateness after the grid of that period.  Both come from the times at
which the recorder received the messages, since headers state when data was taken, not when it arrived.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.descriptor.source import read as read_yaml
from socsched.errors import InputError
from socsched.interchange.pipeline_text import ImportedPipeline, Names, duration, stage_name
from socsched.interchange.sqlite_file import open_sqlite
from socsched.limits import LONGEST_NS
from socsched.runtime.mcap_file import MOST_MESSAGES, MOST_TOPICS, open_mcap
from socsched.text import one_line

METADATA = "metadata.yaml"
_SOURCE = "recording"
_HINT = "give an .mcap file, a .db3 file, or the folder of `ros2 bag record`"
_MOST_FILES = 10_000
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


@dataclass(slots=True)
class RecordedRate:
    """Arrivals (ns) and sizes (bytes) of a topic's messages."""

    type: str
    times: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))


@dataclass(frozen=True, slots=True)
class Rate:
    """Mean period, largest lateness after its grid, shortest and longest distance of messages, in ns."""

    period_ns: int
    jitter_ns: int
    shortest_ns: int
    longest_ns: int


def import_bag(path: Path) -> ImportedPipeline:
    """Return a pipeline with a sensor for every topic and one placeholder stage; InputError for faulty files."""
    topics = read_topics(path)
    sensors: dict[str, Any] = {}
    names, notes = Names(), list[str]()
    names.take("placeholder")
    for name, topic in sorted(topics.items()):
        rate = rate_of(topic)
        if rate is None:
            shown = f"{len(topic.times)} message{'s' * (len(topic.times) != 1)}"
            notes.append(f"{one_line(name)} ({one_line(topic.type)}): left out, {shown} give no period.")
            continue
        key = names.take(name)
        sensors[key] = {
            "kind": _KINDS.get(topic.type, "topic"),
            "period": duration(rate.period_ns),
            "jitter": duration(min(rate.jitter_ns, rate.period_ns)),
            "bytes_per_frame": f"{max(topic.sizes)} B",
            "source": _SOURCE,
        }
        notes.append(_note(key, name, topic, rate))
    if not sensors:
        raise InputError(f"{path}: no topic with two messages at different times", _HINT)
    notes.append(
        "A recording states neither stages nor deadlines nor who published a topic: stage `placeholder` stands for "
        "yours; delete the sensors that are outputs of stages."
    )
    first = max(sensors, key=lambda key: int(sensors[key]["bytes_per_frame"].split()[0]))
    mapping = {
        "schema_version": "1",
        "name": stage_name(path.resolve().stem),
        "title": f"topics of the recording {one_line(path.name)}"[:300],
        "sources": {_SOURCE: {"title": "recording of topics", "where": one_line(path.name)[:300]}},
        "sensors": sensors,
        "stages": {"placeholder": _placeholder(first)},
    }
    return ImportedPipeline(mapping, tuple(notes))


def _placeholder(sensor: str) -> Mapping[str, Any]:
    time = {"value": "1 us", "kind": "assumed", "note": "the recording states no stage"}
    cost = {"platform": "none", "mode": "none", "engine": "cpu", "precision": "fp32", "time": time}
    stage = {"title": "replace by the stages that read the sensors", "after": [sensor], "precisions": ["fp32"]}
    return {**stage, "share": 1, "output_bytes": "0 B", "costs": [cost]}


def read_topics(path: Path) -> dict[str, RecordedRate]:
    """Return the topics of a recording by name, with times in order."""
    topics: dict[str, RecordedRate] = {}
    for file in _files(path):
        for name, kind, times, sizes in _database(file) if _is_database(file) else _mcap(file):
            topic = topics.setdefault(name, RecordedRate(kind))
            topic.times.extend(times)
            topic.sizes.extend(sizes)
        if len(topics) > MOST_TOPICS or sum(len(topic.times) for topic in topics.values()) > MOST_MESSAGES:
            raise InputError(
                f"{path}: more than {MOST_TOPICS} topics or {MOST_MESSAGES} messages", "split the recording"
            )
    for topic in topics.values():
        topic.times = array("q", sorted(topic.times))
    return topics


def rate_of(topic: RecordedRate) -> Rate | None:
    """Return the rate of a topic, None without two messages at different times or for periods over an hour."""
    import numpy as np

    times = np.array(topic.times, np.int64)
    if len(times) < 2 or times[-1] == times[0]:
        return None
    period = max(1, round(int(times[-1] - times[0]) / (len(times) - 1)))
    if period > LONGEST_NS:
        return None
    late = times - times[0] - period * np.arange(len(times), dtype=np.int64)
    gaps = np.diff(times)
    return Rate(period, int(late.max() - late.min()), int(gaps.min()), int(gaps.max()))


def _note(key: str, name: str, topic: RecordedRate, rate: Rate) -> str:
    lost = "" if rate.jitter_ns <= rate.period_ns else (
        f"; lateness grows to {duration(rate.jitter_ns)}, more than a period, so messages are missing or the rate "
        "changes: jitter is set to the period"
    )  # fmt: skip
    sizes = sorted(topic.sizes)
    apart = f"{duration(rate.shortest_ns)} to {duration(rate.longest_ns)} apart"
    return (
        f"{key}: {one_line(name)}, {one_line(topic.type)}, {len(topic.times)} messages, {apart}, "
        f"{sizes[0]} to {sizes[-1]} bytes (median {sizes[len(sizes) // 2]}){lost}."
    )


def _files(path: Path) -> list[Path]:
    """Return the storage files: the file itself, or those that metadata.yaml lists."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such recording", _HINT)
    if not (path / METADATA).is_file():
        raise InputError(f"{path}: no {METADATA} in this folder", _HINT)
    document = read_yaml(path / METADATA)
    document.check()
    described = document.data.get("rosbag2_bagfile_information") if isinstance(document.data, Mapping) else None
    listed = described.get("relative_file_paths") if isinstance(described, Mapping) else None
    if not isinstance(listed, list) or not listed or len(listed) > _MOST_FILES:
        where = f"{path / METADATA}: rosbag2_bagfile_information.relative_file_paths"
        raise InputError(f"{where}: expected a list of 1 to {_MOST_FILES} files", _HINT)
    assert isinstance(described, Mapping)
    if described.get("compression_mode"):
        raise InputError(f"{path / METADATA}: compressed by rosbag2", "decompress it first: `ros2 bag convert`")
    found = []
    for name in listed:
        file = path / str(name)
        if Path(str(name)).name != str(name) or not file.is_file():
            raise InputError(f"{path / METADATA}: {one_line(str(name))[:200]} is not a file of this folder", _HINT)
        found.append(file)
    return found


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"


def _mcap(path: Path) -> Iterator[tuple[str, str, array[int], array[int]]]:
    for topic in open_mcap(path).topics.values():
        yield topic.name, topic.type, topic.times, topic.sizes


def _database(path: Path) -> Iterator[tuple[str, str, array[int], array[int]]]:
    found: dict[int, tuple[str, str, array[int], array[int]]] = {}
    try:
        with open_sqlite(path) as base:
            for number, name, kind in base.execute("SELECT id, name, type FROM topics LIMIT ?", (MOST_TOPICS,)):
                found[int(number)] = str(name), str(kind), array("q"), array("q")
            query = "SELECT topic_id, timestamp, length(data) FROM messages LIMIT ?"
            for topic, time_ns, size in base.execute(query, (MOST_MESSAGES + 1,)):
                found[topic][2].append(time_ns)
                found[topic][3].append(size)
    except (sqlite3.Error, OverflowError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a readable rosbag2 file: {one_line(str(error))}", _HINT) from None
    except KeyError as error:
        raise InputError(f"{path}: a message of topic {error}, which the table topics lacks", _HINT) from None
    yield from found.values()
