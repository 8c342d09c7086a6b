"""Two plans of one workload as a diff: what moved, which figures changed, what got worse and which move did it.

A bound is the sum of its terms, and each term is due to one task: the one it is of, or the one it says it is `by`.  So
the change of a bound is shared out exactly among tasks; the one whose terms grew most is responsible, and a conversion
counts with the end of it that moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from socsched.plan.plan import ChainResult, Plan, Task
from socsched.report import facts
from socsched.units import format_bandwidth, format_duration, format_power

ORDER = {"feasible": 0, "undecided": 1, "infeasible": 2}


@dataclass(frozen=True, slots=True)
class Move:
    """A stage that runs elsewhere, otherwise, or at another cost; `before` or `after` is "" where it is not there."""

    stage: str
    before: str
    after: str
    cost_a_ns: int
    cost_b_ns: int

    @property
    def moved(self) -> bool:
        """Whether more than its cost changed."""
        return self.before != self.after

    def told(self) -> str:
        """Return the move in words."""
        if not self.before:
            return f"{self.stage} is new, on {self.after}"
        if not self.after:
            return f"{self.stage} is gone from {self.before}"
        costs = f"{format_duration(self.cost_a_ns)} → {format_duration(self.cost_b_ns)}"
        if not self.moved:
            return f"{self.stage} on {self.after} costs {costs}"
        return f"{self.stage} moved from {self.before} to {self.after}, {costs}"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of both plans (None: there is none), and whether it got worse by more than allowed, and why."""

    name: str
    figure: str
    unit: str
    a: float | None
    b: float | None
    regressed: bool
    because: str = ""

    def shown(self) -> tuple[str, str, str]:
        """Return A, B and their ratio for people."""
        show = {"ns": format_duration, "mW": format_power, "B/s": format_bandwidth}[self.unit]
        ratio = f"{self.b / self.a:.3f}" if self.a and self.b is not None else "–"
        a, b = ("none" if value is None else show(value) for value in (self.a, self.b))
        return a, b, ratio

    def regression(self) -> str:
        """Return the regression in words, with its cause where one is known."""
        a, b, _ = self.shown()
        return f"{self.name} {self.figure} {a} → {b}" + (f": {self.because}" if self.because else "")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """Everything in which two plans differ; `changes` of the deployment as a whole, in words."""

    changes: tuple[str, ...]
    moves: tuple[Move, ...]
    figures: tuple[Figure, ...]
    worse: tuple[str, ...]

    @property
    def regressions(self) -> tuple[str, ...]:
        """Return everything that got worse by more than allowed, each with the move that did it."""
        return (*self.worse, *(row.regression() for row in self.figures if row.regressed))

    def document(self) -> dict[str, Any]:
        """Return the diff as plain data."""
        moves = [{**asdict(move), "moved": move.moved} for move in self.moves]
        figures = [asdict(row) for row in self.figures]
        return {
            "changes": list(self.changes),
            "moves": moves,
            "figures": figures,
            "regressions": list(self.regressions),
        }


def diff(a: Plan, b: Plan, allowed: float) -> PlanDiff:
    """Compare plans; a figure of `b` regresses when it exceeds that of `a` by more than the ratio `allowed`.

    So does a verdict that is worse, a bound that is no more, and a chain that is gone.
    """
    found = moves(a, b)
    return PlanDiff(tuple(_changes(a, b)), found, tuple(_figures(a, b, allowed, found)), tuple(_worse(a, b)))


def moves(a: Plan, b: Plan) -> tuple[Move, ...]:
    """Return the tasks that are not as they were, in the order of the plans."""
    before, after = ({task.name: task for task in plan.tasks} for plan in (a, b))
    found = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        before_place, after_place = (_place(plan, task) if task else "" for plan, task in ((a, old), (b, new)))
        before_ns, after_ns = (task.cost_ns if task else 0 for task in (old, new))
        if before_place != after_place or before_ns != after_ns:
            found.append(Move(name, before_place, after_place, before_ns, after_ns))
    return tuple(found)


def _place(plan: Plan, task: Task) -> str:
    lanes = facts.lanes(plan, task)
    return f"{task.engine} {task.precision}" + ("" if lanes == "whole" else f" lanes {lanes}")


