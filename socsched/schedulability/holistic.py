"""Fixed priorities over a whole plan: responses and activation jitters, iterated until neither grows.

Tindell & Clark, "Holistic schedulability analysis for distributed hard real-time systems", Microprocessing and
Microprogramming 40 1994: a successor's release jitter is its predecessor's response time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from socsched.deadline import check
from socsched.schedulability import native_responses, response_times
from socsched.schedulability.tasks import (
    Response,
    RtTask,
    Terms,
    activation,
    components,
    families,
    relatives,
    single_resource,
    topological,
)


def holistic(tasks: Mapping[str, RtTask], limit: int | None = None, explained: bool = True) -> dict[str, Response]:
    """Return the response of every task under fixed priorities; unless `explained`, its terms are one sum.

    `limit` (ns) ends the search for a bound; by default 32 times the longest period or deadline.  Families of tasks are
    first assumed to finish a frame before the next is released, so that relatives do not compete; a family that
    violates this is analysed again without the assumption. (The first frame to violate it would do so under this same
    analysis.)
    """
    horizon = limit or 32 * max((max(t.period, t.deadline) for t in tasks.values()), default=0)
    near, quick = relatives(tasks), families(tasks)
    while True:
        early = frozenset().union(*quick)
        apart: dict[str, Set[str]] = {name: near[name] if name in early else frozenset() for name in tasks}
        answers = _iterate(tasks, apart, horizon, explained)
        held = [f for f in quick if all(answers[n].bounded and answers[n].value <= tasks[n].period for n in f)]
        if len(held) == len(quick):
            return answers
        quick = held


def _iterate(
    tasks: Mapping[str, RtTask], apart: Mapping[str, Set[str]], horizon: int, explained: bool
) -> dict[str, Response]:
    groups = {task.name: group for group in components(tasks.values()) for task in group}
    order = topological(tasks)
    finish = _at_least(tasks, order)
    endless = _resting_on(_endless(groups, apart, tasks), tasks, groups)
    hopeless = _rough(endless, tasks, groups, finish)
    known = native_responses.holistic_answers(tasks, groups, apart, endless, finish, horizon)
    if known is not None:
        latest = {name: activation(tasks[name], tasks, finish) for name in order}
        jitter = {name: latest[name].jitter for name in order}
        answers = dict(hopeless)
        for name in (n for n in order if n not in endless):
            check()
            at, each = latest[name], known[name]
            terms: Terms = (("delays", each.value - at.jitter),)
            if explained:
                terms = _terms(tasks[name], groups[name], apart[name], jitter, finish, each)
            answers[name] = Response(each.value, each.bounded, (*at.terms, *terms), at.via)
        return _settled(tasks, groups, order, answers, horizon)
    while True:
        answers = dict(hopeless)
        latest = {name: activation(tasks[name], tasks, finish) for name in order}
        jitter = {name: latest[name].jitter for name in order}
        for name in (n for n in order if n not in endless):
            check()
            value, bounded, terms = _respond(tasks[name], groups[name], apart[name], jitter, finish, horizon)
            answers[name] = Response(value, bounded, (*latest[name].terms, *terms), latest[name].via)
        # An abandoned response counts as the horizon, so that tasks that do not depend on it still get a bound.
        found = {
            n: max(finish[n], min(answers[n].value, horizon) if answers[n].bounded else horizon)
            for n in order
            if n not in endless
        }
        found.update({name: finish[name] for name in endless})
        if found == finish:
            return _settled(tasks, groups, order, answers, horizon)
        finish = found


def _endless(
    groups: Mapping[str, Sequence[RtTask]], apart: Mapping[str, Set[str]], tasks: Mapping[str, RtTask]
) -> set[str]:
    """Return the tasks starved in the long run by tasks that may run first, whatever the jitter."""
    found = set()
    every = {id(group): group for group in groups.values()}
    light = {key for key, group in every.items() if single_resource(group) and sum(t.utilisation for t in group) <= 1}
    for name, task in tasks.items():
        if id(groups[name]) in light:
            continue
        check()
        gang = not single_resource(groups[name]) and task.preemption != "full"
        mine = frozenset(apart[name])
        rivals = [
            t
            for t in groups[name]
            if t is not task and t.name not in mine and t.lanes & task.lanes and (gang or t.priority < task.priority)
        ]
        if task.utilisation + sum(rival.utilisation for rival in rivals) > 1 + 1e-9:
            found.add(name)
    return found


def _rough(
    names: set[str], tasks: Mapping[str, RtTask], groups: Mapping[str, Sequence[RtTask]], finish: Mapping[str, int]
) -> dict[str, Response]:
    """Return a rough response of tasks without a bound, from their load per period: not a bound, only for reports."""
    result = {}
    for name in names:
        check()
        task, at = tasks[name], activation(tasks[name], tasks, finish)
        rivals = [t for t in groups[name] if t.lanes & task.lanes and t.priority < task.priority]
        jitter = {t.name: activation(t, tasks, finish).jitter for t in rivals}
        terms = response_times.with_own(task, response_times.Classic(rivals, jitter)(task.period), ("", 0), 0)
        result[name] = Response(at.jitter + sum(value for _, value in terms), False, (*at.terms, *terms), at.via)
    return result


def _at_least(tasks: Mapping[str, RtTask], order: Sequence[str]) -> dict[str, int]:
    finish: dict[str, int] = {}
    for name in order:
        finish[name] = activation(tasks[name], tasks, finish).jitter + tasks[name].wcet
    return finish


def respond_alone(
    task: RtTask, group: Sequence[RtTask], jitter: Mapping[str, int], finish: Mapping[str, int], limit: int
) -> tuple[int, bool]:
    """Return the response of a task within its group, after its nominal release, and whether it is a bound.

    Activations (`jitter`) and the ends of other tasks (`finish`, ns) are given, so that only its rivals matter.
    """
    value, bounded, terms = _respond(task, group, frozenset(), jitter, finish, limit)
    return jitter[task.name] + sum(term for _, term in terms) if bounded else value, bounded


def _respond(
    task: RtTask,
    group: Sequence[RtTask],
    apart: Set[str],
    jitter: Mapping[str, int],
    finish: Mapping[str, int],
    limit: int,
) -> tuple[int, bool, Terms]:
    """Return the smallest applicable bound: by busy period on one resource, by carry-in without relatives."""
    others, apart = [t for t in group if t is not task], frozenset(apart)
    if not single_resource(group):
        return _by_carry_in(task, [t for t in others if t.name not in apart], others, jitter, finish, limit)
    found = _by_busy_period(task, others, jitter, limit)
    rivals = [t for t in others if t.name not in apart]
    if len(rivals) < len(others):
        blocking = _blocking(task, rivals)
        higher = [t for t in rivals if t.priority < task.priority]
        inside = response_times.gang(task, higher, higher, finish)
        other = response_times.preemptive(task, inside, blocking, jitter[task.name], limit)
        found = min(found, other, key=lambda answer: (not answer[1], answer[0]))
    return found


def _terms(
    task: RtTask,
    group: Sequence[RtTask],
    apart: Set[str],
    jitter: Mapping[str, int],
    finish: Mapping[str, int],
    answer: native_responses.Answer,
) -> Terms:
    """Return the terms of an answer, as `_respond` does."""
    others, apart = [t for t in group if t is not task], frozenset(apart)
    rivals = [t for t in others if t.name not in apart]
    if not single_resource(group):
        inside = _carried_in(task, rivals, others, finish)
        return response_times.with_own(task, inside(answer.window), ("", 0), answer.frame)
    if answer.way == native_responses.GANG:
        above, blocking = [t for t in rivals if t.priority < task.priority], _blocking(task, rivals)
        inside = response_times.gang(task, above, above, finish)
        return response_times.with_own(task, inside(answer.window), blocking, answer.frame)
    above = [t for t in others if t.priority < task.priority]
    if answer.way == native_responses.CLASSIC:
        terms = response_times.Classic(above, jitter)(answer.window)
    else:
        terms = response_times.before_start(above, jitter, answer.window)
    return response_times.with_own(task, terms, _blocking(task, others), answer.frame)


def _by_carry_in(
    task: RtTask,
    rivals: Sequence[RtTask],
    others: Sequence[RtTask],
    jitter: Mapping[str, int],
    finish: Mapping[str, int],
    limit: int,
) -> tuple[int, bool, Terms]:
    return response_times.preemptive(task, _carried_in(task, rivals, others, finish), ("", 0), jitter[task.name], limit)


def _carried_in(
    task: RtTask, rivals: Sequence[RtTask], others: Sequence[RtTask], finish: Mapping[str, int]
) -> response_times.Interference:
    sharing = [t for t in rivals if t.lanes & task.lanes]
    if task.preemption != "full":
        # Without preemption a gang may lose its free lanes one after the other: every other task may go first.
        return response_times.gang(task, sharing, others, finish)
    sharing = [t for t in sharing if t.priority < task.priority]
    return response_times.gang(task, sharing, [t for t in others if t.priority < task.priority], finish)


def _by_busy_period(
    task: RtTask, others: Sequence[RtTask], jitter: Mapping[str, int], limit: int
) -> tuple[int, bool, Terms]:
    higher = [t for t in others if t.priority < task.priority]
    blocking = _blocking(task, others)
    if task.preemption == "none":
        return response_times.until_start(task, higher, jitter, blocking, limit, task.wcet)
    return response_times.preemptive(task, response_times.Classic(higher, jitter), blocking, jitter[task.name], limit)


def _blocking(task: RtTask, others: Sequence[RtTask]) -> tuple[str, int]:
    """Return the longest segment of lower priority; a job that resumes pays its switch before it can yield."""
    lower = ((t.name, t.segment + t.switch) for t in others if t.priority > task.priority and t.segment)
    return max(lower, key=lambda pair: pair[1], default=("", 0))


def _settled(
    tasks: Mapping[str, RtTask],
    groups: Mapping[str, Sequence[RtTask]],
    order: Sequence[str],
    answers: Mapping[str, Response],
    horizon: int,
) -> dict[str, Response]:
    """Recompute values along precedence, and withdraw every bound that depends on an unbounded response."""
    given_up = {name for name in order if not answers[name].bounded or answers[name].value >= horizon}
    lost = _resting_on(given_up, tasks, groups)
    settled: dict[str, Response] = {}
    for name in order:
        answer = answers[name]
        start = settled[answer.via].value if answer.via else 0
        value = start + sum(term for _, term in answer.terms)
        settled[name] = Response(value, name not in lost, answer.terms, answer.via)
    return {name: settled[name] for name in tasks}


def _resting_on(lost: set[str], tasks: Mapping[str, RtTask], groups: Mapping[str, Sequence[RtTask]]) -> set[str]:
    """Return the tasks in `lost` and all tasks whose response depends on theirs."""
    lost = set(lost)
    if not lost:
        return lost
    while more := {n for n in tasks if n not in lost and lost & _rests_on(tasks[n], groups[n])}:
        lost |= more
    return lost


def _rests_on(task: RtTask, group: Sequence[RtTask]) -> set[str]:
    """Return the tasks whose response or jitter may enter the response of `task`."""
    gang = not single_resource(group) and task.preemption != "full"
    rivals = {t.name for t in group if t is not task and (gang or t.priority < task.priority)}
    return rivals | set(task.after)


# Priorities by Audsley's algorithm: the lowest level goes to a task that meets its local deadline there.  Audsley, "On
# priority assignment in fixed priority scheduling", Information Processing Letters 79, 2001.  It is optimal if a
# response depends on the set of more urgent tasks alone (Davis, Burns, "Improved optimal priority assignment for global
# fixed priority pre-emptive scheduling", RTS 47, 2011).  The holistic analysis is not of that kind: the order upstream
# changes activations.  With every predecessor taken to end at its local deadline, activations are fixed, and the test
# of each resource is; the priorities found are then analysed holistically.

_HORIZON = 4
"""Multiple of the longest period or deadline beyond which a response counts as without bound."""


def assign_priorities(tasks: Mapping[str, RtTask], deadlines: Mapping[str, int]) -> dict[str, int]:
    """Return unique priorities, 0 highest, for local deadlines (ns after the nominal release).

    Where no task meets its deadline at a level, the one that exceeds it least, in proportion, is placed there.
    """
    horizon = _HORIZON * max((max(t.period, deadlines[n]) for n, t in tasks.items()), default=0)
    jitter = {name: activation(task, tasks, deadlines).jitter for name, task in tasks.items()}
    lowest_first = [
        name for group in components(tasks.values()) for name in _lowest_first(group, jitter, deadlines, horizon)
    ]
    return {name: level for level, name in enumerate(reversed(lowest_first))}


def _lowest_first(
    group: Sequence[RtTask], jitter: Mapping[str, int], deadlines: Mapping[str, int], horizon: int
) -> list[str]:
    """Return the tasks of a group, lowest priority first."""
    left, placed = sorted(group, key=lambda task: -deadlines[task.name]), list[RtTask]()
    while left:
        chosen, least = left[0], float("inf")
        for task in left:
            check()
            level = [
                *(replace(other, priority=0) for other in left if other is not task),
                replace(task, priority=1),
                *(replace(other, priority=2) for other in placed),
            ]
            value, bounded = respond_alone(level[len(left) - 1], level, jitter, deadlines, horizon)
            excess = value / max(deadlines[task.name], 1) if bounded else 1e9
            if excess < least:
                chosen, least = task, excess
            if excess <= 1:  # of those that fit, the one with the latest deadline
                chosen = task
                break
        placed.append(chosen)
        left = [task for task in left if task is not chosen]
    return [task.name for task in placed]
