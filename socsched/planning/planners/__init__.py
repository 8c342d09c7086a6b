"""Planners that propose where the stages of a pipeline run, as alternatives to socsched's own search.

A planner is one `Planner` in a file of its own, after one paper.  Its proposal becomes an ordinary plan
(`propose.make_plan`): the same bounds judge it, the same simulator runs it.  Third parties register a `Planner` under
the entry-point group ``socsched.planners``; docs/planning.md shows how to write one.

The built-in search maps the stages that a planner leaves open, so that comparisons isolate what the paper contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from socsched import plugins
from socsched.cost.cost import Cost
from socsched.descriptor.limits import Json, Scalar
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.cutting.divisible import Divisible, Legs
from socsched.planning.cutting.search import Cutter, cutter_of
from socsched.planning.mapping.local_search import solve
from socsched.planning.workload import Workload
from socsched.units import parse_number

Value = Scalar
BUDGET = 200
"""Mappings tried for stages that a planner does not decide on."""


@dataclass(frozen=True, slots=True)
class Option:
    """A choice that a paper leaves open or a user may change: its default, which sets its type, and a line of help."""

    default: Value
    help: str

    def read(self, name: str, text: str) -> Value:
        """Return the value written as `text`; UsageError if it has another type."""
        kind = type(self.default)
        try:
            if kind is bool:
                return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
            return parse_number(text) if kind is float else kind(text)
        except (KeyError, ValueError):
            raise UsageError(f"option {name}={text}: expected {kind.__name__}", self.help) from None


@dataclass(slots=True)
class Ask:
    """A pipeline on a platform in one mode, with all stages whole; `goals` as of `socsched plan --objective`.

    `options`: all options of the planner; `seconds`: approximate limit on its time; `clock`: on its work.
    """

    pipeline: Pipeline
    workload: Workload
    goals: tuple[str, ...]
    options: Mapping[str, Any]
    seconds: float
    clock: Clock = NO_CLOCK
    _cutter: Cutter | None = None
    _rest: Mapping[str, Cost] | None = None

    @property
    def cutter(self) -> Cutter:
        """Return the cutter, which knows how networks may be cut between engines."""
        if self._cutter is None:
            self._cutter = cutter_of(self.pipeline, self.workload, self.goals)
        return self._cutter

    @property
    def networks(self) -> Mapping[str, Divisible]:
        """Return the stages that may be cut, with their units of layers and the costs of these in every place."""
        return self.cutter.stages

    def candidates(self, stage: str) -> Sequence[Cost]:
        """Return the ways to run a stage whole."""
        return self.workload.model.candidates(self.workload.graph.stage(stage))

    def rest(self) -> dict[str, Cost]:
        """Return a mapping of all stages, whole, by socsched's own search: for stages a planner does not decide on."""
        if self._rest is None:
            self._rest = solve(self.workload, self.goals, BUDGET, self.clock.part(0.5)).search.mapping
        return dict(self._rest)

    def some_networks(self, planner: str, most: int = 0) -> Mapping[str, Divisible]:
        """Return the stages that may be cut; UsageError if there are none, or more than `most`."""
        found = self.networks
        if not found:
            raise UsageError(
                f"planner {planner} cuts networks between engines, and no network of {self.pipeline.name} may be cut",
                "a stage with a network, without on_late or absolute execution times, and two engines that run it",
            )
        if most and len(found) > most:
            raise UsageError(
                f"planner {planner} is defined for {most} network, {self.pipeline.name} has {', '.join(found)}",
                "name the one to cut with -O stage=NAME; the others stay uncut",
            )
        return found


@dataclass(frozen=True, slots=True)
class Proposal:
    """A planner's answer: a mapping of the stages of `workload`, whose graph may have networks in parts.

    `facts` go into the plan's `solver` entry, as plain data.
    """

    workload: Workload
    mapping: Mapping[str, Cost]
    facts: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Planner:
    """A way to plan: `propose` answers an `Ask`; `source` is the paper, `options` the settings by name."""

    name: str
    summary: str
    propose: Callable[[Ask], Proposal]
    source: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    def settings(self, given: Mapping[str, str]) -> dict[str, Value]:
        """Return all options, those of `given` parsed from text; UsageError for an unknown one."""
        for name in given:
            if name not in self.options:
                names = ", ".join(self.options) or "none"
                raise UsageError(f"planner {self.name} has no option {name!r}", f"its options: {names}")
        read = {name: self.options[name].read(name, text) for name, text in given.items()}
        return {name: read.get(name, option.default) for name, option in self.options.items()}


def cut_proposal(ask: Ask, whole: Mapping[str, Cost], cuts: Mapping[str, Legs], **facts: Any) -> Proposal:
    """Return the proposal with some networks cut and all other stages as in `whole`; UsageError if an engine refuses.

    A single leg leaves the stage whole.
    """
    kept = {name: legs for name, legs in cuts.items() if len(legs) > 1}
    chosen = {name: cost for name, cost in whole.items() if name not in kept}
    for name, legs in cuts.items():
        if len(legs) == 1:
            place = legs[0].place
            stage = ask.workload.graph.stage(name)
            alone = ask.workload.model.at(stage, place.engine, place.precision, place.share)
            if alone is None:
                raise UsageError(f"stage {name!r} cannot run on {place.engine} in {place.precision}")
            chosen[name] = alone
    mapped = ask.cutter.mapping(chosen, kept)
    if mapped is None:
        raise UsageError(f"a part of {', '.join(kept)} cannot run on the engine chosen for it")
    return Proposal(*mapped, facts=facts)


__all__ = ["GROUP", "Ask", "Option", "Planner", "Proposal", "descriptions", "planner", "planner_names"]

GROUP = "socsched.planners"


def planner_names() -> list[str]:
    """Return the names of all planners, built in and installed."""
    return plugins.names(GROUP)


def planner(name: str) -> Planner:
    """Return the planner of this name, built in or installed; UsageError naming the known ones if there is none."""
    found: Planner = plugins.load(GROUP, name, Planner)
    return found


def descriptions() -> dict[str, str]:
    """Return a one-line summary of every known planner, by name."""
    return {name: planner(name).summary for name in planner_names()}
