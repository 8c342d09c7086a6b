"""Frames of a sensor from a topic of an MCAP file, in the order of the file; they are released at the planned rate."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.runtime.mcap_file import McapFile, Topic, open_mcap
from socsched.runtime.ros_messages import TYPES, decode
from socsched.text import one_line

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class RecordedTopic:
    """The messages of `topic` as arrays."""

    file: McapFile
    topic: Topic

    def array(self, number: int) -> Any:
        """Return message `number`; InputError if its content is not of the topic's type."""
        kind = TYPES[self.topic.type, self.topic.encoding]
        content = self.file.message(self.topic, number)
        try:
            return decode(kind, self.topic.encoding, content)
        except ValueError as error:
            what = f"{self.file.path}: {one_line(self.topic.name)}: message {number}"
            raise InputError(f"{what}: {one_line(str(error))}", f"expected {self.topic.type}") from None


def recorded_topic(path: Path, kinds: Collection[str], sensor: str, chosen: str) -> RecordedTopic | None:
    """Return the topic that feeds a sensor, None if none holds one of `kinds` (values of `TYPES`).

    That is the topic `chosen`; if empty, the only one of these kinds, or the only one whose name contains the sensor's.
    Raises InputError for a choice that does not fit, or if a choice is needed.
    """
    file = _opened(path.resolve(), *_state(path))
    fitting = {name: topic for name, topic in file.topics.items() if TYPES.get((topic.type, topic.encoding)) in kinds}
    if chosen:
        if chosen not in fitting:
            found = file.topics.get(chosen)
            problem = f"is of type {found.type} ({found.encoding})" if found else "is not in the file"
            raise InputError(f"{path}: topic {chosen} {one_line(problem)}", _listed("topics for this sensor", fitting))
        return RecordedTopic(file, fitting[chosen])
    if len(fitting) > 1:
        named = {name: topic for name, topic in fitting.items() if sensor and sensor in name}
        if len(named) != 1:
            text = _listed("topics that could feed sensor " + (sensor or "it"), fitting)
            raise InputError(f"{path}: {text}", f"choose one with --topic {sensor or 'SENSOR'}=TOPIC")
        fitting = named
    return next((RecordedTopic(file, topic) for topic in fitting.values() if len(topic)), None)


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "check the path given as input") from None
    return found.st_size, found.st_mtime_ns


@lru_cache(2)
def _opened(path: Path, size: int, time_ns: int) -> McapFile:
    return open_mcap(path)


def _listed(what: str, topics: Collection[str]) -> str:
    names = sorted(map(one_line, topics))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{what}: {', '.join(names[:_SHOWN]) or 'none'}{more}"
