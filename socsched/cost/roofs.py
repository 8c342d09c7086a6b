"""Rooflines of a platform in a mode, and the position of pipeline stages under them: numbers, no drawing.

Williams, Waterman, Patterson, "Roofline", CACM 52(4) 2009: attainable rate = min(peak, intensity x bandwidth).
Peak arithmetic rates are units online x clock x operations per cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.model import CostModel, WorkOf
from socsched.cost.power import dram_capacity
from socsched.cost.roofline import efficiency
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, Platform, PowerMode
from socsched.errors import CompileError


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


PRECISIONS = ("fp32", "fp16", "int8")


@dataclass(frozen=True, slots=True)
class Roof:
    """Limits of one engine group in a precision: `peak` and `reached` (convolutions) operations/s, and bytes/s.

    `engines` are identical, and one represents the group; `bandwidth` is that of one engine alone, or the mode's memory
    bandwidth if less.
    """

    engines: tuple[str, ...]
    precision: str
    peak: float
    reached: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """Return the intensity (operations/byte) above which arithmetic is the limit."""
        return self.peak / self.bandwidth

    def attainable(self, intensity: float) -> float:
        """Return the highest rate (operations/s) at an arithmetic intensity (operations/byte)."""
        return min(self.peak, intensity * self.bandwidth)


@dataclass(frozen=True, slots=True)
class Point:
    """A stage on an engine: intensity (operations/byte), attainable and predicted rate (operations/s)."""

    stage: str
    engine: str
    precision: str
    intensity: float
    attainable: float
    predicted: float


def roofs(
    platform: Platform, mode: PowerMode, precisions: Sequence[str] = PRECISIONS, engine: str | None = None
) -> tuple[Roof, ...]:
    """Return a roof for every group of identical powered engines and each precision they support."""
    found: dict[tuple[str, float, float, float, str], list[str]] = {}
    for item in platform.engines:
        if mode.engines[item.id].units == 0 or (engine and engine not in (item.id, item.kind)):
            continue
        for precision in precisions:
            roof = _roof(item, mode, precision, dram_capacity(platform, mode))
            if roof:
                key = (item.title, roof.peak, roof.reached, roof.bandwidth, precision)
                found.setdefault(key, []).append(item.id)
    return tuple(
        Roof(tuple(ids), precision, top, reached, bandwidth)
        for (_, top, reached, bandwidth, precision), ids in found.items()
    )


def _roof(engine: Engine, mode: PowerMode, precision: str, dram: float) -> Roof | None:
    top = peak(engine, mode, precision)
    if top is None:
        return None
    described = engine.precisions[precision]
    share = efficiency(described, "conv2d").value
    stated = described.ops_per_cycle.value
    # A runtime may compute faster than the data type's own units: TF32 on tensor cores for fp32.
    faster = max([stated, *(fit.ops_per_cycle for fit in described.fitted)]) / stated
    return Roof((engine.id,), precision, top.dense * faster, top.dense * share, min(engine.bandwidth.value, dram))


def points(
    pipeline: Pipeline, platform: Platform, mode: PowerMode, shown: Sequence[Roof], work: WorkOf
) -> tuple[Point, ...]:
    """Return a point for every stage with an operation count, on every engine and precision of `shown` that can run it.

    The share is the largest an engine offers the stage; `predicted` is operations over the cost model's time.
    """
    model = CostModel(platform, mode, work)
    found = []
    for stage in pipeline.stages:
        best = {(c.engine, c.precision): c for c in sorted(model.candidates(stage), key=lambda c: c.share)}
        for roof in shown:
            cost = best.get((roof.engines[0], roof.precision))
            try:
                done = model.work_of(stage, roof.precision) if cost else None
            except CompileError:
                done = None
            if cost is None or done is None or not done.flops or not done.bytes:
                continue
            # What a fit keeps on chip is no traffic.
            fitted = done.passes and platform.engine(roof.engines[0]).precisions[roof.precision].fitted
            intensity = done.flops / ((fitted and cost.bytes) or done.bytes)
            rate = done.flops / cost.time_ns * 1e9
            attainable = roof.attainable(intensity)
            found.append(Point(stage.name, roof.engines[0], roof.precision, intensity, attainable, rate))
    return tuple(found)
