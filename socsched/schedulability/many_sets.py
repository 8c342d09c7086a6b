"""Many task sets analysed at once: compiled for plain tasks on one preemptive processor, one by one for others.

Every answer is that of `published.choose.analyse` for the set by itself.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from socsched.compiler.native.compilers import build_shared_object
from socsched.descriptor.limits import Verdict
from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.schedulability.published import earliest_deadline_first, fixed_priorities
from socsched.schedulability.published import utilisation as sums
from socsched.schedulability.published.choose import analyse, tests

Ints = NDArray[np.int64]
LONGEST_NS = 2**38
"""Longest time (ns) in a set that is analysed compiled, so that no sum exceeds 64 bits."""
MOST_TASKS = 64
_RULES = ("edf", "fp", "rm", "dm")
_TESTS = tuple(
    test.name
    for test in (
        sums.utilisation,
        sums.liu_layland,
        sums.hyperbolic,
        fixed_priorities.rta,
        fixed_priorities.lehoczky,
        sums.edf_utilisation,
        earliest_deadline_first.qpa,
        earliest_deadline_first.edf_response,
    )
)
"""Tests by their numbers in many_sets.c."""
_VERDICTS: tuple[Verdict, ...] = ("feasible", "infeasible", "undecided")
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class PlainSets:
    """Plain tasks on one preemptive processor, set after set: set k has the rows `first[k]` to `first[k + 1]`.

    Times in ns; `rank`: fixed priority within the set, 0 highest; `edf[k]`: whether set k is under EDF.
    """

    first: Ints
    period: Ints
    wcet: Ints
    deadline: Ints
    offset: Ints
    rank: Ints
    edf: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """The answers of many sets: by set, and by task in the order of the sets; `bound` (ns) is -1 without one."""

    verdict: list[Verdict]
    decided_by: list[str]
    bound: Ints
    test: list[str]


def is_plain(taskset: TaskSet) -> bool:
    """Return whether a set has nothing but periods, execution times, deadlines, offsets and priorities."""
    return (
        covers(taskset.policy, taskset.processors, len(taskset.tasks), 0)
        and not (taskset.chain or taskset.types or taskset.accelerator or taskset.memory or taskset.memguard)
        and all(map(_is_plain, taskset.tasks))
    )  # fmt: skip


def covers(policy: Policy, processors: int, tasks: int, longest_ns: int) -> bool:
    """Return whether plain tasks under a policy, with times up to `longest_ns`, are analysed compiled."""
    few = tasks <= MOST_TASKS and longest_ns <= LONGEST_NS
    return processors == 1 and policy.preemptive and policy.rule in _RULES and few


def _is_plain(task: PeriodicTask) -> bool:
    return not (
        task.jitter_ns or task.blocking_ns or task.regions_ns or task.longest_region_ns or task.suspension_ns
        or task.requests or task.graph or task.distance_ns or task.wcets_ns or task.degraded_ns
        or task.period_ns > LONGEST_NS or task.deadline_ns > LONGEST_NS or task.wcet_ns > LONGEST_NS
    )  # fmt: skip


def plain_sets(tasksets: Sequence[TaskSet]) -> PlainSets:
    """Return plain task sets (`is_plain`) as columns."""
    rows = [
        (task.period_ns, task.wcet_ns, task.deadline_ns, 0 if task.sporadic else task.offset_ns, rank)
        for taskset in tasksets
        for task, rank in zip(taskset.tasks, taskset.ranks, strict=True)
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T.copy()
    counts = [len(taskset.tasks) for taskset in tasksets]
    edf = np.array([taskset.policy.rule == "edf" for taskset in tasksets], dtype=np.int64)
    period, wcet, deadline, offset, rank = columns
    return PlainSets(np.cumsum([0, *counts], dtype=np.int64), period, wcet, deadline, offset, rank, edf)


def judge_plain(sets: PlainSets, single: Callable[[int], TaskSet]) -> Verdicts:
    """Return the answers of plain sets; `single` gives a set for the tests themselves, where rounding could decide.

    So are all sets without a C compiler, or with tests installed beside the built-in ones.
    """
    count = len(sets.edf)
    bound = np.empty(len(sets.period), dtype=np.int64)
    test, verdict, decider = np.empty_like(bound), np.empty(count, np.int64), np.empty(count, np.int64)
    left = np.ones(count, dtype=np.int64)
    library = build_shared_object(Path(__file__).with_suffix(".c")) if _only_built_in() else None
    if library is not None and count:
        inputs = (sets.first, sets.period, sets.wcet, sets.deadline, sets.offset, sets.rank, sets.edf)
        arrays = [np.ascontiguousarray(column, dtype=np.int64) for column in inputs]
        pointers = [_pointer(array) for array in (*arrays, bound, test, verdict, decider, left)]
        library.analyse_sets(ctypes.c_int64(count), *pointers)
    bound[bound == _NONE] = -1
    names = [*_TESTS, ""]
    tested = [names[number] for number in test.tolist()] if library is not None else [""] * len(bound)
    answers: list[Verdict] = []
    reasons: list[str] = []
    bounds = sets.first.tolist()
    for k, (undone, code, by) in enumerate(zip(left.tolist(), verdict.tolist(), decider.tolist(), strict=True)):
        rows = slice(bounds[k], bounds[k + 1])
        if undone:
            found = judge_single(single(k))
            answers += found.verdict
            reasons += found.decided_by
            bound[rows], tested[rows] = found.bound, found.test
            continue
        answers.append(_VERDICTS[code])
        reasons.append(names[by] if code == 1 else ", ".join(dict.fromkeys(tested[rows])) if code == 0 else "")
    return Verdicts(answers, reasons, bound, tested)


def judge_single(taskset: TaskSet) -> Verdicts:
    """Return the answers of one set, by all tests."""
    found = analyse(taskset)
    best = [found.tasks[task.name] for task in taskset.tasks]
    bound = np.array([-1 if one.bound is None else one.bound.value for one in best], dtype=np.int64)
    return Verdicts([found.verdict], [found.decided_by], bound, [one.test for one in best])


def judge(tasksets: Sequence[TaskSet]) -> Verdicts:
    """Return the answers of any task sets, those of plain ones compiled."""
    plain = [index for index, taskset in enumerate(tasksets) if is_plain(taskset)]
    quick = judge_plain(plain_sets([tasksets[i] for i in plain]), lambda k: tasksets[plain[k]]) if plain else None
    if quick is not None and len(plain) == len(tasksets):
        return quick
    position = {index: k for k, index in enumerate(plain)}
    starts = np.cumsum([0, *(len(tasksets[i].tasks) for i in plain)]).tolist()
    parts: list[Verdicts] = []
    for index, taskset in enumerate(tasksets):
        k = position.get(index)
        if k is None or quick is None:
            parts.append(judge_single(taskset))
        else:
            rows = slice(starts[k], starts[k + 1])
            parts.append(Verdicts([quick.verdict[k]], [quick.decided_by[k]], quick.bound[rows], quick.test[rows]))
    return Verdicts(
        [answer for part in parts for answer in part.verdict],
        [reason for part in parts for reason in part.decided_by],
        np.concatenate([part.bound for part in parts]) if parts else np.empty(0, np.int64),
        [name for part in parts for name in part.test],
    )


def _only_built_in() -> bool:
    built_in = __name__.rpartition(".")[0] + ".published."
    return all(test.run.__module__.startswith(built_in) for test in tests())


def _pointer(array: Ints) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_int64))
