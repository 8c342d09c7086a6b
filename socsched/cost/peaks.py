"""Peak arithmetic rates of a platform in a power mode: units online x clock x operations per cycle."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.descriptor.platform import Engine, Platform, PowerMode


@dataclass(frozen=True, slots=True)
class Peak:
    """Highest rate of an engine in a precision (operations/s, a multiply-add is two), dense and with sparsity."""

    engine: str
    precision: str
    dense: float
    sparse: float


def peak(engine: Engine, mode: PowerMode, precision: str) -> Peak | None:
    """Return an engine's peak in a mode, None for an unsupported precision or an engine that takes no operators."""
    declared = engine.precisions.get(precision)
    if declared is None or engine.operators.allowed == {}:
        return None
    state = mode.engines[engine.id]
    dense = state.units * state.clock_hz * declared.ops_per_cycle.value
    return Peak(engine.id, precision, dense, dense * (declared.sparsity.value if declared.sparsity else 1.0))


def peaks(platform: Platform, mode: PowerMode) -> tuple[Peak, ...]:
    """Return the peaks of every powered engine in every precision it computes in."""
    found = [peak(engine, mode, precision) for engine in platform.engines for precision in engine.precisions]
    return tuple(item for item in found if item and item.dense > 0)


def accelerator_int8_peak(platform: Platform, mode: PowerMode) -> Peak:
    """Return a module's INT8 peak as vendors state it: all engines but CPUs together."""
    kinds = {engine.id: engine.kind for engine in platform.engines}
    own = [item for item in peaks(platform, mode) if item.precision == "int8" and kinds[item.engine] != "cpu"]
    return Peak("", "int8", sum(item.dense for item in own), sum(item.sparse for item in own))
