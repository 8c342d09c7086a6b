"""Diff of two plans of one workload: requirements, differing figures, regressions, the change responsible for each.

A bound's change is attributed by its terms, a conversion's to the end that moved; planning again with one move undone
would take a search for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from typing import Any, Literal

from socsched.descriptor.pipeline import PER_POINT, Chain
from socsched.models.parts import uncut
from socsched.planning.plan import (
    AUTO,
    PIPELINE,
    PLATFORM,
    SOURCES,
    Bandwidth,
    ChainResult,
    Plan,
    Power,
    Requirement,
    Task,
    of_chain,
)
from socsched.reporting import view_model
from socsched.units import format_bandwidth, format_duration, format_power, format_size

Sense = Literal["weaker", "stronger", "changed"]
Rows = dict[str, dict[str, Requirement]]
"""The requirements of a plan by subject and kind."""

_WEAKER_ABOVE = {
    "deadline": inf, "max age": inf, "period": inf, "sporadic": 0, "queue": inf, "accuracy budget": inf,
    "power cap": inf, "bandwidth cap": inf, "memory": inf,
}  # fmt: skip
"""Kinds that are weaker the larger they are, with the value of one that is not stated."""
_WEAKER_BELOW = {"jitter": 0, "frame size": 0}
"""Kinds that are weaker the smaller they are, likewise."""
_STRICTNESS = {
    "criticality": {"hard": 2, "firm": 1, "soft": 0},
    "on late": {"": 2, "continue": 2, "degrade": 1, "skip": 0, "abort": 0},
    "costs": {"upper-ends": 1, "": 0},
}
"""Kinds whose values have an order, with the value of one that is not stated as ""."""
_FORMATS = {
    **dict.fromkeys(("deadline", "max age", "period", "sporadic", "offset", "jitter"), format_duration),
    **dict.fromkeys(("frame size", "memory"), format_size),
    "power cap": format_power,
    "bandwidth cap": format_bandwidth,
}
_IN_PLANS = {"path", "deadline", "max age", "period", "jitter", "sporadic", "frame size", "power cap"}
"""Kinds that a plan tells without a list of its requirements, as plans had none before they were listed."""


@dataclass(frozen=True, slots=True)
class RequirementChange:
    """A requirement that differs between two plans; `before` or `after` is "" where that plan lacks the subject."""

    subject: str
    kind: str
    before: str
    after: str
    sense: Sense

    def told(self) -> str:
        """Return the change in words."""
        if self.kind == "":
            return f"{self.subject} is removed" if self.before else f"{self.subject} is new"
        became = " became " if self.kind == "path" else " → "
        return f"{self.kind} of {self.subject}: {self.before}{became}{self.after}"

    def named(self, allowed: Iterable[str]) -> bool:
        """Return whether one of the names in `allowed` is that of this requirement.

        A name is the subject ("detection", "chain detection"), or the subject and the kind ("detection.deadline"); of
        the platform and the pipeline the kind alone does ("power-cap").
        """
        bare = self.subject.partition(" ")[2]
        names = (self.subject, bare, f"{self.subject}.{self.kind}", f"{bare}.{self.kind}" if bare else self.kind)
        return bool({name.replace("-", " ") for name in names if name} & {name.replace("-", " ") for name in allowed})


def requirement_changes(a: Plan, b: Plan) -> tuple[RequirementChange, ...]:
    """Return the requirements that differ, in the order of the plans."""
    listed = bool(a.requirements and b.requirements)
    before, after = (_rows(plan.requirements or _told_by(plan), listed) for plan in (a, b))
    if a.platform != b.platform:
        before.pop(PLATFORM, None)
        after.pop(PLATFORM, None)
    elif a.mode != b.mode and (not listed or AUTO in (_mode(before), _mode(after))):
        for rows in (before, after):  # the cap of a mode that the planner chose asks for nothing
            rows.get(PLATFORM, {}).pop("power cap", None)
    renamed = _renamed(before, after)
    return tuple(_requirement_changes(before, after, renamed))


def _mode(rows: Rows) -> str:
    mode = rows.get(PLATFORM, {}).get("mode")
    return mode.names[0] if mode and mode.names else AUTO


def _rows(requirements: Iterable[Requirement], listed: bool) -> Rows:
    rows: Rows = {}
    for one in requirements:
        if listed or one.kind in _IN_PLANS:
            rows.setdefault(one.subject, {})[one.kind] = one
    return rows


def _told_by(plan: Plan) -> Iterator[Requirement]:
    """Yield the requirements that can be told from the plan itself."""
    whole = {task.name: uncut(task.name, task.params) for task in plan.tasks if task.kind == "stage"}
    for chain in plan.chains:
        path = tuple(dict.fromkeys(whole.get(name, name) for name in chain.path))
        yield from of_chain(Chain(chain.name, path, chain.deadline_ns, chain.max_age_ns))
    for sensor in plan.sensors:
        times = {"period": sensor.period_ns, "jitter": sensor.jitter_ns, "sporadic": sensor.gap_ns}
        for kind, value in (times | {"frame size": sensor.bytes_per_frame}).items():
            if value:
                yield Requirement(f"sensor {sensor.name}", kind, value)
    for task in plan.tasks:
        if task.timer:
            yield Requirement(f"stage {task.name}", "period", task.period_ns)
    if plan.power.cap_mw is not None:
        yield Requirement(PLATFORM, "power cap", round(plan.power.cap_mw))


def _renamed(before: Rows, after: Rows) -> Mapping[str, str]:
    """Return new name -> old name of the stages and sensors that are the same under another name.

    They take each other's place: one is gone, the other new, and what is required of them is the same.
    """
    gone = [subject for subject in before if subject not in after]
    names: dict[str, str] = {}
    for subject in (subject for subject in after if subject not in before):
        sort = subject.partition(" ")[0]
        for old in gone:
            same = sort != "chain" and old.partition(" ")[0] == sort and _equal(before[old], after[subject])
            if same:
                gone.remove(old)
                names[subject] = old
                break
    return names


def _equal(a: Mapping[str, Requirement], b: Mapping[str, Requirement]) -> bool:
    return {kind: (one.value, one.names) for kind, one in a.items()} == {
        kind: (one.value, one.names) for kind, one in b.items()
    }


def _requirement_changes(before: Rows, after: Rows, renamed: Mapping[str, str]) -> Iterator[RequirementChange]:
    whole = (PLATFORM, PIPELINE)
    for subject in dict.fromkeys([*before, *after]):
        if subject in renamed.values():
            continue
        old, new = before.get(subject, {}), after.get(subject, {})
        if subject in renamed:
            bare, was = (name.partition(" ")[2] for name in (subject, renamed[subject]))
            yield RequirementChange(subject, "name", was, bare, "changed")
        elif not new and subject not in whole:
            yield RequirementChange(subject, "", "required", "", "weaker")
        elif not old and subject not in whole:
            yield RequirementChange(subject, "", "", "required", "stronger")
        else:
            for kind in dict.fromkeys([*old, *new]):
                change = _change(subject, kind, old.get(kind), new.get(kind), renamed)
                if change is not None:
                    yield change


def _change(
    subject: str, kind: str, old: Requirement | None, new: Requirement | None, renamed: Mapping[str, str]
) -> RequirementChange | None:
    if new is not None and kind == "path":
        names = {fresh.partition(" ")[2]: was.partition(" ")[2] for fresh, was in renamed.items()}
        new = replace(new, names=tuple(names.get(name, name) for name in new.names))
    a, b = ((None, ()) if one is None else (one.value, one.names) for one in (old, new))
    if a == b:
        return None
    return RequirementChange(subject, kind, *_shown(kind, old, new), _sense(kind, *a, *b))


def _sense(kind: str, old: int | None, were: tuple[str, ...], new: int | None, names: tuple[str, ...]) -> Sense:
    """Return whether a kind of requirement became weaker from a value, or names, to another."""
    a: float
    b: float
    if kind == "path":
        return "stronger" if _within(were, names) else "weaker"
    if kind in ("precisions", "engines"):
        # engines that are not stated are all of them
        more, less = (not names or set(names) > set(were)) and were, (not were or set(names) < set(were)) and names
        if more or less:
            return "weaker" if more else "stronger"
        return "changed" if set(names) == set(were) else "weaker"
    if kind in _STRICTNESS:
        rank = _STRICTNESS[kind]
        a, b = (rank.get("".join(value), 0) for value in (were, names))
    elif kind in _WEAKER_ABOVE:
        a, b = (-(_WEAKER_ABOVE[kind] if value is None else value) for value in (old, new))
    elif kind in _WEAKER_BELOW:
        a, b = (_WEAKER_BELOW[kind] if value is None else value for value in (old, new))
    else:
        return "changed"
    return "weaker" if b < a else "stronger" if b > a else "changed"


def _within(part: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Return whether a path goes through all of `part`, in its order."""
    left = iter(path)
    return all(name in left for name in part)


