"""Local deadlines: the division of a chain's deadline among its tasks, and the priorities that follow from it.

Shares are in proportion to weights along the longest path through the task (Kao & Garcia-Molina, IEEE TPDS 8(12) 1997,
"proportional" subtask deadlines); priorities are deadline monotonic (Leung & Whitehead 1982).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.descriptor.pipeline import Pipeline
from socsched.planning.plan import Task
from socsched.schedulability.chains import Sources
from socsched.schedulability.tasks import RtTask, topological


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit (ns) on the summed responses, after nominal releases, of tasks that end data-triggered stretches."""

    ends: tuple[str, ...]
    budget: int


def requirements(pipeline: Pipeline, tasks: Sequence[Task]) -> list[Requirement]:
    """Return the requirements on responses: those of every chain, and that no task's queue overflows.

    They order deployments; a chain's own bound, which may be shorter, decides whether it meets its requirements.
    """
    sources, result = Sources.of(tasks, pipeline.sensors), []
    for chain in pipeline.chains:
        parts = sources.stretches(chain.path)
        ends = tuple(part.last for part in parts if part.last)
        begun = sum(part.lead for part in parts)
        waits = sum(part.period for part in parts[1:])
        result.append(Requirement(ends, chain.deadline_ns - waits + begun + parts[0].jitter * bool(parts[0].last)))
        for index in range(1, len(parts)):  # the first samplings may wait for a timer that begins late
            first = parts[index].begin - parts[0].begin
            if first > sum(part.period for part in parts[1 : index + 1]):
                rest = first + sum(part.period for part in parts[index + 1 :])
                later = sum(part.lead for part in parts[index:])
                result.append(Requirement(ends[-len(parts) + index :], chain.deadline_ns - rest + later))
        if chain.max_age_ns is not None:
            kept = sum(part.period for part in parts[:-1]) + (0 if parts[0].last else parts[0].jitter)
            arrived = parts[0].jitter if len(parts) == 1 else 0
            result.append(Requirement(ends, chain.max_age_ns - kept + begun + arrived))
    return [*result, *(Requirement((task.name,), sources.room(task)) for task in tasks)]


def local_deadlines(
    tasks: Mapping[str, RtTask], needs: Sequence[Requirement], weights: Mapping[str, int]
) -> dict[str, int]:
    """Divide every requirement in proportion to `weights`; the tightest share of a task counts."""
    order = topological(tasks)
    before = _longest_before(tasks, order, weights)
    result = {name: 64 * task.period for name, task in tasks.items()}
    for need in needs:
        total = sum(before[end] for end in need.ends)
        after = need.budget - sum(tasks[end].release_jitter for end in need.ends)  # from the latest releases
        for end in need.ends:
            budget = max(after, total) * before[end] // max(total, 1)
            for name, behind in _ancestors(tasks, end, weights).items():
                way = before[name] + behind
                result[name] = min(result[name], max(budget * before[name] // max(way, 1), 1))
    return result


def _longest_before(tasks: Mapping[str, RtTask], order: Sequence[str], weights: Mapping[str, int]) -> dict[str, int]:
    longest: dict[str, int] = {}
    for name in order:
        longest[name] = weights[name] + max((longest[p] for p in tasks[name].after if p in tasks), default=0)
    return longest


def _ancestors(tasks: Mapping[str, RtTask], end: str, weights: Mapping[str, int]) -> dict[str, int]:
    """Return `end` and the tasks that trigger it, each with the weight of the longest path that follows it."""
    behind = {end: 0}
    queue = [end]
    while queue:
        name = queue.pop(0)
        for before in tasks[name].after:
            if before in tasks and behind[name] + weights[name] > behind.get(before, -1):
                behind[before] = behind[name] + weights[name]
                queue.append(before)
    return behind


def weightings(tasks: Mapping[str, RtTask]) -> list[dict[str, int]]:
    """Return the weightings of tasks: by WCET; and by WCET plus the longest segment that can block them."""
    blocked = {
        name: max((t.segment for t in tasks.values() if t.name != name and t.lanes & task.lanes), default=0)
        for name, task in tasks.items()
    }
    return [
        {name: task.wcet for name, task in tasks.items()},
        {name: task.wcet + blocked[name] for name, task in tasks.items()},
    ]


def priorities(deadlines: Mapping[str, int]) -> dict[str, int]:
    """Return unique priorities, 0 highest, by local deadline (ties in the given order)."""
    ranked = sorted(deadlines, key=lambda name: deadlines[name])
    return {name: index for index, name in enumerate(ranked)}
