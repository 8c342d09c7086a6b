"""Fields that readers rely on in the parts of plan.json that are open to additions: `power`, `solver` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from socsched.descriptor.limits import Amount, Line, Positive, Real, Rows

Terms = Annotated[tuple[tuple[Line, Real], ...], Rows]


@dataclass(frozen=True, slots=True)
class Head:
    """The version, checked before anything else."""

    schema_version: Literal["1"]


@dataclass(frozen=True, slots=True)
class Power:
    """Mean power and the mode's cap, mW."""

    expected_mw: Positive | None = None
    cap_mw: Positive | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """DRAM traffic and the mode's capacity, GB/s."""

    expected_gbps: Positive | None = None
    cap_gbps: Positive | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class ModeFound:
    """The search result in a power mode."""

    verdict: Line | None = None
    value: Real | None = None


@dataclass(frozen=True, slots=True)
class Solver:
    """How the plan was found."""

    name: Line = ""
    status: Line | None = None
    objective: Line | None = None
    value: Real | None = None
    bound: Real | None = None
    gap: Real | None = None
    overrun: Real | None = None
    seconds: Positive | None = None
    evaluated: Amount | None = None
    modes: Mapping[Line, ModeFound] = field(default_factory=dict)
    notes: Mapping[Line, Line] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tie:
    """An alternative place that differs by less than the error."""

    stage: Line
    instead: Line
    difference: Real
    error: Real


@dataclass(frozen=True, slots=True)
class Wish:
    """The measurement to make first."""

    stage: Line
    engine: Line
    precision: Line
    low_ns: Real
    high_ns: Real
    why: Line


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Choices left open by the errors of costs."""

    objective: Line | None = None
    ties: Annotated[tuple[Tie, ...], Rows] = ()
    measure: Wish | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Share of the critical path by kind of figure, and the resulting error."""

    critical_path: Mapping[Line, Positive] | None = None
    error: Positive | None = None


@dataclass(frozen=True, slots=True)
class Contention:
    """DRAM contention model; its parameters are checked by the model."""

    model: Line = ""
    parameters: Mapping[Line, Any] = field(default_factory=dict)
    engines: Mapping[Line, Line] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summaries:
    """All summaries, as fields of plan.json."""

    power: Power
    bandwidth: Bandwidth
    solver: Solver
    contention: Contention = field(default_factory=Contention)
    provenance: Evidence = field(default_factory=Evidence)
    uncertainty: Uncertainty = field(default_factory=Uncertainty)
