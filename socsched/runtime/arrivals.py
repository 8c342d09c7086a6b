"""Frames that arrive from outside during a run, such as messages of a middleware, and receivers of results."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

from socsched.runtime.frames import Frame

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
