"""Records of a trace: jobs, the intervals they ran in, and point events; times are ns from the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Job:
    """One activation of a task for frame `frame`.

    `sampled` maps each producer of `reads` to its latest frame at the job's start; with the frame number along data
    triggers it identifies the origin of the job's data.
    `status`: done | dropped | aborted | unfinished; a done job may still be late (finish > deadline), an aborted one
    started and was given up.  `blocking_ns`: time the job was ready but a lower-priority occupant could not be
    preempted.  `migrations`: how often the job resumed on other lanes.  `start_ns` and `finish_ns` are -1 until they
    happen.
    """

    task: str
    frame: int
    activation_ns: int
    deadline_ns: int
    start_ns: int = -1
    finish_ns: int = -1
    exec_ns: int = 0
    blocking_ns: int = 0
    preemptions: int = 0
    status: str = "unfinished"
    sampled: Mapping[str, int] = field(default_factory=dict)
    migrations: int = 0


@dataclass(slots=True)
class Slice:
    """An interval in which a job (index into `Trace.jobs`) occupied lanes of an engine."""

    engine: str
    lanes: tuple[int, ...]
    job: int
    name: str
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Instant:
    """A point event: the task, sensor or engine concerned, and a description in words.

    `kind`: miss | drop | abort | input | fault | throttle.  `frame` is -1 if no frame is concerned.
    """

    time_ns: int
    kind: str
    subject: str
    frame: int
    text: str
