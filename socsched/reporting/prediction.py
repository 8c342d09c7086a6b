"""Plan, simulation and run of one deployment in one table: predicted figures, measured figures, and the errors.

The error of a figure is |predicted - measured| / measured; the prediction is that of the simulation if available, else
that of the plan.  A run agrees with its prediction if the mean error over chains of p50 and of p99, the mean error of
the stages' medians, and the share of frames lost in excess of the prediction are each within their tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from socsched.planning.plan import Plan
from socsched.reporting.view_model import planned_quantile

FIGURES = ("p50", "p99", "p99_9")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Largest mean errors (0.05 is 5 %), and the largest share of frames lost in excess of the prediction."""

    p50: float = 0.05
    p99: float = 0.15
    stages: float = 0.10
    lost: float = 0.001


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of a stage, a chain or the whole, as planned, simulated and measured (ns, or mJ for energy)."""

    what: str
    name: str
    figure: str
    planned: float | None
    simulated: float | None
    measured: float | None

    @property
    def predicted(self) -> float | None:
        """Return the value that the measurement is compared with."""
        return self.simulated if self.simulated is not None else self.planned

    @property
    def error(self) -> float | None:
        """Return the signed error of the prediction relative to the measurement."""
        if self.predicted is None or not self.measured:
            return None
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Prediction:
    """All lines, the mean errors by subject, and the errors beyond their tolerance."""

    lines: tuple[Line, ...]
    errors: Mapping[str, float | None]
    beyond: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        lines = [{**asdict(line), "error": line.error} for line in self.lines]
        return {"lines": lines, "mean_absolute_errors": dict(self.errors), "beyond": list(self.beyond)}


def predict(
    plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any], tolerance: Tolerance | None = None
) -> Prediction:
    """Line up a plan, the result of its simulation (or None) and that of its run."""
    allowed = tolerance or Tolerance()
    lines = (*_stages(plan, simulated, measured), *_chains(plan, simulated, measured), _energy(simulated, measured))
    errors = {
        "chain p50": _mean(lines, "chain", "p50"),
        "chain p99": _mean(lines, "chain", "p99"),
        "stage p50": _mean(lines, "stage", "p50"),
    }
    limits = {"chain p50": allowed.p50, "chain p99": allowed.p99, "stage p50": allowed.stages}
    beyond = [
        f"{name}: mean error {error:.1%}, {limits[name]:.1%} allowed"
        for name, error in errors.items()
        if error is not None and error > limits[name]
    ]
    return Prediction(lines, errors, (*beyond, *_lost(plan, simulated, measured, allowed.lost)))


def _stages(plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Iterator[Line]:
    for task in plan.tasks:
        for figure in ("p50", "p99"):
            figures = [_figure(result, "stages", task.name, "exec_ns", figure) for result in (simulated, measured)]
            yield Line("stage", task.name, figure, planned_quantile(task, int(figure[1:])), *figures)


def _chains(plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Iterator[Line]:
    for chain in plan.chains:
        for figure in FIGURES:
            figures = [
                _figure(result, "chains", chain.name, "response_time_ns", figure) for result in (simulated, measured)
            ]
            # a bound does not predict a percentile: list it next to the largest one only if no other prediction exists
            yield Line("chain", chain.name, figure, chain.expected_ns if figure == "p50" else None, *figures)


def _energy(simulated: Mapping[str, Any] | None, measured: Mapping[str, Any]) -> Line:
    """Return the energy per second, as runs and simulations differ in length: mJ per second is mW."""
    return Line("energy", "module", "mW", None, _power(simulated), _power(measured))


def _power(result: Mapping[str, Any] | None) -> float | None:
    energy, duration = (result or {}).get("energy_mj"), (result or {}).get("duration_ns")
    return energy / (duration / 1e9) if energy is not None and duration else None


def _figure(result: Mapping[str, Any] | None, group: str, name: str, key: str, figure: str) -> float | None:
    entry = (result or {}).get(group, {}).get(name, {})
    value = (entry.get(key) or {}).get(figure)
    return None if value is None else float(value)


def _mean(lines: Sequence[Line], what: str, figure: str) -> float | None:
    errors = [
        abs(line.error) for line in lines if (line.what, line.figure) == (what, figure) and line.error is not None
    ]
    return sum(errors) / len(errors) if errors else None


def _lost(
    plan: Plan, simulated: Mapping[str, Any] | None, measured: Mapping[str, Any], allowed: float
) -> Iterator[str]:
    for chain in plan.chains:
        measured_share = _share((measured.get("chains") or {}).get(chain.name, {}))
        predicted_share = _share(((simulated or {}).get("chains") or {}).get(chain.name, {}))
        if measured_share > predicted_share + allowed:
            text = f"{measured_share:.2%} of the frames late or dropped, {predicted_share:.2%} predicted"
            yield f"{chain.name}: {text}, {allowed:.2%} more allowed"


def _share(chain: Mapping[str, Any]) -> float:
    released = chain.get("released") or 0
    return (chain.get("missed", 0) + chain.get("dropped", 0)) / released if released else 0.0
