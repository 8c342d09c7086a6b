"""What precedence says about interference: runs of stages that act as one task, and relatives that never compete.

A run i1 -> i2 -> ... on the same lanes, each activated by nothing but its forerunner, is pending without a gap from the
activation of i1 to the end of the last; with one deadline (EDF) or neighbouring priorities, the later stage first (FP),
it behaves like one task.  Relatives (trigger ancestors and descendants) handle the same frame one after the other; as
long as a frame is through before the next is released they cannot interfere with or block each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from socsched.plan.schedulability.tasks import Response, RtTask


@dataclass(frozen=True, slots=True)
class Runs:
    """Tasks with every run merged into one task, named like its last member; `members` lists all of them."""

    tasks: Mapping[str, RtTask]
    members: Mapping[str, tuple[str, ...]]

    def expand(self, responses: Mapping[str, Response], plain: Mapping[str, RtTask]) -> dict[str, Response]:
        """Return a response for every task; members of a run get the run's, its WCET told by member."""
        result: dict[str, Response] = {}
        for name, names in self.members.items():
            found = responses[name]
            if len(names) > 1:
                wcet = tuple((f"{member}: wcet", plain[member].wcet) for member in names)
                rest = tuple(term for term in found.terms if term[0] != "wcet")
                found = replace(found, terms=(*wcet, *rest))
            result.update(dict.fromkeys(names, found))
        return {name: result[name] for name in plain}


def any_two(first: RtTask, second: RtTask) -> bool:
    """Allow every run: deadlines and priorities are still to be set accordingly."""
    return True


def one_deadline(first: RtTask, second: RtTask) -> bool:
    """Allow a run under EDF: both stages have the same deadline."""
    return first.deadline == second.deadline


def neighbours(first: RtTask, second: RtTask) -> bool:
    """Allow a run under fixed priorities: the later stage comes right before the earlier one."""
    return first.priority == second.priority + 1


def merge_runs(
    tasks: Mapping[str, RtTask], ends: Collection[str], allowed: Callable[[RtTask, RtTask], bool] = any_two
) -> Runs:
    """Merge runs; tasks in `ends` close theirs, as their own response is asked for."""
    following: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for before in task.after:
            if before in tasks:
                following[before].append(name)
    next_in_run = {
        name: after[0]
        for name, after in following.items()
        if len(after) == 1
        and name not in ends
        and tasks[after[0]].after == (name,)
        and tasks[after[0]].lanes == tasks[name].lanes
        and allowed(tasks[name], tasks[after[0]])
    }
    members: dict[str, tuple[str, ...]] = {}
    for name in tasks:
        if name not in next_in_run.values():
            run = [name]
            while run[-1] in next_in_run:
                run.append(next_in_run[run[-1]])
            members[run[-1]] = tuple(run)
    return Runs({last: _merged([tasks[name] for name in run]) for last, run in members.items()}, members)


def _merged(run: list[RtTask]) -> RtTask:
    if len(run) == 1:
        return run[0]
    last = run[-1]
    stepwise = last.preemption != "full"
    return replace(
        last,
        wcet=sum(task.wcet for task in run),
        # Between two stages of a run any other job may go first, whatever happens within a stage.
        preemption="segment" if stepwise else "full",
        segment=max(task.segment for task in run) if stepwise else 0,
        after=run[0].after,
    )


def relatives(tasks: Mapping[str, RtTask]) -> dict[str, frozenset[str]]:
    """Return, for every task, its trigger ancestors and descendants."""
    ancestors: dict[str, set[str]] = {}

    def climb(name: str) -> set[str]:
        if name not in ancestors:
            direct = {n for n in tasks[name].after if n in tasks}
            ancestors[name] = direct.union(*(climb(n) for n in direct))
        return ancestors[name]

    for name in tasks:
        climb(name)
    return {name: frozenset(ancestors[name] | {other for other in tasks if name in ancestors[other]}) for name in tasks}


def families(tasks: Mapping[str, RtTask]) -> list[frozenset[str]]:
    """Group tasks that trigger each other, directly or not."""
    groups: list[set[str]] = []
    for name, task in tasks.items():
        joined = {name, *(n for n in task.after if n in tasks)}
        for group in [g for g in groups if g & joined]:
            joined |= group
            groups.remove(group)
        groups.append(joined)
    return [frozenset(group) for group in groups]
