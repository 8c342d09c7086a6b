"""Frames of a sensor by their source or as they arrive from outside, and of a chain as they end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a sensor: arrays by port name, a title, and the reason it is unusable (empty if usable)."""

    outputs: Mapping[str, Any]
    title: str = ""
    problem: str = ""


def facts_of(frame: Frame) -> dict[str, Any]:
    """Return what the results of a run say about a frame: its name, number of points or problem."""
    if frame.problem:
        return {"input": frame.title, "problem": frame.problem}
    return {"input": frame.title, "points": len(frame.outputs["points"])} if "points" in frame.outputs else {}


class FrameSource(Protocol):
    """Frames of one sensor; `count` is the number of frames before they repeat, 0 if not applicable."""

    count: int

    def frame(self, number: int) -> Frame:
        """Return frame `number` (from 0)."""
        ...

    def warm(self) -> Frame:
        """Return a usable frame for warm-up."""
        ...

    def preload(self, frames: int) -> None:
        """Generate the expensive parts of the first `frames` frames before the run."""
        ...


@dataclass(frozen=True, slots=True)
class FrameReport:
    """The completion of a chain with source frame `frame` as its oldest data; times in ns from the start."""

    chain: str
    frame: int
    release_ns: int
    finish_ns: int
    deadline_ns: int

    @property
    def response_ns(self) -> int:
        """Return the time from the release of the frame to the end of the chain."""
        return self.finish_ns - self.release_ns

    @property
    def met(self) -> bool:
        """Return whether the chain met its deadline."""
        return self.response_ns <= self.deadline_ns


# Frames that arrive from outside during a run, such as messages of a middleware, and receivers of results.

_WAITING = 64
"""Arrivals of a sensor kept while the executor is busy; it takes them at once: more means that the machine stalls."""


class Arrivals:
    """Queues of frames that a run releases as they arrive, until they are closed; `ready` is set after warm-up."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[tuple[int, Frame]]] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Return whether no more frames follow."""
        return self._closed

    def offer(self, sensor: str, time_ns: int, frame: Frame) -> None:
        """Queue a frame that a sensor released at `time_ns` of the monotonic clock."""
        with self._changed:
            self._waiting.setdefault(sensor, deque(maxlen=_WAITING)).append((time_ns, frame))
            self._changed.notify_all()

    def close(self) -> None:
        """End the run once the frames in progress are complete."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self, sensor: str, timeout_s: float) -> tuple[int, Frame] | None:
        """Return time and content of a sensor's next frame, None after `timeout_s` without one or once closed."""
        self.ready.set()
        with self._changed:
            if not self._waiting.get(sensor) and not self._closed:
                self._changed.wait(timeout_s)
            found = self._waiting.get(sensor)
            return found.popleft() if found and not self._closed else None


class Results(Protocol):
    """A receiver of the results of frames, a context manager around the run; see `collect.FramesFile`."""

    error: Exception | None

    def __enter__(self) -> Any:
        """Start."""
        ...

    def __exit__(self, *_: object) -> None:
        """End; nothing is added afterwards."""
        ...

    def add(self, frame: int, part: Mapping[str, Any]) -> None:
        """Take a part of a frame's results; must not block."""
        ...
