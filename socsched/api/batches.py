"""Many task sets at once: arrays or sets in, columns out that a DataFrame is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from socsched.descriptor.taskset import UNITS, PeriodicTask, TaskSet, taskset_from_mapping
from socsched.descriptor.taskset import Policy as Scheme
from socsched.errors import UsageError
from socsched.limits import LONGEST_NS
from socsched.sim.build import expect_segments
from socsched.sim.policies import Key, Policy

if TYPE_CHECKING:
    from socsched.schedulability.many_sets import PlainSets

Columns = dict[str, NDArray[Any]]
"""Columns of equal length by name."""
FIELDS = ("period", "wcet", "deadline", "bcet", "offset", "jitter", "prio", "cpu")
"""Parameters of tasks that arrays may give, as task-set files name them."""
_POSITIVE = ("period", "wcet", "deadline")


class _Drawn:
    """Task sets given as arrays: whole ns by name, sets along the first axis, `there` where there is a task."""

    def __init__(self, given: Mapping[str, ArrayLike], policy: str | None, processors: int, time_unit: str) -> None:
        unknown = [name for name in given if name not in FIELDS]
        if unknown or "period" not in given or "wcet" not in given:
            raise UsageError(
                f"unknown parameter {unknown[0]!r}" if unknown else "period and wcet are needed",
                f"arrays by name: {', '.join(FIELDS)}",
            )
        if time_unit not in UNITS:
            raise UsageError(f"unknown time_unit {time_unit!r}", f"units: {', '.join(UNITS)}")
        self.unit_ns, self.processors = UNITS[time_unit], processors
        arrays = {name: np.asarray(values, dtype=np.float64) for name, values in given.items()}
        shape = arrays["period"].shape
        for name, values in arrays.items():
            if len(shape) != 2 or values.shape != shape:
                wanted = "sets x tasks" if len(shape) != 2 else f"{shape[0]} x {shape[1]}, as period"
                raise UsageError(f"{name} has the shape {values.shape}", f"give arrays of {wanted}")
        negative = arrays["period"] < 0
        self._check(negative, "period", "a time, 0 where a set has no further task")
        self.there = arrays["period"] > 0
        self.values = {name: self._whole(name, values) for name, values in arrays.items()}
        period, wcet = self.values["period"], self.values["wcet"]
        defaults = {"deadline": period, "bcet": wcet, "offset": np.zeros_like(period), "jitter": np.zeros_like(period)}
        self.values = {**defaults, **self.values}
        self._check(self.there & (self.values["bcet"] > wcet), "bcet", "at most the wcet")
        empty = ~self.there.any(axis=1)
        if empty.any():
            raise UsageError(f"set {int(empty.argmax())} has no task", "a task has a period above 0")
        # the policy of all sets is read as a file's: one of it has tasks like theirs
        like = {name: 0 for name in ("prio", "cpu") if name in given}
        sample = {"period": 1, "wcet": 1, **like}
        data: dict[str, Any] = {"processors": processors, "tasks": [sample]}
        self.policy: Scheme = taskset_from_mapping({**data, **({"policy": policy} if policy else {})}, "arrays").policy
        if "cpu" in given:
            outside = self.there & ((self.values["cpu"] < 0) | (self.values["cpu"] >= processors))
            self._check(outside, "cpu", f"a processor below {processors}")

    def _whole(self, name: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
        scale = 1 if name in ("prio", "cpu") else self.unit_ns
        scaled = np.where(self.there, values, 0.0) * scale
        rounded = np.rint(scaled)
        self._check(~np.isfinite(scaled), name, "a number")
        if scale > 1:
            # 0.1 ms is 100,000 ns although no float is 0.1
            off = np.abs(scaled - rounded) > np.abs(scaled) * 1e-15
        else:
            off = scaled != rounded
        self._check(off, name, "a whole number of ns" if name not in ("prio", "cpu") else "a whole number")
        if name != "prio":
            least = 1 if name in _POSITIVE else 0
            self._check(self.there & (rounded < least), name, f"at least {least} ns")
            self._check(rounded > LONGEST_NS, name, f"at most {LONGEST_NS} ns")
        whole: NDArray[np.int64] = rounded.astype(np.int64)
        return whole

    def _check(self, wrong: NDArray[np.bool_], name: str, expected: str) -> None:
        if wrong.any():
            row, column = (int(at[0]) for at in np.nonzero(wrong))
            raise UsageError(f"{name}[{row}, {column}]: expected {expected}", "every parameter is checked as a file's")

    def __len__(self) -> int:
        return len(self.there)

    def set(self, row: int) -> TaskSet:
        """Return one of the sets; tasks are numbered by their columns."""
        cells = {name: values[row].tolist() for name, values in self.values.items()}
        tasks = tuple(
            PeriodicTask(
                id=j, name=f"t{j}", period_ns=cells["period"][j], deadline_ns=cells["deadline"][j],
                wcet_ns=cells["wcet"][j], bcet_ns=cells["bcet"][j], offset_ns=cells["offset"][j],
                jitter_ns=cells["jitter"][j],
                cpu=0 if self.processors == 1 else cells["cpu"][j] if "cpu" in cells else None,
                prio=cells["prio"][j] if "prio" in cells else None,
            )
            for j in np.nonzero(self.there[row])[0].tolist()
        )  # fmt: skip
        return TaskSet(f"set {row}", self.unit_ns, self.policy, self.processors, None, tasks, ())

    def plain(self) -> PlainSets | None:
        """Return the sets as columns for the compiled analysis, None if it does not cover them."""
        from socsched.schedulability.many_sets import PlainSets, covers

        values, there = self.values, self.there
        longest = max((int(values[name].max(initial=0)) for name in _POSITIVE), default=0)
        if not covers(self.policy, self.processors, there.shape[1], longest) or values["jitter"].any():
            return None
        rows, columns = np.nonzero(there)
        first = {"rm": values["period"], "dm": values["deadline"]}.get(
            self.policy.rule, np.zeros_like(values["period"])
        )
        prio = values.get("prio", np.zeros_like(first))
        order = np.lexsort((columns, prio[there], first[there], rows))
        starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        rank = np.empty(len(rows), dtype=np.int64)
        rank[order] = np.arange(len(rows)) - starts[rows]
        edf = np.full(len(there), self.policy.rule == "edf", dtype=np.int64)
        period, wcet, deadline, offset = (values[name][there] for name in ("period", "wcet", "deadline", "offset"))
        return PlainSets(starts, period, wcet, deadline, offset, rank, edf)


Sets = Sequence["TaskSet"] | Mapping[str, ArrayLike]


def analyze_many(
    sets: Sets,
    *,
    policy: str | None = None,
    processors: int = 1,
    time_unit: str = "ns",
    by: Literal["set", "task"] = "set",
) -> Columns:
    """Return the verdicts of many task sets, or the bounds of their tasks, as `analyze` gives them for each alone.

    `sets`: loaded task sets, or arrays by name (`FIELDS`), each sets x tasks in `time_unit`, with a period of 0 or NaN
    where a set has no further task; `policy` and `processors` are those of a task-set file, for arrays only.

    Columns by set: set, tasks, utilisation, verdict (feasible | infeasible | undecided), decided_by.  By task: set,
    task, period_ns, wcet_ns, deadline_ns, bound_ns (NaN without one), test.  Plain tasks on one preemptive processor
    are analysed by compiled code.  Raises UsageError for arrays with faults.
    """
    from socsched.schedulability.many_sets import judge, judge_plain

    _check_rows(by)
    if isinstance(sets, Mapping):
        drawn = _Drawn(sets, policy, processors, time_unit)
        plain = drawn.plain()
        found = judge_plain(plain, drawn.set) if plain else judge([drawn.set(row) for row in range(len(drawn))])
        rows, columns = np.nonzero(drawn.there)
        names = [f"t{j}" for j in range(drawn.there.shape[1])]
        tasks = np.array(names, dtype=object)[columns]
        period, wcet, deadline = (drawn.values[name][drawn.there] for name in ("period", "wcet", "deadline"))
    else:
        _reject(policy, processors, time_unit)
        found = judge(sets)
        rows = np.repeat(np.arange(len(sets)), [len(one.tasks) for one in sets])
        listed = [task for one in sets for task in one.tasks]
        tasks = np.array([task.name for task in listed], dtype=object)
        period, wcet, deadline = (
            np.array([getattr(task, name) for task in listed], dtype=np.int64)
            for name in ("period_ns", "wcet_ns", "deadline_ns")
        )
    if by == "task":
        return {
            "set": rows, "task": tasks, "period_ns": period, "wcet_ns": wcet, "deadline_ns": deadline,
            "bound_ns": np.where(found.bound < 0, np.nan, found.bound), "test": np.array(found.test, dtype=object),
        }  # fmt: skip
    count = len(found.verdict)
    return {
        "set": np.arange(count),
        "tasks": np.bincount(rows, minlength=count),
        "utilisation": np.bincount(rows, weights=wcet / period, minlength=count),
        "verdict": np.array(found.verdict, dtype=object),
        "decided_by": np.array(found.decided_by, dtype=object),
    }


def simulate_many(
    sets: Sets,
    duration: str | int | None = None,
    *,
    policy: str | Policy | Key | None = None,
    execution: str = "wcet",
    seed: int = 0,
    processors: int = 1,
    time_unit: str = "ns",
    by: Literal["set", "task"] = "set",
) -> Columns:
    """Simulate many task sets, each as `simulate` does, and return the figures of sets or of their tasks.

    `sets`, `processors` and `time_unit` as in `analyze_many`; of arrays, `policy` is EDF without one, or the name of a
    task-set file's policy.  `duration`, `execution` and `seed` as in `simulate`: equal seeds for all sets.

    Columns by set: set, tasks, met, missed, released, completed, preemptions, migrations, interrupted.  By task: set,
    task, released, completed, response_max_ns, response_mean_ns (NaN without a completed job), late, unfinished,
    preemptions, migrations.
    """
    from socsched.api.simulation import duration_ns, simulate_set
    from socsched.sim.tasksets import choose_horizon

    _check_rows(by)
    if isinstance(sets, Mapping):
        from socsched.descriptor.taskset import POLICY

        stated = policy if isinstance(policy, str) and POLICY.fullmatch(policy) else None
        drawn = _Drawn(sets, stated, processors, time_unit)
        tasksets: Sequence[TaskSet] = [drawn.set(row) for row in range(len(drawn))]
        policy = None if stated else policy
    else:
        _reject(None, processors, time_unit)
        tasksets = sets
    length = duration_ns(duration)
    lengths = [length or one.horizon_ns or choose_horizon(one)[0] for one in tasksets]
    # one kernel serves all: whether compiling it pays is seen from all of them
    expect_segments(
        sum(span // task.period_ns for span, one in zip(lengths, tasksets, strict=True) for task in one.tasks)
    )
    done = [simulate_set(one, length, policy=policy, execution=execution, seed=seed) for one in tasksets]
    rows = [task for one in done for task in one.tasks]
    counted = ("released", "completed", "late", "unfinished", "preemptions", "migrations")
    counts = {name: np.array([getattr(task, name) for task in rows], dtype=np.int64) for name in counted}
    sizes = np.array([len(one.tasks) for one in done], dtype=np.int64)
    number = np.repeat(np.arange(len(done)), sizes)
    if by == "task":
        times = {
            name: np.array([_number(getattr(task, name)) for task in rows])
            for name in ("response_max_ns", "response_mean_ns")
        }
        columns = {"set": number, "task": np.array([task.name for task in rows], dtype=object), **counts, **times}
        order = ("set", "task", "released", "completed", "response_max_ns", "response_mean_ns")
        return {name: columns[name] for name in (*order, *counted[2:])}

    def total(*names: str) -> NDArray[np.int64]:
        return sum((np.bincount(number, counts[name], len(done)) for name in names), np.zeros(len(done))).astype(
            np.int64
        )

    return {
        "set": np.arange(len(done)), "tasks": sizes, "met": total("late", "unfinished") == 0,
        "missed": total("late", "unfinished"), **{name: total(name) for name in ("released", "completed")},
        **{name: total(name) for name in ("preemptions", "migrations")},
        "interrupted": np.array([one.interrupted for one in done], dtype=bool),
    }  # fmt: skip


def _number(time_ns: float | None) -> float:
    return np.nan if time_ns is None else float(time_ns)


def _check_rows(by: str) -> None:
    if by not in ("set", "task"):
        raise UsageError(f"by={by!r}", "rows are sets or tasks: by='set' or by='task'")


def _reject(policy: str | None, processors: int, time_unit: str) -> None:
    if policy is not None or processors != 1 or time_unit != "ns":
        raise UsageError("policy, processors and time_unit are for arrays", "loaded task sets state their own")
