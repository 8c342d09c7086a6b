"""A run of a plan in a thread of its own, fed by messages; nothing here needs ROS 2."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import SocschedError, UsageError
from socsched.executor.run_native import Inputs, execute
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan
from socsched.runtime.arrivals import Arrivals
from socsched.runtime.frames import Frame, FrameReport
from socsched.runtime.input_files import POINTS
from socsched.runtime.options import Options

POINT_CLOUD, IMAGE = "points", "image"
_KEPT = 256
"""Headers kept of frames whose results are not published yet."""


@dataclass(slots=True)
class ChainCounts:
    """Completed frames of a chain since the last diagnostics, and totals; times in ns."""

    deadline_ns: int
    last_frame: int = -1
    completed: int = 0
    late: int = 0
    lost: int = 0
    total_completed: int = 0
    total_late: int = 0
    total_lost: int = 0
    responses: list[int] = field(default_factory=list)

    def add(self, report: FrameReport) -> None:
        """Count a completed frame, and those skipped since the one before it as lost."""
        skipped = report.frame - self.last_frame - 1
        self.last_frame = report.frame
        self.completed += 1
        self.late += not report.met
        self.lost += skipped
        self.responses.append(report.response_ns)

    def take(self) -> ChainCounts:
        """Return the counts since the last call, and begin anew."""
        self.total_completed += self.completed
        self.total_late += self.late
        self.total_lost += self.lost
        totals = self.total_completed, self.total_late, self.total_lost
        taken = ChainCounts(
            self.deadline_ns, self.last_frame, self.completed, self.late, self.lost, *totals, self.responses
        )
        self.completed = self.late = self.lost = 0
        self.responses = []
        return taken


class Published:
    """Receiver of results: a thread hands each frame's detections to `publish`, so that no stage waits for it."""

    def __init__(self, publish: Callable[[str, list[Mapping[str, Any]], Any], None]) -> None:
        self.error: Exception | None = None
        self._publish = publish
        self._queue: queue.SimpleQueue[tuple[int, Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._headers: deque[tuple[int, Any]] = deque(maxlen=_KEPT)
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)

    def __enter__(self) -> Published:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join(timeout=10)

    def remember(self, frame: int, header: Any) -> None:
        """Keep the header of a frame for its results."""
        self._headers.append((frame, header))

    def add(self, frame: int, part: Mapping[str, Any]) -> None:
        """Queue a part of a frame's results."""
        self._queue.put((frame, part))

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            frame, part = item
            header = next((found for number, found in reversed(self._headers) if number == frame), None)
            for key in ("detections", "image_detections"):
                if key in part and self.error is None:
                    try:
                        self._publish(key, list(part[key]), header)
                    except Exception as error:
                        self.error = error


class Runner:
    """Runs a plan until it is closed; `failure` is set if it ended by itself."""

    def __init__(
        self,
        plan: Plan,
        pipeline: Pipeline,
        publish: Callable[[str, list[Mapping[str, Any]], Any], None],
        weights: Path | None = None,
        scales: Path | None = None,
    ) -> None:
        if any(task.timer for task in plan.tasks):
            raise UsageError(f"{plan.pipeline} has stages with a timer", "the node runs stages that messages trigger")
        self.plan = plan
        self.failure = ""
        self.counts = {chain.name: ChainCounts(chain.deadline_ns) for chain in plan.chains}
        self.received: dict[str, int] = {}
        self._guard = threading.Lock()
        self._arrivals = Arrivals()
        self._published = Published(publish)
        inputs = Inputs(weights=weights, scales=scales, frames=1)
        options = Options(arrivals=self._arrivals, results=self._published)

        def run() -> None:
            try:
                execute(plan, pipeline, inputs, options, on_frame=self._ended)
            except SocschedError as error:
                self.failure = f"{error}" + (f" ({error.hint})" if error.hint else "")
            except BaseException as error:
                self.failure = f"{type(error).__name__}: {error}"

        self._thread = threading.Thread(target=run, name="socsched", daemon=True)

    def start(self, timeout_s: float) -> bool:
        """Compile and warm up; return whether the run is ready for frames within `timeout_s`."""
        self._thread.start()
        end = time.monotonic() + timeout_s
        while self._thread.is_alive() and time.monotonic() < end:
            if self._arrivals.ready.wait(0.05):
                return True
        self.failure = self.failure or f"not ready after {timeout_s:g} s"
        return False

    @property
    def alive(self) -> bool:
        """Return whether the run takes frames."""
        return self._thread.is_alive() and not self._arrivals.closed and self._published.error is None

    def offer(self, sensor: str, frame: Frame, header: Any) -> None:
        """Release a frame now; `header` is handed to `publish` with its results."""
        now = time.monotonic_ns()
        with self._guard:  # the header is known before the frame's results
            number = self.received.get(sensor, 0)
            self.received[sensor] = number + 1
            self._published.remember(number, header)
            self._arrivals.offer(sensor, now, frame)

    def take_counts(self) -> dict[str, ChainCounts]:
        """Return what ended since the last call, by chain."""
        with self._guard:
            return {name: counts.take() for name, counts in self.counts.items()}

    def close(self) -> None:
        """End the run after the frames in progress."""
        self._arrivals.close()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _ended(self, report: FrameReport) -> None:
        with self._guard:
            self.counts[report.chain].add(report)


def inputs_of(pipeline: Pipeline) -> dict[str, tuple[str, str]]:
    """Return, for every sensor whose data stages read, its port and the kind of message: points or image.

    Raises UsageError for a sensor with other data.
    """
    found: dict[str, tuple[str, str]] = {}
    for stage, given in bindings(pipeline).items():
        chosen = pipeline.stage(stage)
        kinds = {port.name: port.type for port in get_model(chosen.model or "", chosen.params).inputs}
        for port, name in given.items():
            if all(sensor.name != name for sensor in pipeline.sensors):
                continue
            kind = kinds[port]
            if port != POINTS and not (kind.dtype == "uint8" and kind.shape[:2] == (1, 3)):
                what = f"{kind.dtype} {list(kind.shape)}"
                raise UsageError(f"sensor {name} feeds {port} with {what}", "the node takes points and images")
            found[name] = port, POINT_CLOUD if port == POINTS else IMAGE
    return found
