"""A run of a plan in a thread of its own, fed by messages; nothing here needs ROS 2."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import SocschedError, UsageError
from socsched.executor.run_native import execute
from socsched.graph.operators import TensorType
from socsched.models.registry import bindings, get_model
from socsched.planning.plan import Plan
from socsched.runtime.frames import Arrivals, Frame, FrameReport
from socsched.runtime.input_files import POINTS
from socsched.runtime.options import Inputs, Options

POINT_CLOUD, IMAGE = "points", "image"
TENSORS = {
    "fp32": "Float32MultiArray", "fp16": "Float32MultiArray", "uint8": "UInt8MultiArray", "int8": "Int8MultiArray",
    "int32": "Int32MultiArray", "int64": "Int64MultiArray", "bool": "UInt8MultiArray",
}  # fmt: skip
"""Data type of a tensor -> the message of std_msgs that carries it."""
_PLAIN = re.compile(r"[^A-Za-z0-9_]+")
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


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a sensor: the port that its messages fill, their kind, and the tensor of a message that is none."""

    port: str
    kind: str
    type: TensorType
    name: str


def inputs_of(pipeline: Pipeline) -> dict[str, list[Topic]]:
    """Return, for every sensor whose data stages read, its topics: SENSOR, or SENSOR/PORT where it feeds several.

    Raises UsageError for a tensor without a message of ROS.
    """
    ports: dict[str, dict[str, TensorType]] = {}
    sensors = {sensor.name for sensor in pipeline.sensors}
    for stage, given in bindings(pipeline).items():
        chosen = pipeline.stage(stage)
        kinds = {port.name: port.type for port in get_model(chosen.model or "", chosen.params).inputs}
        for port, name in given.items():
            if name in sensors:
                ports.setdefault(name, {})[port] = kinds[port]
    found: dict[str, list[Topic]] = {}
    for name, fed in ports.items():
        for port, kind in fed.items():
            form = POINT_CLOUD if port == POINTS else TENSORS.get(kind.dtype, "")
            if kind.dtype == "uint8" and kind.shape[:2] == (1, 3):
                form = IMAGE
            if not form:
                what = f"{kind.dtype} {list(kind.shape)}"
                raise UsageError(f"sensor {name} feeds {port} with {what}", f"numbers of {', '.join(TENSORS)}")
            topic = name if len(fed) == 1 else f"{name}/{_PLAIN.sub('_', port)}"
            found.setdefault(name, []).append(Topic(port, form, kind, topic))
    return found


class Joined:
    """The frames of a sensor with several topics: one is whole once each has brought a message since the last."""

    def __init__(self, topics: Sequence[Topic]) -> None:
        self._ports = {topic.port for topic in topics}
        self._arrays: dict[str, Any] = {}

    def add(self, port: str, array: Any) -> Frame | None:
        """Take the array of a message, in place of one that waits; return the frame that it completes."""
        self._arrays[port] = array
        if self._arrays.keys() != self._ports:
            return None
        frame, self._arrays = Frame(self._arrays), {}
        return frame


def tensor_of(values: Any, topic: Topic) -> Any:
    """Return the data of a MultiArray message as the tensor of a port; ValueError if it has another size."""
    array = np.asarray(values, NUMPY_DTYPES[topic.type.dtype])
    if array.size != prod(topic.type.shape):
        raise ValueError(f"{array.size} numbers, expected those of {list(topic.type.shape)}")
    return array.reshape(topic.type.shape)
