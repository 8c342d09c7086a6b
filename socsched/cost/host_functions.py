"""Times of host functions: as an engine declares them, or from times measured on one CPU core scaled to another's.

A time stated for one size grows with the work its operator counts (points, anchors, pixels) and is inversely
proportional to units times clock.  On CPUs the reference times of `MEASURED` scale with 7-zip MIPS of one
core, as anchors do; a pipeline's own anchors precede them.

Units times clock carries CUDA-PointPillars' post-processing from AGX Orin to Xavier within 0.1 %, its voxelisation
within 9 %.  Rejected: anchors of a stage for every board (the same figures in five pipelines), roofs of bytes,
operations and atomics (CUDA-PointPillars' decode takes 70 times its traffic), a fixed-function engine with an invented
second half: work that it does in part is a stage of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from socsched.cost.cost import CARRIES, TRANSFER_ERROR, Segment, error_of, weakest
from socsched.cost.roofline import Estimate, launches_per_operator
from socsched.descriptor.platform import Engine, EngineMode, Figure, FunctionCost
from socsched.graph.operators import Operator, StageWork

LEAST = 0.1
"""Least share of the stated time that a smaller job takes."""


def device_function(work: StageWork) -> Operator | None:
    """Return the function of a stage that engines can declare, None for any other stage."""
    return next((op for op in work.operators if op.kind == "function" and op.device), None)


def declared(work: StageWork, engine: Engine) -> FunctionCost | None:
    """Return what an engine declares of the function of a stage, None if nothing."""
    function = device_function(work)
    return engine.functions.get(function.device) if function else None


def computable(work: StageWork, engine: Engine) -> bool:
    """Return whether the time of a host function on an engine is computable, rather than bounded by a roofline."""
    function = device_function(work)
    measured = function is not None and engine.operators.host_code and function.device in MEASURED
    return measured or declared(work, engine) is not None


def estimate(work: StageWork, engine: Engine, state: EngineMode, units: int, bandwidth: float) -> Estimate | None:
    """Return the time of a host function on `units` units of an engine, None if no figure applies.

    Traffic cannot exceed `bandwidth` (bytes/s).
    """
    function = device_function(work)
    if function is None:
        return None
    if function.device in engine.functions:
        cost = engine.functions[function.device]
        slower = (cost.units or engine.units) * engine.clock_hz.value / (units * state.clock_hz)
        computable = _timed(cost, function, slower, slower != 1, "")
    elif engine.operators.host_code and function.device in MEASURED:
        computable = _on_core(function, engine, state)
        cost = MEASURED[function.device]
    else:
        return None
    time_ns, kind, source, error = computable
    return Estimate(_segments(work, function, cost, time_ns, engine, bandwidth), kind, source, error)


def _on_core(function: Operator, engine: Engine, state: EngineMode) -> tuple[int, str, str, float]:
    """Return time, kind, source and error of a function on one core; without a 7-zip score as on the reference core."""
    cost, speed = MEASURED[function.device], engine.performance
    if speed is None:
        time_ns, _, source, error = _timed(cost, function, 1.0, True, SOURCE)
        return time_ns, "assumed", source, error + TRANSFER_ERROR
    slower = MIPS.value / speed.value * engine.clock_hz.value / state.clock_hz
    time_ns, kind, _, error = _timed(cost, function, slower, True, SOURCE)
    return time_ns, kind, f"{SOURCE}, scaled by {slower:.3g} (7-zip)", error + TRANSFER_ERROR


def _timed(
    cost: FunctionCost, function: Operator, slower: float, moved: bool, source: str
) -> tuple[int, str, str, float]:
    """Return time (ns), kind, source and error of a job; `moved`: to another clock, core or number of units."""
    parts: list[tuple[float, Figure]] = [(cost.time_ns.value, cost.time_ns)]
    for name, slope in cost.per_million.items():
        parts.append(((function.attrs.get(name, cost.work[name]) - cost.work[name]) / 1e6 * slope.value, slope))
    total = max(sum(time for time, _ in parts), LEAST * cost.time_ns.value)
    kinds = [figure.kind for time, figure in parts if abs(time) >= CARRIES * total]
    error = sum(abs(time) * error_of(figure) for time, figure in parts) / sum(abs(time) for time, _ in parts)
    kind = weakest([*kinds, "derived"] if moved else kinds)
    named = source or ", ".join(dict.fromkeys(figure.source for _, figure in parts if figure.source))
    return max(round(total * slower), 1), kind, named, error + TRANSFER_ERROR * moved


def _segments(
    work: StageWork, function: Operator, cost: FunctionCost, time_ns: int, engine: Engine, bandwidth: float
) -> tuple[Segment, ...]:
    """Cut a job into its kernels on engines that launch every operator."""
    count = cost.kernels if launches_per_operator(engine) else 1
    fixed = min(round(engine.launch_ns.value), time_ns // (2 * count))
    made, done, moved = [], 0, 0
    size = min(function.bytes, int((time_ns - fixed * count) * bandwidth / 1e9))
    for number in range(1, count + 1):
        end, upto = math.ceil(time_ns * number / count), size * number // count
        name = f"{work.stage}.{number - 1}" if count > 1 else work.stage
        made.append(Segment(name, max(end - done, 1), fixed, upto - moved))
        done, moved = end, upto
    return tuple(made)


SOURCE = (
    "measured with tools.bench.host_table on one virtual core of an Intel Xeon (Sapphire Rapids), vectors of 128 bits"
)
MIPS = Figure(3375, "measured", SOURCE, "7-zip 16.02, 7za b -mmt1, median of four runs from 3322 to 3456")
"""7-zip MIPS of the reference core, on the scale of `Engine.performance`."""


def _figure(milliseconds: float) -> Figure:
    return Figure(milliseconds * 1e6, "measured", SOURCE, "2026-11-26, processor time, median of four runs", 0.3)


# Printed by tools.bench.host_table, which measures them; 7-zip is run on the same core.
MEASURED: Mapping[str, FunctionCost] = {
    "voxelise": FunctionCost(
        _figure(0.298), {"points": 20000, "pillars": 6000}, {"points": _figure(6.2), "pillars": _figure(30.2)}
    ),
    "anchor-decode": FunctionCost(
        _figure(0.345),
        {"anchors": 321408, "candidates": 100},
        {"anchors": _figure(0.54), "candidates": _figure(630)},
    ),
    "center-decode": FunctionCost(_figure(0.816), {"candidates": 500}, {"candidates": _figure(411)}),
    "camera-preprocess": FunctionCost(_figure(0.678), {"output_pixels": 245760}, {"output_pixels": _figure(4.09)}),
    "camera-resize": FunctionCost(_figure(7.61), {"output_pixels": 245760}, {"output_pixels": _figure(27.9)}),
    "camera-normalise": FunctionCost(_figure(0.447), {"output_pixels": 245760}, {"output_pixels": _figure(1.85)}),
    "camera-decode": FunctionCost(_figure(0.102), {"candidates": 100}, {"candidates": _figure(65)}),
}
"""Function -> its time on the reference core."""
