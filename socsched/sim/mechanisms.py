"""What policies declare besides an order (`sim.policies.mechanisms`), as numbers of the kernel's tables."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.plan.plan import PlannedEngine, Task
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.mechanisms import DRAINS, Taking

_MOST_WEIGHT = 1 << 20
_ALONE_CHANGES = {Term.REMAINING, Term.LAXITY, Term.SERVICE}
"""Terms that change only of jobs that run; `Term.CRITICAL`, `CANDIDATE` and functions may change of any."""
_CHANGES = {Term.CRITICAL, Term.CANDIDATE, Term.ASKED}


def taken(engine: PlannedEngine, rule: Policy) -> tuple[PlannedEngine, Taking]:
    """Return an engine as it is taken under a policy, and the policy's way, which may be the engine's own."""
    way = next((w for w in rule.taking if w.fits(engine.kind, engine.preemption)), None)
    if way is None or not rule.preemptive:
        return engine, Taking("full")
    flight = way.in_flight or engine.in_flight
    reset = way.reset_ns if way.preemption == "restart" else engine.reset_ns
    return replace(engine, preemption=way.preemption, in_flight=flight, reset_ns=reset), way


def dynamic(rule: Policy) -> int:
    """Return 0 for keys that hold, 1 where they change of jobs that run, 2 where they may of any."""
    if not rule.dynamic:
        return 0
    if callable(rule.order) or rule.control or _CHANGES & set(rule.order):
        return 2
    return 1 if _ALONE_CHANGES & set(rule.order) else 2


def unit_row(rule: Policy, way: Taking, levels: array[int]) -> dict[str, int]:
    """Return the columns of a unit under a policy; `levels` of tokens are appended to those there are."""
    tokens = rule.tokens
    if tokens and (not tokens.levels or min(tokens.levels) <= 0 or list(tokens.levels) != sorted(tokens.levels)):
        raise UsageError(f"policy {rule.name!r}: levels of tokens must be above 0 and rise, got {tokens.levels}")
    row = {
        "save": way.save_ns,
        "restore": way.restore_ns,
        "whole": way.loses == "job",
        "drain": DRAINS.index(way.drain),
        "tokens": len(tokens.levels) if tokens else 0,
        "level0": len(levels),
        "fixed": tokens.fixed if tokens else 0,
        "strict": tokens.strict if tokens else False,
        "weighed": not callable(rule.order) and Term.SERVICE in rule.order,
        "margin": rule.margin_ns,
        "beside": rule.beside is not None,
        "weighs": rule.beside is not None and rule.beside.weigh,
    }
    levels.extend(tokens.levels if tokens else ())
    return {name: int(value) for name, value in row.items()}


def task_row(task: Task, rule: Policy) -> dict[str, int]:
    """Return the columns of a task under the policy of its engine."""
    weight = rule.weight(task) if rule.weight else 1
    most = rule.batch.most(task) if rule.batch else 1
    if not 0 < weight < _MOST_WEIGHT:
        raise UsageError(f"policy {rule.name!r}: weight {weight} of task {task.name!r} is not from 1 to 2**20 - 1")
    return {"weight": weight, "batch": most, "more": rule.batch.more if rule.batch else 0}


def pairs(
    tasks: Sequence[Task], rows: Sequence[tuple[Task, Segment]], rules: Mapping[str, Policy]
) -> tuple[array[int], dict[str, Any]]:
    """Return a class for every segment of `rows`, and what pairs of classes take beside each other (host's first).

    Tasks with segments away from their own lanes are beside nobody: those wait, or let others in, elsewhere.
    """
    whole = {t.name for t in tasks if not any(s.engine for s in (*t.segments, *t.degraded)) and rules[t.engine].beside}
    classes: dict[tuple[str, str, int], tuple[int, Task, Segment]] = {}
    numbers = array("q")
    for task, segment in rows:
        key = (task.name, segment.name, segment.time_ns) if task.name in whole and segment.time_ns else ("", "", 0)
        numbers.append(classes.setdefault(key, (len(classes), task, segment))[0])
    count = max(len(classes), 1)
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
