"""EDF over a whole plan: responses and activation jitters, iterated until neither grows.

Spuri, "Holistic analysis for deadline scheduled real-time distributed systems", INRIA RR-2873 1996: as Tindell & Clark
1994 for fixed priorities, with the responses of INRIA RR-2772.  Local deadlines only order jobs here; a response may be
shorter or longer than its local deadline, and is a bound either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from socsched.schedulability.edf import ALLOWED, System
from socsched.schedulability.published import earliest_deadline_first
from socsched.schedulability.published.model import Problem
from socsched.schedulability.resource import resource
from socsched.schedulability.tasks import Activation, Response, RtTask, Terms, activation, single_resource

ROUNDS = 30
"""Rounds after which the iteration is abandoned."""
PATIENCE = 10
"""Rounds after which growing responses are extrapolated, and rounds in which they are then tightened again."""
REACH = 16
"""Multiple of the longest period above which a response counts as unbounded."""
WORK = 20_000
"""Task pairs at arrivals examined per round (some 20 ms); a resource beyond that keeps its local deadlines."""
NAME = "EDF response times, holistic"
SOURCE = "Spuri, INRIA RR-2873 1996, with the responses of INRIA RR-2772; George, Rivierre, Spuri, RR-2966 1996"


def responses(system: System, deadlines: Mapping[str, int], own: Mapping[str, Response]) -> dict[str, Response]:
    """Return the shorter of `own` and the holistic response of every task; `own` where there is no holistic one.

    Resources whose tasks occupy different lanes, or whose releases have jitter of their own, keep their own bounds;
    where these have none, their dependents have none either.
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
    step = _Step(system, deadlines, own, groups, inside)
    for turn in range(ROUNDS):
        found = step.responses(finish)
        if any(response.value > horizon or not response.bounded for response in found.values()):
            return dict(own)
        if all(response.value <= finish[name] for name, response in found.items()):
            finish, found = step.tightened(finish, found)
            return {n: _settled(n, {**own, **found}, finish if n in inside else starts) for n in own}
        # Any self-consistent assignment is a bound, least or not: responses that keep growing are extrapolated.
        more = 1 << min(turn - PATIENCE, 6) if turn >= PATIENCE else 0
        for name, response in found.items():
            grown = max(response.value - finish[name], 0)
            finish[name] += grown * (1 + more)
    return dict(own)


@dataclass(slots=True)
class _Step:
    """One round of the iteration; results of a resource are cached while its activations stay the same."""

    system: System
    deadlines: Mapping[str, int]
    own: Mapping[str, Response]
    groups: Sequence[Sequence[RtTask]]
    inside: set[str]
    done: dict[int, tuple[tuple[Activation, ...], dict[str, Response]]] = field(default_factory=dict)

    def responses(self, finish: Mapping[str, int]) -> dict[str, Response]:
        """Return the responses if every task finishes by `finish` (ns from its nominal release)."""
        tasks = self.system.tasks
        latest = {n: activation(tasks[n], tasks, finish) for n in self.inside}
        found: dict[str, Response] = {}
        for number, group in enumerate(self.groups):
            known = tuple(latest[task.name] for task in group)
            if number not in self.done or self.done[number][0] != known:
                self.done[number] = known, _group(group, self.deadlines, latest, self.own)
            found.update(self.done[number][1])
        return found

    def tightened(
        self, finish: dict[str, int], found: dict[str, Response]
    ) -> tuple[dict[str, int], dict[str, Response]]:
        """Return self-consistent bounds, iterated down while that helps; every intermediate one is valid."""
        for _ in range(PATIENCE):
            lower = {**finish, **{name: response.value for name, response in found.items()}}
            if lower == finish:
                break
            finish, found = lower, self.responses(lower)
        return finish, found


def _settled(name: str, responses: Mapping[str, Response], begun: Mapping[str, int]) -> Response:
    """Return a response whose terms begin at its predecessor's final value, not at the assumed one."""
    response = responses[name]
    rest = begun[response.via] - responses[response.via].value if response.via else 0
    return replace(response, terms=(*response.terms, ("release jitter from predecessor", rest))) if rest else response


def _fits(group: Sequence[RtTask], system: System) -> bool:
    alone = single_resource(group) and not any(task.release_jitter for task in group)
    return alone and not any(task.name in system.hopeless for task in group)


def _reachable(groups: list[tuple[RtTask, ...]], lost: set[str]) -> tuple[list[tuple[RtTask, ...]], set[str]]:
    """Return the groups in which no task waits for one without a bound, and their tasks."""
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
    jitter = tuple(latest[task.name].jitter for task in group)
    due = tuple(deadlines[task.name] for task in group)
    for task, (value, terms) in zip(group, _bounds(tuple(group), jitter, due), strict=True):
        at, mine = latest[task.name], own[task.name]
        if value is None:
            result[task.name] = replace(mine, bounded=False)
        elif mine.bounded and mine.value <= value:
            rest = mine.value - at.jitter - task.wcet
            waiting = (ALLOWED, rest)
            result[task.name] = Response(mine.value, True, (*at.terms, ("wcet", task.wcet), waiting), at.via)
        else:
            result[task.name] = Response(value, True, (*at.terms, *terms), at.via)
    return result


@lru_cache(maxsize=4096)
def _bounds(
    group: tuple[RtTask, ...], jitter: tuple[int, ...], deadlines: tuple[int, ...]
) -> tuple[tuple[int | None, Terms], ...]:
    """Return the response of every task of a resource (None: too many arrivals) and its terms but for the jitter.

    Cached: mappings that differ elsewhere, and the steps of a bisection, ask for the same resources again.
    """
    names = [task.name for task in group]
    taskset = resource("edf", group, dict(zip(names, jitter, strict=True)), dict(zip(names, deadlines, strict=True)))
    problem = Problem(taskset, taskset.tasks, taskset.ranks, 1)
    return tuple(
        (value, tuple(term for term in terms if term[0] != "release jitter"))
        for _, value, terms in earliest_deadline_first.response_rows(problem, WORK)
    )
