"""Levers that need no trial: the cost of a better data type, and the number of frames needed in flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from socsched.cost.cost import Cost
from socsched.descriptor.pipeline import PER_POINT
from socsched.models.parts import uncut
from socsched.planning.accuracy import better_precisions
from socsched.planning.plan import Violation
from socsched.planning.workload import Workload
from socsched.units import format_duration


def more_levers(violation: Violation, workload: Workload, mapping: Mapping[str, Cost]) -> Iterator[str]:
    """Yield the changes that close the gap of an accuracy budget or of a queue."""
    if violation.requirement == "accuracy loss":
        yield from _accuracy(violation, workload, mapping)
    if violation.requirement.startswith("queue of "):
        yield from _queue(violation, workload)


def _accuracy(violation: Violation, workload: Workload, mapping: Mapping[str, Cost]) -> Iterator[str]:
    """Yield, for every stage that loses accuracy, the cost of a better data type."""
    for name, cost in mapping.items():
        stage = workload.graph.stage(name)
        better = better_precisions(stage, cost, workload.model.candidates(stage))
        if better and any(uncut(name, stage.params) == term for term, _ in violation.terms):
            gained = (stage.losses.get(cost.precision, 0) - stage.losses.get(better[0].precision, 0)) / PER_POINT
            slower = format_duration(max(better[0].time_ns - cost.time_ns, 0))
            place = f"{better[0].engine} {better[0].precision}"
            yield f"run {name} on {place}: {slower} slower, {gained:g} points more accurate"
    yield f"allow {violation.demand / PER_POINT:g} points instead of {violation.bound / PER_POINT:g}"


def _queue(violation: Violation, workload: Workload) -> Iterator[str]:
    """Yield the number of frames in flight that a late stage would have to hold, if it keeps up with their rate."""
    name = violation.requirement.removeprefix("queue of ").split(" ")[0]
    producer, _, consumer = name.partition(">")
    period = workload.graph.period_ns.get(producer)
    if period:
        stage = workload.graph.stage(consumer or producer)
        frames = max(stage.queue, workload.graph.stage(producer).queue, 1) + -(-violation.gap // period)
        where = uncut(stage.name, stage.params)
        yield f"allow {frames} frames in flight there (queue: {frames} at {where}), if deadlines permit"
