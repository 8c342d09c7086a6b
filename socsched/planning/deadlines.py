"""Local deadlines: the division of a chain's deadline among its tasks, and the priorities that follow from it.

Shares are in proportion to weights along the longest path through the task (Kao & Garcia-Molina, IEEE TPDS 8(12) 1997,
"proportional" subtask deadlines); priorities are deadline monotonic (Leung & Whitehead 1982).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from socsched.descriptor.pipeline import Chain
from socsched.graph.taskgraph import TaskGraph
from socsched.planning.schedulability.chains import Stretch
from socsched.planning.schedulability.tasks import RtTask, topological


@dataclass(frozen=True, slots=True)
class Requirement:
    """A limit on the summed responses of tasks that end data-triggered stretches.

    `budget` is in ns, with sampling already subtracted.
    """

    ends: tuple[str, ...]
    budget: int


def stretches(graph: TaskGraph, chain: Chain, names: Iterable[str]) -> tuple[Stretch, ...]:
    """Return the data-triggered stretches of a chain in the plan.

    A stretch whose data are converted before they are sampled ends at the conversion.
    """
    known, cut, result = set(names), graph.segments(chain), []
    for index, segment in enumerate(cut):
        if not segment.nodes:
            continue
        last = segment.nodes[-1]
        if index + 1 < len(cut) and f"{last}>{cut[index + 1].root}" in known:
            last = f"{last}>{cut[index + 1].root}"
        result.append(Stretch(segment.period_ns + graph.gap_ns(segment.root), last))
    return tuple(result)


def requirements(graph: TaskGraph, tasks: Mapping[str, RtTask], queues: Mapping[str, int]) -> list[Requirement]:
    """Return the requirements on local deadlines: those of every chain, and that no task's queue overflows."""
    result = []
    for chain in graph.pipeline.chains:
        parts = stretches(graph, chain, tasks)
        ends = tuple(part.last for part in parts)
        late = sum(tasks[end].release_jitter for end in ends)
        result.append(Requirement(ends, chain.deadline_ns - late - sum(part.period for part in parts[1:])))
        if chain.max_age_ns is not None:
            result.append(Requirement(ends, chain.max_age_ns - late - sum(part.period for part in parts[:-1])))
    earliest = best_case(tasks)
    for name, task in tasks.items():
        budget = max(queues[name], 1) * task.period + earliest[name] - task.release_jitter
        result.append(Requirement((name,), budget))
    return result


def best_case(tasks: Mapping[str, RtTask]) -> dict[str, int]:
    """Return each task's earliest activation after its nominal release (0: costs may fall to nothing)."""
    return dict.fromkeys(tasks, 0)


def local_deadlines(
    tasks: Mapping[str, RtTask], needs: Sequence[Requirement], weights: Mapping[str, int]
) -> dict[str, int]:
    """Divide every requirement in proportion to `weights`; the tightest share of a task counts."""
    order = topological(tasks)
    before = _longest_before(tasks, order, weights)
    result = {name: 64 * task.period for name, task in tasks.items()}
    for need in needs:
        total = sum(before[end] for end in need.ends)
        for end in need.ends:
            budget = max(need.budget, total) * before[end] // max(total, 1)
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
