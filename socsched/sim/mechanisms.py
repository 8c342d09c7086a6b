"""Mechanisms that policies declare in addition to an order (`sim.policies.mechanisms`), as kernel table columns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.plan import PlannedEngine, Task
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.mechanisms import DRAINS, PreemptionMechanism

_MOST_WEIGHT = 1 << 20
_MOST_CLASSES = 2048
"""Most distinct co-running segments: the durations of pairs are stored as a table."""
_NEVER = 1 << 62
_BY_THRESHOLD = {Term.CRITICAL, Term.CANDIDATE}
"""Terms that also change for waiting jobs.

As a first term, the kernel computes when they change; all other terms except functions change only for running jobs.
"""


def apply_preemption(engine: PlannedEngine, rule: Policy) -> tuple[PlannedEngine, PreemptionMechanism]:
    """Return an engine as preempted under a policy, and the mechanism in use, which may be its own."""
    mechanism = next((m for m in rule.preemption if m.applies_to(engine.kind, engine.preemption)), None)
    if mechanism is None or not rule.preemptive:
        return engine, PreemptionMechanism("full")
    flight = mechanism.in_flight or engine.in_flight
    reset = mechanism.reset_ns if mechanism.mode == "restart" else engine.reset_ns
    return replace(engine, preemption=mechanism.mode, in_flight=flight, reset_ns=reset), mechanism


def classify_keys(rule: Policy) -> int:
    """Return 0 for constant keys, 1 if they change for running jobs or by a threshold, 2 if for any job."""
    if not rule.dynamic:
        return 0
    if callable(rule.order) or rule.corun or rule.order[1] in _BY_THRESHOLD:
        return 2
    return 1


def make_unit_row(rule: Policy, mechanism: PreemptionMechanism, kind: str) -> dict[str, int]:
    """Return the columns of a unit under a policy, on an engine of the given kind."""
    corun = rule.corun if rule.corun and kind in (rule.corun.kinds or (kind,)) else None
    row = {
        "save": mechanism.save_ns,
        "restore": mechanism.restore_ns,
        "restart_job": mechanism.lost_work == "job",
        "drain": DRAINS.index(mechanism.drain),
        "tokens": len(list_thresholds(rule)),
        "fair": not callable(rule.order) and Term.SERVICE in rule.order,
        "margin": rule.margin_ns,
        "corun": corun is not None,
        "corun_once": corun is not None and corun.once_per_segment,
    }
    return {name: int(value) for name, value in row.items()}


def list_thresholds(rule: Policy) -> tuple[int, ...]:
    """Return the token thresholds for candidates, in increasing order."""
    if rule.tokens is None:
        return ()
    levels = (rule.tokens.fixed,) if rule.tokens.fixed else rule.tokens.levels
    if not levels or min(levels) <= 0 or list(levels) != sorted(set(levels)):
        raise UsageError(f"policy {rule.name!r}: expected levels of tokens above 0 in rising order, got {levels}")
    return levels


def weight_of(task: Task, rule: Policy) -> int:
    """Return a task's weight under a policy."""
    weight = rule.weight(task) if rule.weight else 1
    if not 0 < weight < _MOST_WEIGHT:
        raise UsageError(
            f"policy {rule.name!r}: task {task.name!r}: expected a weight from 1 to 2**20 - 1, got {weight}"
        )
    return weight


def add_waits(task: Task, rule: Policy, waits: array[int]) -> int:
    """Append the waiting times at which a task reaches a policy's token levels to `waits`; return their start.

    Tokens start at the weight and grow by the weight for every own execution time waited.
    """
    weight = weight_of(task, rule)
    first, strict = len(waits), rule.tokens is not None and rule.tokens.strict
    cost = sum(segment.time_ns for segment in task.segments) or task.cost_ns
    levels = list_thresholds(rule)
    reached = [min(max(-(-(level - weight) * cost // weight), 0), _NEVER) for level in levels]
    # with `strict`, more than the level is required: 1 ns past the instant at which it is reached, rounded down
    more = [min(max((level - weight) * cost // weight + 1, 0), _NEVER) for level in levels]
    waits.extend(reached)
    waits.extend(more if strict else reached)
    return first


def make_pair_tables(
    tasks: Sequence[Task], rows: Sequence[tuple[Task, Segment]], rules: Mapping[str, Policy]
) -> tuple[array[int], dict[str, Any]]:
    """Return a class for every segment of `rows`, and the co-running durations of pairs of classes (host's first).

    Tasks with segments away from their own slots never co-run: those segments wait, or admit co-runners, on other
    slots.
    """
    whole = {t.name for t in tasks if not any(s.engine for s in (*t.segments, *t.degraded)) and rules[t.engine].corun}
    classes: dict[tuple[str, str, int], tuple[int, Task, Segment]] = {}
    numbers = array("q")
    for task, segment in rows:
        key = (task.name, segment.name, segment.time_ns) if task.name in whole and segment.time_ns else ("", "", 0)
        numbers.append(classes.setdefault(key, (len(classes), task, segment))[0])
    count = max(len(classes), 1)
    if count > _MOST_CLASSES:
        raise UsageError(f"at most {_MOST_CLASSES} segments can co-run, got {count}")
    host, corunner = array("q", bytes(8 * count * count)), array("q", bytes(8 * count * count))
    known = [(key, *found) for key, found in classes.items() if key[0]]
    for _, first, task, segment in known:
        rule = rules[task.engine].corun
        assert rule is not None
        for _, second, other, its in known:
            if other.name == task.name or other.engine != task.engine:
                continue
            if found := rule.times(task, segment, other, its):
                at = first * count + second
                host[at], corunner[at] = max(found[0], segment.time_ns), max(found[1], its.time_ns)
    return numbers, {"host_times": host, "corunner_times": corunner, "classes": count}
