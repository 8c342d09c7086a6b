"""DRAM as the running segments share it: how long each takes while these run, by the plan's contention model."""

from __future__ import annotations

from socsched.cost.contention import ContentionModel, contention_model
from socsched.descriptor.platform import ContentionChoice
from socsched.planning.plan import Plan
from tests.sim.reference.model import TaskState


def planned_model(plan: Plan) -> ContentionModel:
    """Return the contention model a plan carries; UsageError when it is unknown or its parameters cannot be used."""
    return contention_model(plan.contention, plan.dram_bandwidth, {engine.id: engine.kind for engine in plan.engines})


class Memory:
    """The segments that draw bandwidth now, and the pace each keeps (`cost.contention`).

    `capacity` in bytes/s, 0 for a memory that is never short; `model` is max-min fair sharing of it unless given.
    Combinations of segments recur, so paces are remembered.
    """

    def __init__(self, capacity: int, model: ContentionModel | None = None) -> None:
        self.model = model or contention_model(ContentionChoice(), capacity, {})
        self.active: list[TaskState] = []
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def paces(self) -> tuple[int, ...]:
        """Sort the active segments by task; return how long (ns) each takes as a whole while the present ones run."""
        self.active.sort(key=_index)
        key = tuple(state.piece.uid for state in self.active)
        known = self._known.get(key)
        if known is None:
            running = [(state.task.engine, state.piece.segment) for state in self.active]
            known = self._known[key] = self.model.paces(running)
        return known

    def bytes_per_ns(self) -> float:
        """Return the traffic of all active segments, each averaged over its present duration, in whole 10 kB/s."""
        return sum(int(state.piece.segment.bytes / state.pace_ns * 1e5 + 0.5) for state in self.active) / 1e5


def _index(state: TaskState) -> int:
    return state.index
