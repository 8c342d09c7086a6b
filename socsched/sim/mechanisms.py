"""Mechanisms that policies declare in addition to an order (`sim.policies.mechanisms`), as kernel table columns."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.mechanisms import DRAINS, Taking

_MOST_WEIGHT, _MOST_BATCH = 1 << 20, 1 << 20
_MOST_CLASSES = 2048
"""Most distinct co-running segments: the durations of pairs are stored as a table."""
_NEVER = 1 << 62
_BY_THRESHOLD = {Term.CRITICAL, Term.CANDIDATE}
"""Terms that also change for waiting jobs.

As a first term, the kernel computes when they change; all other terms except functions change only for running jobs.
"""


def taken(engine: PlannedEngine, rule: Policy) -> tuple[PlannedEngine, Taking]:
    """Return an engine as preempted under a policy, and the policy's `Taking`, which may be the engine's own."""
    way = next((w for w in rule.taking if w.fits(engine.kind, engine.preemption)), None)
    if way is None or not rule.preemptive:
        return engine, Taking("full")
    flight = way.in_flight or engine.in_flight
    reset = way.reset_ns if way.preemption == "restart" else engine.reset_ns
    return replace(engine, preemption=way.preemption, in_flight=flight, reset_ns=reset), way


def as_taken(plan: Plan, rules: Sequence[Policy]) -> Plan:
    """Return a plan whose engines are preempted as under `rules`, one policy per engine."""
    engines = []
    for engine, rule in zip(plan.engines, rules, strict=True):
        own = taken(engine, rule)[0]
        engines.append(own if rule.preemptive else replace(own, preemption="none"))
    return replace(plan, engines=tuple(engines))


def dynamic(rule: Policy) -> int:
    """Return 0 for constant keys, 1 if they change for running jobs or by a threshold, 2 if for any job."""
    if not rule.dynamic:
        return 0
    if callable(rule.order) or callable(rule.control) or rule.beside or rule.order[1] in _BY_THRESHOLD:
        return 2
    return 1


def unit_row(rule: Policy, way: Taking, kind: str) -> dict[str, int]:
    """Return the columns of a unit under a policy, on an engine of the given kind."""
    beside = rule.beside if rule.beside and kind in (rule.beside.kinds or (kind,)) else None
    row = {
        "save": way.save_ns,
        "restore": way.restore_ns,
        "whole": way.loses == "job",
        "drain": DRAINS.index(way.drain),
        "tokens": len(thresholds(rule)),
        "weighed": not callable(rule.order) and Term.SERVICE in rule.order,
        "margin": rule.margin_ns,
        "beside": beside is not None,
        "once": beside is not None and beside.once,
        "weighs": beside is not None and beside.weigh,
    }
    return {name: int(value) for name, value in row.items()}


def thresholds(rule: Policy) -> tuple[int, ...]:
    """Return the token thresholds for candidates, in increasing order."""
    if rule.tokens is None:
        return ()
    levels = (rule.tokens.fixed,) if rule.tokens.fixed else rule.tokens.levels
    if not levels or min(levels) <= 0 or list(levels) != sorted(set(levels)):
        raise UsageError(f"policy {rule.name!r}: levels of tokens must be above 0 and rise, got {levels}")
    return levels


def task_row(task: Task, kind: str, rule: Policy) -> dict[str, int]:
    """Return the columns of a task under its engine's policy, on an engine of the given kind."""
    batch = rule.batch if rule.batch and kind in (rule.batch.kinds or (kind,)) else None
    most, more = (batch.most(task), batch.more) if batch else (1, 0)
    if not (1 <= most <= _MOST_BATCH and 0 <= more <= _MOST_BATCH):
        raise UsageError(f"policy {rule.name!r}: a batch of {most}, {more} thousandths longer each, of {task.name!r}")
    return {"weight": _weight(task, rule), "batch": most, "more": more}


def _weight(task: Task, rule: Policy) -> int:
    weight = rule.weight(task) if rule.weight else 1
    if not 0 < weight < _MOST_WEIGHT:
        raise UsageError(f"policy {rule.name!r}: weight {weight} of task {task.name!r} is not from 1 to 2**20 - 1")
    return weight


def add_waits(task: Task, rule: Policy, waits: array[int]) -> int:
    """Append the waiting times at which a task reaches a policy's token levels to `waits`; return their start.

    Tokens start at the weight and grow by the weight for every own execution time waited.
    """
    weight = _weight(task, rule)
    first, strict = len(waits), rule.tokens is not None and rule.tokens.strict
    cost = sum(segment.time_ns for segment in task.segments) or task.cost_ns
    levels = thresholds(rule)
    reached = [min(max(-(-(level - weight) * cost // weight), 0), _NEVER) for level in levels]
    # with `strict`, more than the level is required: 1 ns past the instant at which it is reached, rounded down
    more = [min(max((level - weight) * cost // weight + 1, 0), _NEVER) for level in levels]
    waits.extend(reached)
    waits.extend(more if strict else reached)
    return first


def pairs(
    tasks: Sequence[Task], rows: Sequence[tuple[Task, Segment]], rules: Mapping[str, Policy]
) -> tuple[array[int], dict[str, Any]]:
    """Return a class for every segment of `rows`, and the co-running durations of pairs of classes (host's first).

    Tasks with segments away from their own lanes never co-run: those segments wait, or admit guests, on other lanes.
    """
    whole = {t.name for t in tasks if not any(s.engine for s in (*t.segments, *t.degraded)) and rules[t.engine].beside}
    classes: dict[tuple[str, str, int], tuple[int, Task, Segment]] = {}
    numbers = array("q")
    for task, segment in rows:
        key = (task.name, segment.name, segment.time_ns) if task.name in whole and segment.time_ns else ("", "", 0)
        numbers.append(classes.setdefault(key, (len(classes), task, segment))[0])
    count = max(len(classes), 1)
    if count > _MOST_CLASSES:
        raise UsageError(f"at most {_MOST_CLASSES} segments can be beside each other, got {count}")
    host, guest = array("q", bytes(8 * count * count)), array("q", bytes(8 * count * count))
    known = [(key, *found) for key, found in classes.items() if key[0]]
    for _, first, task, segment in known:
        rule = rules[task.engine].beside
        assert rule is not None
        for _, second, other, its in known:
            if other.name == task.name or other.engine != task.engine:
                continue
            if found := rule.pace(task, segment, other, its):
                at = first * count + second
                host[at], guest[at] = max(found[0], segment.time_ns), max(found[1], its.time_ns)
    return numbers, {"host_time": host, "guest_time": guest, "classes": count}
