"""Times of host functions: as an engine declares them, or from times measured on one CPU core scaled to another's.

A time stated for one size grows with the work its operator counts (points, anchors, pixels) and is inversely
proportional to units times clock.  On CPUs the reference times of `cost.host_functions` scale with 7-zip MIPS of one
core, as anchors do (docs/design.md, decisions 12 and 71).
"""

from __future__ import annotations

import math

from socsched.cost.cost import Segment
from socsched.cost.figures import CARRIES, TRANSFER_ERROR, error_of, weakest
from socsched.cost.host_functions import MEASURED, MIPS, SOURCE
from socsched.cost.roofline import Estimate, launches_per_operator
from socsched.descriptor.functions import FunctionCost
from socsched.descriptor.platform import Engine, EngineMode, Figure
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


def known(work: StageWork, engine: Engine) -> bool:
    """Return whether the time of a host function on an engine is known, rather than bounded by a roofline."""
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
        slower = engine.units * engine.clock_hz.value / (units * state.clock_hz)
        known = _timed(cost, function, slower, slower != 1, "")
    elif engine.operators.host_code and function.device in MEASURED:
        known = _on_core(function, engine, state)
        cost = MEASURED[function.device]
    else:
        return None
    time_ns, kind, source, error = known
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
