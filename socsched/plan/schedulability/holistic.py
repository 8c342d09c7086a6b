"""Fixed priorities over a whole plan: responses and activation jitters, iterated until neither grows.

Tindell & Clark, "Holistic schedulability analysis for distributed hard real-time systems", Microprocessing and
Microprogramming 40 1994: a successor's release jitter is its predecessor's response time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from socsched.plan.schedulability import rta_fp, rta_np
from socsched.plan.schedulability.tasks import (
    Activation,
    Response,
    RtTask,
    activation,
    components,
    single_resource,
    topological,
)


def holistic(tasks: Mapping[str, RtTask], limit: int | None = None) -> dict[str, Response]:
    """Return the response of every task under fixed priorities.

    `limit` (ns) ends the search for a bound; by default 32 times the longest period or deadline.
    """
    horizon = limit or 32 * max((max(t.period, t.deadline) for t in tasks.values()), default=0)
    groups = {task.name: group for group in components(tasks.values()) for task in group}
    order = topological(tasks)
    finish = _at_least(tasks, order)
    while True:
        answers: dict[str, Response] = {}
        latest = {name: activation(tasks[name], tasks, finish) for name in order}
        jitter = {name: latest[name].jitter for name in order}
        for name in order:
            value, bounded, terms = _respond(tasks[name], groups[name], jitter, finish, horizon)
            answers[name] = Response(value, bounded, (*latest[name].terms, *terms), latest[name].via)
        # A response given up on counts as the horizon, so that tasks that do not depend on it still get a bound.
        found = {n: max(finish[n], min(answers[n].value, horizon) if answers[n].bounded else horizon) for n in order}
        if found == finish:
            return _settled(tasks, groups, order, answers, horizon)
        finish = found


def _at_least(tasks: Mapping[str, RtTask], order: Sequence[str]) -> dict[str, int]:
    finish: dict[str, int] = {}
    for name in order:
        finish[name] = activation(tasks[name], tasks, finish).jitter + tasks[name].wcet
    return finish


def _respond(
    task: RtTask, group: Sequence[RtTask], jitter: Mapping[str, int], finish: Mapping[str, int], limit: int
) -> tuple[int, bool, rta_fp.Terms]:
    others = [t for t in group if t is not task]
    sharing = [t for t in others if t.lanes & task.lanes]
    higher = [t for t in others if t.priority < task.priority]
    if not single_resource(group):
        # Without preemption a gang may see its lanes given away one after the other: everybody may go first.
        contenders = [t for t in sharing if t.priority < task.priority or task.preemption != "full"]
        inside = rta_fp.gang(task, contenders, higher, finish)
        return rta_fp.response_time(task, inside, ("", 0), jitter[task.name], limit)
    blocking = max(
        ((t.name, t.segment + (t.switch if t.segment else 0)) for t in others if t.priority > task.priority),
        key=lambda pair: pair[1],
        default=("", 0),
    )
    if task.preemption == "none":
        return rta_np.response_time(task, higher, jitter, blocking, limit)
    return rta_fp.response_time(task, rta_fp.classic(higher, jitter), blocking, jitter[task.name], limit)


def _settled(
    tasks: Mapping[str, RtTask],
    groups: Mapping[str, Sequence[RtTask]],
    order: Sequence[str],
    answers: Mapping[str, Response],
    horizon: int,
) -> dict[str, Response]:
    """Recompute values along precedence, and withdraw every bound that rests on a response without one."""
    lost = {name for name in order if not answers[name].bounded or answers[name].value >= horizon}
    while True:
        more = {n for n in order if n not in lost and lost & _rests_on(tasks[n], groups[n])}
        if not more:
            break
        lost |= more
    settled: dict[str, Response] = {}
    for name in order:
        answer = answers[name]
        start = settled[answer.via].value if answer.via else 0
        value = start + sum(term for _, term in answer.terms)
        settled[name] = Response(value, name not in lost, answer.terms, answer.via)
    return {name: settled[name] for name in tasks}


def _rests_on(task: RtTask, group: Sequence[RtTask]) -> set[str]:
    """Return the tasks whose response or jitter enters the response of `task`."""
    gang = not single_resource(group) and task.preemption != "full"
    rivals = {t.name for t in group if t is not task and (gang or t.priority < task.priority)}
    return rivals | set(task.after)
