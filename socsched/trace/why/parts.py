"""The parts a response time is made of, and what they add up to."""

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
    "bandwidth": "slowed down on the DRAM",
    "throttling": "clock below the planned",
    "lanes": "on slower lanes",
    "switch": "switches, reloads",
    "restart": "work lost, started again",
    "fault": "engine slow or still",
    "held": "engine free, not given",
    "release": "input comes late",
    "join": "waits for other input",
    "sampling": "waits to be sampled",
    "lost": "lost; a newer one instead",
}
"""Kind of a part -> what a person reads.

Only `above` may be negative: a job that took less than the estimate.  `held`: the engine stood ready, and policy,
reservation, another process or (in a run) the executor did not give it.
"""
PLANNED = ("execution", "conversion")
OCCUPIED = ("waiting", "blocking", "preemption")
"""Kinds in which a job named in `by` held the engine at that time."""


@dataclass(frozen=True, slots=True)
class Part:
    """`ns` of a frame's way that passed at `task` between `from_ns` and `until_ns`.

    `engine`: where, empty before the task was ready.  `by`, `frame`: the job it was due to, or a sensor, or foreign
    traffic (frame -1); empty where nobody else was.  Parts of a job's execution (planned, bandwidth, ...) share their
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
    """Parts of one kind, at one task, due to jobs of one other task (`frames`, ascending)."""

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

    `outcome`: completed | dropped | aborted | unfinished; of the last three `end_ns` is when that happened, or the end
    of the record, `reason` says where and why, and the lateness is what was reached until then.  `jobs`: the (task,
    frame) that carried it.
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
        """From release to reaction, or to where the frame was lost."""
        return self.end_ns - self.release_ns

    @property
    def lateness_ns(self) -> int:
        """Response minus deadline; negative for a frame in time."""
        return self.response_ns - self.deadline_ns

    @property
    def planned_ns(self) -> int:
        """What the plan expects without anybody's interference."""
        return sum(part.ns for part in self.parts if part.kind in PLANNED)

    @property
    def met(self) -> bool:
        """Whether the frame was answered in time."""
        return self.outcome == "completed" and self.lateness_ns <= 0

    def causes(self) -> tuple[Cause, ...]:
        """Return the parts put together by task, kind, engine and who; in the order of the frame's way."""
        found: dict[tuple[str, str, str, str], list[Part]] = {}
        for part in self.parts:
            found.setdefault((part.task, part.kind, part.engine, part.by), []).append(part)
        made = []
        for (task, kind, engine, by), parts in found.items():
            frames = tuple(sorted({part.frame for part in parts if part.frame >= 0}))
            note = next((part.note for part in parts if part.note), "")
            made.append(Cause(task, kind, engine, by, frames, sum(part.ns for part in parts), note))
        return tuple(cause for cause in made if cause.ns)

    def main_cause(self) -> Cause | None:
        """Return the largest cause beyond the plan, None where all went as planned."""
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
