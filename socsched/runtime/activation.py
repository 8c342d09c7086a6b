"""A job's state in the executor, and the frames that producers hand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.planning.plan import Task
from socsched.runtime.dispatch_policy import Place
from socsched.runtime.frame_accounting import Ticket
from socsched.trace.trace import Job

Outputs = Mapping[str, Any]
"""Output port name -> array of one stage or sensor."""
Values = dict[str, Outputs]
"""Stage or sensor name -> its outputs."""
Origin = dict[str, tuple[int, int]]
"""Sensor or timer -> (frame, release in ns) of the oldest data."""
NOBODY: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class Activation:
    """A job with its run-time state; `blockers` are running jobs of lower priority on its lanes.

    `cheap`: it runs the stage's cheaper variant.  `void`: its plan was replaced while it ran; its outputs are unused.
    `handed`: the tasks that got its outputs before it finished, chained on the device.
    """

    task: Task
    job: Job
    index: int
    release_ns: int
    origin: Origin
    values: Values
    tickets: tuple[Ticket, ...]
    key: tuple[int, ...] = ()
    place: Place | None = None
    blockers: set[int] = field(default_factory=set)
    cheap: bool = False
    void: bool = False
    begun_ns: int = -1
    handed: frozenset[str] = NOBODY


@dataclass(slots=True)
class Delivery:
    """A frame as handed on by a producer."""

    release_ns: int
    origin: Origin
    values: Values
    tickets: tuple[Ticket, ...]


def oldest(origins: list[Origin]) -> Origin:
    """Return, for every source, the oldest frame in any of `origins`."""
    merged: Origin = {}
    for origin in origins:
        for name, mark in origin.items():
            merged[name] = min(mark, merged.get(name, mark))
    return merged
