"""One vocabulary for what happened, filled by the simulator and the executor alike; times are ns from the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Job:
    """One activation of a task for frame `frame`.

    `origin` maps every sensor or timer the job's data stems from to (frame number, release time) of the *oldest* data,
    over all ways the data came.  `sampled` maps each producer of `reads` to the frame of it that was the latest at the
    job's start: with the frame number along data triggers it tells one way from another.
    `status`: done | dropped | unfinished; a done job may still be late (finish > deadline).  `blocking_ns`: time the
    job was ready but an occupant of lower priority could not be preempted.  `start_ns` and `finish_ns` are -1 until
    they happen.
    """

    task: str
    frame: int
    activation_ns: int
    deadline_ns: int
    origin: Mapping[str, tuple[int, int]]
    start_ns: int = -1
    finish_ns: int = -1
    exec_ns: int = 0
    blocking_ns: int = 0
    preemptions: int = 0
    status: str = "unfinished"
    sampled: Mapping[str, int] = field(default_factory=dict)


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
    """A moment worth a mark: kind miss | drop | input | fault, the task or sensor it concerns, and what happened."""

    time_ns: int
    kind: str
    subject: str
    frame: int
    text: str


@dataclass(slots=True)
class Trace:
    """Everything recorded of one simulation or run of a plan.

    `releases[name]` lists the release time of every frame of a sensor or timer; `counters[name]` lists (time, value)
    steps: power_mw, bandwidth_gbps, queue depths.  `details[frame]` holds what a run found in a frame.
    """

    kind: str
    duration_ns: int
    seed: int
    jobs: list[Job] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Instant] = field(default_factory=list)
    releases: dict[str, list[int]] = field(default_factory=dict)
    counters: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    details: dict[int, dict[str, Any]] = field(default_factory=dict)
