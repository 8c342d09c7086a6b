"""Operating conditions of a pipeline: loads, rates and deadlines that differ from its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage

BASE = "base"
"""Name of the pipeline without changes."""


@dataclass(frozen=True, slots=True)
class StageChange:
    """A stage under a condition: `load`, the factor on its stated costs, further `params`, and its timer's period."""

    load: float = 1.0
    params: Mapping[str, Any] = field(default_factory=dict)
    period_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """What differs under an operating condition: periods of sensors (ns), stages, and deadlines of chains (ns)."""

    name: str
    title: str
    periods: Mapping[str, int] = field(default_factory=dict)
    stages: Mapping[str, StageChange] = field(default_factory=dict)
    deadlines: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    assumed: str = ""


def under_condition(pipeline: Pipeline, name: str) -> Pipeline:
    """Return a pipeline under one of its operating conditions, itself for `BASE`; UsageError for an unknown one."""
    if name == BASE:
        return pipeline
    condition = next((one for one in pipeline.conditions if one.name == name), None)
    if condition is None:
        names = ", ".join((BASE, *(one.name for one in pipeline.conditions)))
        raise UsageError(f"pipeline {pipeline.name!r} has no operating condition {name!r}", f"one of {names}")
    return replace(
        pipeline,
        sensors=tuple(replace(s, period_ns=condition.periods.get(s.name, s.period_ns)) for s in pipeline.sensors),
        stages=tuple(_changed(s, condition.stages.get(s.name)) for s in pipeline.stages),
        chains=tuple(replace(c, deadline_ns=condition.deadlines.get(c.name, c.deadline_ns)) for c in pipeline.chains),
    )


def _changed(stage: Stage, change: StageChange | None) -> Stage:
    if change is None:
        return stage
    return replace(
        stage,
        costs=tuple(replace(anchor, scale=anchor.scale * change.load) for anchor in stage.costs),
        params={**stage.params, **change.params},
        period_ns=stage.period_ns if change.period_ns is None else change.period_ns,
    )
