"""What was asked of two plans, compared: which requirements changed, and which of them ask for less.

A requirement is weaker if every plan that meets the old one meets the new one too, or if it takes less on: a later
deadline, a shorter path, a slower sensor, a data type or an engine more to choose from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from socsched.descriptor.pipeline import PER_POINT, Chain
from socsched.models.parts import uncut
from socsched.planning.plan import Plan
from socsched.planning.requirements import AUTO, PIPELINE, PLATFORM, Requirement, of_chain
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
    return tuple(_changes(before, after, renamed))


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


def _changes(before: Rows, after: Rows, renamed: Mapping[str, str]) -> Iterator[RequirementChange]:
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