def _shown(kind: str, old: Requirement | None, new: Requirement | None) -> tuple[str, str]:
    """Return two values as text, with as many digits as it takes to tell them apart."""
    for digits in (4, 9, 19):
        before, after = (_text(kind, one, digits) for one in (old, new))
        if before != after:
            break
    return before, after


def _text(kind: str, one: Requirement | None, digits: int) -> str:
    if one is None:
        return {"engines": "any", "queue": "chosen by the planner", "on late": "continue", "overflow": "newest"}.get(
            kind, "none"
        )
    if one.value is None:
        return (" → " if kind == "path" else ", ").join(one.names)
    if kind.startswith("accuracy"):
        return f"{one.value / PER_POINT:g} points"
    show = _FORMATS.get(kind)
    return show(one.value, digits) if show else str(one.value)


@dataclass(frozen=True, slots=True)
class Slack:
    """The slack of a chain and the one required (ns); None where the chain has no bound."""

    chain: str
    slack_ns: int | None
    required_ns: int

    @property
    def short(self) -> bool:
        """Return whether there is less slack than required."""
        return self.slack_ns is None or self.slack_ns < self.required_ns

    def told(self) -> str:
        """Return the slack in words."""
        has = "no bound" if self.slack_ns is None else f"slack {format_duration(self.slack_ns)}"
        return f"{self.chain}: {has}, required {format_duration(self.required_ns)}"


def slack_of(plan: Plan, part: float, least_ns: int) -> tuple[Slack, ...]:
    """Return the slack of every chain, of which `part` of its deadline and `least_ns` are required."""
    return tuple(
        Slack(
            chain.name,
            None if chain.bound_ns is None else chain.deadline_ns - chain.bound_ns,
            max(round(part * chain.deadline_ns), least_ns),
        )
        for chain in plan.chains
    )


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
