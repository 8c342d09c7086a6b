"""EDF over a whole plan: responses and activation jitters, iterated until neither grows.

Spuri, "Holistic analysis for deadline scheduled real-time distributed systems", INRIA RR-2873 1996: as Tindell & Clark
1994 for fixed priorities, with the responses of INRIA RR-2772.  Local deadlines only order jobs here; a response may be
shorter than its own, or longer, and is a bound either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.plan.schedulability.edf import ALLOWED, System
from socsched.plan.schedulability.published import edf_response
from socsched.plan.schedulability.published.model import Problem
from socsched.plan.schedulability.resource import resource
from socsched.plan.schedulability.tasks import Activation, Response, RtTask, activation, single_resource

ROUNDS = 30
"""Rounds after which the iteration is given up."""
PATIENCE, STRETCH = 10, 7
"""Rounds after which what still grows is taken to be longer by a part in 2**STRETCH."""
REACH = 16
"""Times the longest period beyond which a response counts as none."""
NAME = "EDF response times, holistic"
SOURCE = "Spuri, INRIA RR-2873 1996, with the responses of INRIA RR-2772; George, Rivierre, Spuri, RR-2966 1996"


def responses(system: System, deadlines: Mapping[str, int], own: Mapping[str, Response]) -> dict[str, Response]:
    """Return the shorter of `own` and the holistic response of every task; `own` where there is no other.

    Resources whose tasks occupy different lanes, or whose releases are late by themselves, keep their own bounds; where
    these have none, neither has what depends on them.
    """
    groups = [group for group in system.groups if _fits(group, system)]
    inside = {task.name for group in groups for task in group}
    lost = {name for name in system.order if name not in inside and not own[name].bounded}
    groups, inside = _reachable(groups, lost)
    finish: dict[str, int] = {}
    for name in system.order:
        start = activation(system.tasks[name], system.tasks, finish).jitter
        finish[name] = start + system.tasks[name].wcet if name in inside else own[name].value
    horizon = REACH * max((task.period for task in system.tasks.values()), default=0)
    starts = {name: response.value for name, response in own.items()}
    done: dict[int, tuple[tuple[Activation, ...], dict[str, Response]]] = {}
    for turn in range(ROUNDS):
        latest = {n: activation(system.tasks[n], system.tasks, finish) for n in inside}
        found: dict[str, Response] = {}
        for number, group in enumerate(groups):
            known = tuple(latest[task.name] for task in group)
            if number not in done or done[number][0] != known:
                done[number] = known, _group(group, deadlines, latest, own)
            found.update(done[number][1])
        if any(response.value > horizon or not response.bounded for response in found.values()):
            return dict(own)
        if all(response.value <= finish[name] for name, response in found.items()):
            return {n: _settled(n, {**own, **found}, finish if n in inside else starts) for n in own}
        for name, response in found.items():
            if response.value > finish[name]:
                # Whatever holds itself is a bound, the least one or not: steps of a preemption's cost are cut short.
                finish[name] = response.value + (response.value >> STRETCH if turn >= PATIENCE else 0)
    return dict(own)


def _settled(name: str, responses: Mapping[str, Response], begun: Mapping[str, int]) -> Response:
    """Return a response whose terms begin where that of its predecessor ends, not where it was taken to end."""
    response = responses[name]
    rest = begun[response.via] - responses[response.via].value if response.via else 0
    return replace(response, terms=(*response.terms, ("more than the predecessor takes", rest))) if rest else response


def _fits(group: Sequence[RtTask], system: System) -> bool:
    alone = single_resource(group) and not any(task.release_jitter for task in group)
    return alone and not any(task.name in system.hopeless for task in group)


def _reachable(groups: list[tuple[RtTask, ...]], lost: set[str]) -> tuple[list[tuple[RtTask, ...]], set[str]]:
    """Return the groups none of whose tasks waits for one without a bound, and their tasks."""
    while True:
        kept = [group for group in groups if not any(lost & set(task.after) for task in group)]
        if len(kept) == len(groups):
            return kept, {task.name for group in kept for task in group}
        lost |= {task.name for group in groups if group not in kept for task in group}
        groups = kept


def _group(
    group: Sequence[RtTask],
    deadlines: Mapping[str, int],
    latest: Mapping[str, Activation],
    own: Mapping[str, Response],
) -> dict[str, Response]:
    result: dict[str, Response] = {}
    taskset = resource("edf", group, {name: at.jitter for name, at in latest.items()}, deadlines)
    problem = Problem(taskset, taskset.tasks, taskset.ranks, 1)
    for task, value, terms in edf_response.rows(problem):
        at, mine = latest[task.name], own[task.name]
        if value is None:
            result[task.name] = replace(mine, bounded=False)
        elif mine.bounded and mine.value <= value:
            rest = mine.value - at.jitter - task.wcet_ns
            waiting = (ALLOWED, rest)
            result[task.name] = Response(mine.value, True, (*at.terms, ("wcet", task.wcet_ns), waiting), at.via)
        else:
            parts = tuple(term for term in terms if term[0] != "release jitter")
            result[task.name] = Response(value, True, (*at.terms, *parts), at.via)
    return result
