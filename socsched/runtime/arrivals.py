"""Frames that arrive from outside during a run, such as messages of a middleware, and receivers of results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from socsched.runtime.frames import Frame

_WAITING = 64
"""Arrivals kept while the release thread is busy; it takes them at once, so more means that the machine stalls."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Frame `number` of a sensor, received at `time_ns` of the monotonic clock."""

    sensor: str
    number: int
    time_ns: int
    frame: Frame


class Arrivals:
    """A queue of frames that a run releases as they arrive, until it is closed; `ready` is set after warm-up."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self._changed = threading.Condition()
        self._waiting: deque[Arrival] = deque(maxlen=_WAITING)
        self._numbers: dict[str, int] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Return whether no more frames follow."""
        return self._closed

    def offer(self, sensor: str, time_ns: int, frame: Frame) -> int:
        """Queue a frame and return its number, which counts the frames of its sensor."""
        with self._changed:
            number = self._numbers.get(sensor, 0)
            self._numbers[sensor] = number + 1
            self._waiting.append(Arrival(sensor, number, time_ns, frame))
            self._changed.notify()
        return number

    def close(self) -> None:
        """End the run once the frames in progress are complete."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def next(self, timeout_s: float) -> Arrival | None:
        """Return the next frame, None after `timeout_s` without one or once closed."""
        self.ready.set()
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait(timeout_s)
            return self._waiting.popleft() if self._waiting and not self._closed else None


class Results(Protocol):
    """A receiver of the results of frames, a context manager around the run; see `frames_file.FramesFile`."""

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