def _changes(a: Plan, b: Plan) -> Iterator[str]:
    for name in ("pipeline", "platform", "mode", "policy", "verdict"):
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield f"{name}: {old} → {new}"
    for name in sorted(a.inputs.keys() | b.inputs.keys()):
        if a.inputs.get(name) != b.inputs.get(name):
            state = "is new" if name not in a.inputs else "is gone" if name not in b.inputs else "has changed"
            yield f"input {name} {state}"
    old, new = (plan.tool.get("version", "?") for plan in (a, b))
    if old != new:
        yield f"made by socsched {old} → {new}"


def _worse(a: Plan, b: Plan) -> Iterator[str]:
    if ORDER.get(b.verdict, 1) > ORDER.get(a.verdict, 1):
        yield f"verdict {a.verdict} → {b.verdict}"
    known = {chain.name for chain in b.chains}
    yield from (f"chain {chain.name} is gone" for chain in a.chains if chain.name not in known)


def _figures(a: Plan, b: Plan, allowed: float, found: tuple[Move, ...]) -> Iterator[Figure]:
    after = {chain.name: chain for chain in b.chains}
    for old in a.chains:
        new = after.get(old.name)
        if new is None:
            continue
        lost = old.bound_ns is not None and new.bound_ns is None
        worse = lost or _above(old.bound_ns, new.bound_ns, allowed)
        because = _because(old, new, found) if worse else ""
        yield Figure(old.name, "bound", "ns", old.bound_ns, new.bound_ns, worse, because)
        slower = _above(old.expected_ns, new.expected_ns, allowed)
        because = _because(old, new, found) if slower else ""
        yield Figure(old.name, "expected", "ns", old.expected_ns, new.expected_ns, slower, because)
    old_mw, new_mw = a.power.get("expected_mw"), b.power.get("expected_mw")
    worse = _above(old_mw, new_mw, allowed)
    yield Figure("power", "expected", "mW", old_mw, new_mw, worse, _grown(a.power, b.power) if worse else "")
    before, now = (plan.bandwidth.get("expected_gbps") for plan in (a, b))
    flows = [None if rate is None else rate * 1e9 for rate in (before, now)]
    worse = _above(before, now, allowed)
    yield Figure(
        "DRAM", "expected", "B/s", flows[0], flows[1], worse, _grown(a.bandwidth, b.bandwidth) if worse else ""
    )


def _above(a: float | None, b: float | None, allowed: float) -> bool:
    return a is not None and b is not None and b > a * (1 + allowed)


def _grown(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Return which term of a sum grew most."""
    before = dict(a.get("terms") or ())
    grown = {name: value - before.get(name, 0) for name, value in b.get("terms") or ()}
    name = max(grown, key=lambda name: grown[name], default="")
    return f"mostly {name}" if name and grown[name] > 0 else ""


def shares(a: ChainResult, b: ChainResult) -> dict[str, int]:
    """Return by task how much more of a chain's bound is due to it in B (ns); the changes add up to the bound's."""
    found: dict[str, int] = {}
    for chain, sign in ((a, -1), (b, 1)):
        for name, ns in chain.terms:
            task, _, rest = name.partition(": ")
            actor = rest.rpartition(" by ")[2] if " by " in rest else task
            found[actor] = found.get(actor, 0) + sign * ns
    return {name: ns for name, ns in found.items() if ns}


def blame(task: str, found: tuple[Move, ...]) -> str:
    """Return the end of a conversion that moved, the later one first; a stage is itself."""
    moved = {move.stage for move in found if move.moved}
    return next((part for part in reversed(task.split(">")) if part in moved), task)


def _because(old: ChainResult, new: ChainResult, found: tuple[Move, ...]) -> str:
    """Return the move that is responsible for most of a chain's change."""
    changed = {move.stage: move for move in found}
    grown: dict[str, int] = {}
    for name, ns in shares(old, new).items():
        blamed = blame(name, found)
        grown[blamed] = grown.get(blamed, 0) + ns
    if not any(ns > 0 for ns in grown.values()):
        moved = [changed[name] for name in new.path if name in changed]
        grown = {move.stage: move.cost_b_ns - move.cost_a_ns for move in moved}
    # among those that changed if one of them grew: interference grows because somebody else changed
    own = {name: ns for name, ns in grown.items() if name in changed and ns > 0} or grown
    name = max(own, key=lambda name: own[name], default="")
    if not name or own[name] <= 0:
        return ""
    told = changed[name].told() if name in changed else f"{name} takes more of it"
    return f"{told} (+{format_duration(own[name])})"
