"""Diff of two plans of one workload: requirements, differing figures, regressions, the change responsible for each.

A bound is the sum of its terms, and each term is due to one task: the task it belongs to, or the task in its `by`.  The
change of a bound is therefore divided exactly among tasks.  The task whose terms grew most is responsible; the net
contribution of all others is given next to it.  A conversion counts towards whichever of its ends changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from socsched.planning.evidence import Bandwidth, Power
from socsched.planning.plan import SOURCES, ChainResult, Plan, Task
from socsched.reporting import view_model
from socsched.reporting.requirement_changes import RequirementChange, requirement_changes
from socsched.units import format_bandwidth, format_duration, format_power

ORDER = {"feasible": 0, "undecided": 1, "infeasible": 2}


@dataclass(frozen=True, slots=True)
class Move:
    """A stage whose placement, configuration or cost changed; `before` or `after` is "" if that plan lacks it."""

    stage: str
    before: str
    after: str
    cost_a_ns: int
    cost_b_ns: int

    @property
    def moved(self) -> bool:
        """Return whether more than the cost changed."""
        return self.before != self.after

    def told(self) -> str:
        """Return the move in words."""
        if not self.before:
            return f"{self.stage} is new, on {self.after}"
        if not self.after:
            return f"{self.stage} is removed from {self.before}"
        costs = f"{format_duration(self.cost_a_ns)} → {format_duration(self.cost_b_ns)}"
        if not self.moved:
            return f"{self.stage} on {self.after} costs {costs}"
        (old, before, was), (engine, precision, lanes) = (_parts(place) for place in (self.before, self.after))
        if (old, before) == (engine, precision) and self.cost_a_ns != self.cost_b_ns and _count(was) == _count(lanes):
            return f"{self.stage} on {engine} {precision} costs {costs}"  # as much of the engine, which lanes or not
        if old != engine:
            return f"{self.stage} moved from {self.before} to {self.after}, {costs}"
        if before != precision:
            return f"{self.stage} runs in {precision} instead of {before} on {engine}, {costs}"
        return f"{self.stage} has {lanes or 'all lanes'} of {engine} instead of {was or 'all'}, {costs}"


def _parts(place: str) -> tuple[str, str, str]:
    """Return engine, precision and lanes of a place as `_place` names it; lanes are "" if all lanes are used."""
    engine, precision, *lanes = place.split(" ", 2)
    return engine, precision, "".join(lanes)


def _count(lanes: str) -> int:
    """Return the number of lanes in a text such as "lanes #0-3 of 8", 0 for all."""
    listed = lanes.partition("#")[2].partition(" of ")[0]
    ends = [[int(end) for end in part.split("-")] for part in listed.split(", ") if part]
    return sum(end[-1] - end[0] + 1 for end in ends)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure in both plans (None: absent), whether it got worse by more than allowed, and the reason."""

    name: str
    figure: str
    unit: str
    a: float | None
    b: float | None
    regressed: bool
    because: str = ""

    def shown(self) -> tuple[str, str, str]:
        """Return A, B and their ratio as human-readable text."""
        show = {"ns": format_duration, "mW": format_power, "B/s": format_bandwidth}[self.unit]
        ratio = f"{self.b / self.a:.3f}" if self.a and self.b is not None else "–"
        a, b = ("none" if value is None else show(value) for value in (self.a, self.b))
        return a, b, ratio

    def regression(self) -> str:
        """Return the regression in words, with its cause if known."""
        a, b, _ = self.shown()
        return f"{self.name} {self.figure} {a} → {b}" + (f": {self.because}" if self.because else "")


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All differences between two plans; `changes`: those of the deployment as a whole, in words.

    `requirements`: what was asked for, where it differs; `worse`: a worse verdict, in words; `weaker`: requirements
    that became weaker although none of the names to allow is theirs.
    """

    changes: tuple[str, ...]
    requirements: tuple[RequirementChange, ...]
    moves: tuple[Move, ...]
    figures: tuple[Figure, ...]
    worse: tuple[str, ...]
    weaker: tuple[RequirementChange, ...]

    @property
    def regressions(self) -> tuple[str, ...]:
        """Return the weaker requirements and all regressions beyond the allowed ratio, each with what caused it."""
        weaker = (f"weaker requirement: {change.told()}" for change in self.weaker)
        return (*weaker, *self.worse, *(row.regression() for row in self.figures if row.regressed))

    def document(self) -> dict[str, Any]:
        """Return the diff as plain data."""
        moves = [{**asdict(move), "moved": move.moved} for move in self.moves]
        figures = [asdict(row) for row in self.figures]
        return {
            "changes": list(self.changes),
            "requirements": [
                {**asdict(change), "allowed": change.sense == "weaker" and change not in self.weaker}
                for change in self.requirements
            ],
            "moves": moves,
            "figures": figures,
            "regressions": list(self.regressions),
        }


def diff(a: Plan, b: Plan, allowed: float, weaker: Collection[str] = ()) -> PlanDiff:
    """Compare plans; a figure of `b` regresses when it exceeds that of `a` by more than the ratio `allowed`.

    A worse verdict, a bound that no longer exists and a weaker requirement are regressions too, the latter unless
    `weaker` names it (`RequirementChange.named`).  Of a plan whose search a limit on time cut off, figures depend on
    the speed of the machine: they are no regressions, and neither is that such a `b` is not proved.
    """
    found, asked = moves(a, b), requirement_changes(a, b)
    worse = (f"verdict {a.verdict} → {b.verdict}",) if _worse_verdict(a, b) else ()
    weak = tuple(change for change in asked if change.sense == "weaker" and not change.named(weaker))
    figures = tuple(_figures(a, b, allowed, found))
    if any(plan.solver.cut_short for plan in (a, b)):
        figures = tuple(replace(figure, regressed=False, because="") for figure in figures)
    return PlanDiff(tuple(_changes(a, b)), asked, found, figures, worse, weak)


def moves(a: Plan, b: Plan) -> tuple[Move, ...]:
    """Return the tasks that changed, in the order of the plans."""
    before, after = ({task.name: task for task in plan.tasks} for plan in (a, b))
    changes = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        before_place, after_place = (_place(plan, task) if task else "" for plan, task in ((a, old), (b, new)))
        before_ns, after_ns = (task.cost_ns if task else 0 for task in (old, new))
        if before_place != after_place or before_ns != after_ns:
            changes.append(Move(name, before_place, after_place, before_ns, after_ns))
    return tuple(changes)


def _place(plan: Plan, task: Task) -> str:
    lanes = view_model.lanes(plan, task)
    return f"{task.engine} {task.precision}" + ("" if lanes == "whole" else f" lanes {lanes}")


def _changes(a: Plan, b: Plan) -> Iterator[str]:
    for name in ("pipeline", "platform", "mode", "policy", "verdict"):
        old, new = getattr(a, name), getattr(b, name)
        # a worse verdict is a regression and reported as such
        if old != new and not (name == "verdict" and _worse_verdict(a, b)):
            yield f"{name}: {old} → {new}"
    for name, plan in (("A", a), ("B", b)):
        if plan.solver.cut_short:
            yield f"the search for {name} was cut off by a limit on time: worse figures are no regressions"
    old, new = (plan.tool.get("version", "?") for plan in (a, b))
    if old != new:
        yield f"made by socsched {old} → {new}"
    elif SOURCES in a.inputs and a.inputs[SOURCES] != b.inputs.get(SOURCES):
        yield f"socsched itself has changed: its sources are not those that A was made with, version {new} of both"
    old, new = (plan.tool.get("options", "none") for plan in (a, b))
    if old != new:
        yield f"options: {old} → {new}"
    for name in sorted((a.inputs.keys() | b.inputs.keys()) - {SOURCES}):
        if a.inputs.get(name) != b.inputs.get(name):
            state = "is new" if name not in a.inputs else "is removed" if name not in b.inputs else "has changed"
            yield f"input {name} {state}"


def _worse_verdict(a: Plan, b: Plan) -> bool:
    unproved = b.solver.cut_short and b.verdict != "infeasible"  # a proof holds whatever ended the search
    return ORDER.get(b.verdict, 1) > ORDER.get(a.verdict, 1) and not unproved


def _figures(a: Plan, b: Plan, allowed: float, found: tuple[Move, ...]) -> Iterator[Figure]:
    after = {chain.name: chain for chain in b.chains}
    for old in a.chains:
        new = after.get(old.name)
        if new is None:
            continue
        lost = old.bound_ns is not None and new.bound_ns is None
        worse = lost or _above(old.bound_ns, new.bound_ns, allowed)
        grown = shares(old, new)
        grown = grown if any(ns > 0 for ns in grown.values()) else _costs(new, found)
        because = _because(grown, found, _growth(old.bound_ns, new.bound_ns)) if worse else ""
        yield Figure(old.name, "bound", "ns", old.bound_ns, new.bound_ns, worse, because)
        slower = _above(old.expected_ns, new.expected_ns, allowed)
        because = _because(_costs(new, found), found, _growth(old.expected_ns, new.expected_ns)) if slower else ""
        yield Figure(old.name, "expected", "ns", old.expected_ns, new.expected_ns, slower, because)
    old_mw, new_mw = a.power.expected_mw, b.power.expected_mw
    worse = _above(old_mw, new_mw, allowed)
    yield Figure("power", "expected", "mW", old_mw, new_mw, worse, _grown(a.power, b.power) if worse else "")
    before, now = (plan.bandwidth.expected_gbps for plan in (a, b))
    flows = [None if rate is None else rate * 1e9 for rate in (before, now)]
    worse = _above(before, now, allowed)
    yield Figure(
        "DRAM", "expected", "B/s", flows[0], flows[1], worse, _grown(a.bandwidth, b.bandwidth) if worse else ""
    )


def _growth(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else b - a


def _above(a: float | None, b: float | None, allowed: float) -> bool:
    return a is not None and b is not None and b > a * (1 + allowed)


def _grown(a: Power | Bandwidth, b: Power | Bandwidth) -> str:
    """Return the term of a sum that grew most."""
    before = dict(a.terms)
    grown = {name: value - before.get(name, 0) for name, value in b.terms}
    name = max(grown, key=lambda name: grown[name], default="")
    return f"mostly {name}" if name and grown[name] > 0 else ""


def shares(a: ChainResult, b: ChainResult) -> dict[str, int]:
    """Return the growth (ns) of a chain's bound from A to B due to each task; the sum is the bound's change."""
    growth: dict[str, int] = {}
    for chain, sign in ((a, -1), (b, 1)):
        for name, ns in chain.terms:
            task, _, rest = name.partition(": ")
            actor = rest.rpartition(" by ")[2] if " by " in rest else task
            growth[actor] = growth.get(actor, 0) + sign * ns
    return {name: ns for name, ns in growth.items() if ns}


def blame(task: str, found: tuple[Move, ...]) -> str:
    """Return the end of a conversion that moved, preferring the later one; for a stage, return the stage."""
    moved = {move.stage for move in found if move.moved}
    return next((part for part in reversed(task.split(">")) if part in moved), task)


def _because(grown: Mapping[str, int], found: tuple[Move, ...], whole_ns: int | None) -> str:
    """Return the change responsible for most of a growth, its share, and the contribution of all others.

    `grown`: growth of a figure due to each task; the values add up to `whole_ns`, None if the figure no longer exists.
    """
    changed = {move.stage: move for move in found}
    by_stage: dict[str, int] = {}
    for name, ns in grown.items():
        blamed = blame(name, found)
        by_stage[blamed] = by_stage.get(blamed, 0) + ns
    # Prefer tasks that changed, if one of them grew: the interference on a task grows because another task changed.
    own = {name: ns for name, ns in by_stage.items() if name in changed and ns > 0} or by_stage
    name = max(own, key=lambda name: own[name], default="")
    if not name or own[name] <= 0:
        return ""
    cause = changed[name].told() if name in changed else f"{name} contributes more"
    return f"{cause} ({parts(own[name], whole_ns)})"


def _costs(new: ChainResult, found: tuple[Move, ...]) -> dict[str, int]:
    """Return the increase in isolated cost of each task of a chain, conversions included."""
    on_path = [move for move in found if set(move.stage.split(">")) <= set(new.path)]
    return {move.stage: move.cost_b_ns - move.cost_a_ns for move in on_path}


def parts(own_ns: int, whole_ns: int | None) -> str:
    """Return the share of a growth due to one change and, if the whole is known, the contribution of the rest."""
    share = f"+{format_duration(own_ns)}"
    rest = 0 if whole_ns is None else whole_ns - own_ns
    return f"{share}, all others {'+' if rest > 0 else '−'}{format_duration(abs(rest))}" if rest else share
