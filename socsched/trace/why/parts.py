"""The parts of a response time, and their sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

KINDS: Mapping[str, str] = {
    "execution": "runs, as planned",
    "conversion": "converts, as planned",
    "above": "runs, beyond the estimate",
    "waiting": "waits for the engine",
    "blocking": "blocked, no preemption",
    "preemption": "preempted",
    "bandwidth": "slowed by DRAM contention",
    "throttling": "clock below plan",
    "lanes": "on slower lanes",
    "switch": "switches, reloads",
    "restart": "work lost, restarted",
    "fault": "engine slow or stalled",
    "held": "engine free, not granted",
    "release": "input released late",
    "join": "waits for other input",
    "sampling": "waits to be sampled",
    "lost": "lost; newer frame used",
}
"""Kind of a part -> its display text.

Only `above` may be negative: for a job that took less than the estimate.  `held`: the engine was available, but policy,
reservation, another process or (in a run) the executor did not grant it.
"""
PLANNED = ("execution", "conversion")
OCCUPIED = ("waiting", "blocking", "preemption")
"""Kinds in which the job named in `by` held the engine at that time."""


@dataclass(frozen=True, slots=True)
class Part:
    """`ns` of a frame's response time spent at `task` between `from_ns` and `until_ns`.

    `engine` is empty before the task was ready.  `by`, `frame`: the cause, which is a job, a sensor, or foreign traffic
    (frame -1); empty without an external cause.  Parts of a job's execution (planned, bandwidth, ...) share their
    window; all others fill theirs.
    """

    task: str
    kind: str
    engine: str
    by: str
    frame: int
    ns: int
    from_ns: int
    until_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """The total of parts of one kind, at one task, caused by jobs of one other task (`frames`, ascending)."""

    task: str
    kind: str
    engine: str
    by: str
    frames: tuple[int, ...]
    ns: int
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One frame of a chain from its release to its reaction, in parts.

    `outcome`: completed | dropped | aborted | unfinished.  For the last three, `end_ns` is the time of that event or
    the end of the record, `reason` gives place and cause, and the lateness is measured up to `end_ns`.  `jobs`: the
    (task, frame) pairs that carried it.
    """

    chain: str
    frame: int
    outcome: str
    kind: str
    release_ns: int
    end_ns: int
    deadline_ns: int
    parts: tuple[Part, ...]
    jobs: tuple[tuple[str, int], ...]
    reason: str = ""

    @property
    def response_ns(self) -> int:
        """Return the time from release to reaction, or to the loss of the frame."""
        return self.end_ns - self.release_ns

    @property
    def lateness_ns(self) -> int:
        """Return response minus deadline; negative for a frame in time."""
        return self.response_ns - self.deadline_ns

    @property
    def planned_ns(self) -> int:
        """Return the time the plan expects without interference."""
        return sum(part.ns for part in self.parts if part.kind in PLANNED)

    @property
    def met(self) -> bool:
        """Return whether the frame completed in time."""
        return self.outcome == "completed" and self.lateness_ns <= 0

    def causes(self) -> tuple[Cause, ...]:
        """Return the parts grouped by task, kind, engine and cause, in path order."""
        groups: dict[tuple[str, str, str, str], list[Part]] = {}
        for part in self.parts:
            groups.setdefault((part.task, part.kind, part.engine, part.by), []).append(part)
        totals = []
        for (task, kind, engine, by), parts in groups.items():
            frames = tuple(sorted({part.frame for part in parts if part.frame >= 0}))
            note = next((part.note for part in parts if part.note), "")
            totals.append(Cause(task, kind, engine, by, frames, sum(part.ns for part in parts), note))
        return tuple(cause for cause in totals if cause.ns)

    def main_cause(self) -> Cause | None:
        """Return the largest cause beyond the plan, None if the frame went as planned."""
        return max((c for c in self.causes() if c.kind not in PLANNED and c.ns > 0), key=lambda c: c.ns, default=None)

    def document(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "chain": self.chain,
            "frame": self.frame,
            "outcome": self.outcome,
            "reason": self.reason,
            "kind": self.kind,
            "release_ns": self.release_ns,
            "end_ns": self.end_ns,
            "response_ns": self.response_ns,
            "deadline_ns": self.deadline_ns,
            "planned_ns": self.planned_ns,
            "lateness_ns": self.lateness_ns,
            "jobs": [{"task": task, "frame": frame} for task, frame in self.jobs],
            "parts": [asdict(part) for part in self.parts],
            "causes": [asdict(cause) for cause in self.causes()],
        }
