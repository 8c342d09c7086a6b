"""The internal model of a study: parameters, sampling, simulation and acceptance criteria; a fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.descriptor.distribution import Distribution

NAMED = ("platform", "mode", "pipeline", "objective", "policy", "faults", "load", "seed")
"""Parameters by name, in addition to ``rate.SOURCE``, ``platform.FIELD`` and ``pipeline.FIELD``."""
PATHS = ("rate.", "platform.", "pipeline.")
ALL = "all"
"""Value of `mode` that stands for every power mode of the platform."""
DESIGNS = ("grid", "random", "latin-hypercube", "halving")
SMALLEST = ("platform_tdp_mw", "tdp_mw", "price", "planned_power_mw", "latency_ns", "energy_mj_per_round", "power_mw")
"""Columns by which the smallest configuration can be chosen."""


ALWAYS_AS_PLANNED = Distribution((1_000_000,), "1")
"""Load, in millionths, of a vehicle whose jobs take their planned times."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A varied parameter: listed `values` as in the file, or from `low` to `high` in `steps` (0: continuous).

    `dimension` of `units.UNITS` for quantities, else empty; `low` and `high` are in its base unit.  `log`: steps and
    density are uniform in the logarithm.
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    steps: int = 0
    log: bool = False
    dimension: str = ""

    @property
    def listed(self) -> bool:
        """Return whether the parameter lists its values rather than giving a range."""
        return bool(self.values)


@dataclass(frozen=True, slots=True)
class Design:
    """How configurations are chosen: `kind` of `DESIGNS`, `points` of them unless it is a grid, drawn from `seed`.

    Halving starts with a sample of `start` (a grid where that is "grid"), keeps the best fraction `keep` in every round
    and simulates it 1 / `keep` times as often in the next, from `first` runs up to all.
    """

    kind: str = "grid"
    points: int = 0
    seed: int = 0
    start: str = "grid"
    keep: float = 0.5
    first: int = 1


@dataclass(frozen=True, slots=True)
class Simulate:
    """How a configuration is simulated: up to `runs` times `duration_ns`, with consecutive seeds.

    With `settle` runs stop once the verdict on misses is settled with `confidence`.
    """

    duration_ns: int = 10 * 10**9
    runs: int = 1
    settle: bool = True
    confidence: float = 0.99


@dataclass(frozen=True, slots=True)
class Holds:
    """Requirements on a configuration in addition to a feasible plan; None: no requirement.

    `slack`: least share of its deadline that the bound of every chain leaves; `growth`: factor by which all WCETs can
    grow with every deadline still proved; `misses`: largest share of frames late or dropped in simulation.
    """

    slack: float | None = None
    growth: float | None = None
    misses: float | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Boards for measurements: tracker key by platform, priority and timeout of a request, repeats of a stage."""

    keys: Mapping[str, str] = field(default_factory=dict)
    priority: int = 1
    timeout_s: int = 120
    repeat: int = 10
    choose: str = "front"


@dataclass(frozen=True, slots=True)
class Thermal:
    """A module and its heat sink as one lumped mass: thermal resistance (mK/W) and time constant (ns).

    `trip_mc`: throttling temperature (thousandths of a degree Celsius), 0: the platform's.
    """

    resistance_mk_per_w: int
    time_constant_ns: int
    trip_mc: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet of differing vehicles: each draws a load (factor on execution times), ambient temperature, fault rate.

    `duration_ns` of simulated driving each; `faults_per_minute` of the kinds `kinds` (empty: all); `worst`: how many of
    the worst are listed; `vehicle_hours`: extrapolation target.
    """

    vehicles: int
    duration_ns: int
    seed: int = 0
    load: Distribution = ALWAYS_AS_PLANNED
    ambient_mc: Distribution | None = None
    thermal: Thermal | None = None
    faults_per_minute: Distribution | None = None
    kinds: tuple[str, ...] = ()
    confidence: float = 0.95
    worst: int = 10
    vehicle_hours: int = 1_000_000


@dataclass(frozen=True, slots=True)
class Study:
    """Parameters and the evaluation of every combination; `prices` by platform, in a currency of the user's choice."""

    name: str
    title: str
    parameters: tuple[Parameter, ...]
    design: Design = Design()
    simulate: Simulate = Simulate()
    holds: Holds = Holds()
    smallest: tuple[str, ...] = SMALLEST[:2]
    cuts: bool = True
    prices: Mapping[str, float] = field(default_factory=dict)
    measure: Measure = Measure()
    fleet: Fleet | None = None
    file: str = ""

    def parameter(self, name: str) -> Parameter | None:
        """Return a parameter by name, None if it does not vary."""
        return next((parameter for parameter in self.parameters if parameter.name == name), None)
