"""What a plan's figures amount to: mean power and traffic, what they rest on, and what their errors leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from socsched.descriptor.limits import Line, NonNegative, Number, Objective, Rows

Terms = Annotated[tuple[tuple[Line, Number], ...], Rows]
"""The parts of a sum by name."""


@dataclass(frozen=True, slots=True)
class Power:
    """Expected mean power and the cap of the mode or the user (mW); None if unknown, or without a cap.

    `terms`: base, idle, dynamic and DRAM power, which add up to the mean.
    """

    expected_mw: NonNegative | None = None
    cap_mw: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Expected mean DRAM traffic and its limit (GB/s), None if unknown; `terms`: the traffic of tasks and sensors."""

    expected_gbps: NonNegative | None = None
    cap_gbps: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a plan keeps in main memory, and those it may have; None if unknown.

    `terms`: weights, activations and buffers by stage and sensor, which add up to `needed_bytes`.
    """

    needed_bytes: NonNegative | None = None
    capacity_bytes: NonNegative | None = None
    terms: Terms = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The figures behind the time on the chains' critical paths.

    `critical_path`: the share of that time by kind of figure (0 to 1); `error`: its relative error.  None if unknown.
    """

    critical_path: Mapping[Line, NonNegative] | None = None
    error: NonNegative | None = None


@dataclass(frozen=True, slots=True)
class Tie:
    """A place for a stage that is better or worse than the planned one by less than the error of the costs.

    `difference` and `error` have the unit of the objective: ns, mW for energy, a share for throughput.
    """

    stage: Line
    instead: Line
    difference: Number
    error: Number


@dataclass(frozen=True, slots=True)
class Measurement:
    """The cost to measure first: its estimate and interval (ns), and the effect that measuring it may have.

    `verdict_flips`: chance that it overturns the verdict (0 to 1); `gain`: otherwise, the expected gain in the
    objective.
    """

    stage: Line
    engine: Line
    precision: Line
    estimate_ns: Number
    low_ns: Number
    high_ns: Number
    verdict_flips: Number
    gain: Number
    why: Line


@dataclass(frozen=True, slots=True)
class Condition:
    """The break-even of a chain: the mapping is feasible while `stage` takes at most `factor` times its stated cost.

    `stage` is the one on the chain's path whose interval reaches furthest (ns); it ends at `interval` times the cost.
    Factors are rounded down, and beyond them some requirement of the plan is not proved.
    """

    chain: Line
    stage: Line
    factor: Number
    interval: Number


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """Choices that the errors of costs leave open under an objective, None if they were not examined.

    Of a feasible plan: the `conditions` of its proof, one for every chain, and `upper`, the verdict with all costs at
    the upper ends of their intervals at once; local deadlines and priorities are set anew for other costs.
    `unchanged`: what no single cost, measured anywhere within its interval, would change: the ``verdict`` (of a plan
    that is not feasible, with one stage at any place and the others as planned), the ``choice`` of places under the
    objective.  Neither is listed if not all costs were examined.
    """

    objective: Objective | None = None
    ties: Annotated[tuple[Tie, ...], Rows] = ()
    measure: Measurement | None = None
    conditions: Annotated[tuple[Condition, ...], Rows] = ()
    upper: Line | None = None
    unchanged: tuple[Line, ...] = ()
