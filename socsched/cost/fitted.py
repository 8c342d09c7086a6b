"""Times of networks from fitted parameters (`cost.timing` states the formula), in plain Python for single stages.

An engine whose precision states a fit answers with it for every network whose passes are known; any other work is left
to the roofline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from socsched.cost import kernel_times
from socsched.cost.cost import CARRIES, Segment, weakest
from socsched.cost.host_functions import estimate as function_estimate
from socsched.cost.power import dram_capacity
from socsched.cost.roofline import Estimate, launches_per_operator
from socsched.cost.roofline import estimate as roofline_estimate
from socsched.descriptor.fit import Fit, Parameters, choose_fit
from socsched.descriptor.platform import Engine, EngineMode, Platform, PowerMode, Precision
from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import Pass, StageWork

SHARPNESS = 4.0
"""Exponent p that rounds the corner between arithmetic and traffic: 4 adds at most 19 % where both are equal."""
RELATIVE = ("pointwise", "winograd", "grouped", "gemm", "matmul")
"""Classes whose rate is stated relative to that of convolutions."""
FEW = 4
"""Channels of an image after padding."""
BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0, "fp8": 1.0, "int4": 0.5}


@dataclass(frozen=True, slots=True)
class Nominal:
    """What a descriptor states of an engine in a mode and precision.

    `peak` (multiply-adds/us of all units), `dram` (bytes/us), `sram` (bytes kept on chip between passes), channels of
    the native `block`, bytes of an element, `slowdown` (highest clock over the mode's, for fixed costs), `submit_us`
    and `launch_us`, `units`; `taps`: what a further row of a depthwise window costs relative to its rows before (1
    where all taps cost the same); `resident`: weights that fit on chip stay there between jobs; `copies`:
    concatenations and slices of tensors that have other readers are kernels.
    """

    peak: float
    dram: float
    sram: float
    block: int
    bytes: float
    slowdown: float = 1.0
    submit_us: float = 100.0
    launch_us: float = 1.0
    taps: float = 1.0
    resident: bool = False
    units: int = 1
    copies: bool = False


class PassTime(NamedTuple):
    """Time (us) of a pass that overlaps with traffic, its fixed cost (us), and its DRAM traffic (bytes)."""

    busy_us: float
    fixed_us: float
    bytes: float


def nominal(engine: Engine, precision: Precision, fit: Fit, state: EngineMode, units: int, dram: float) -> Nominal:
    """Return the nominal figures of an engine on `units` units in a mode whose memory clock allows `dram` bytes/s."""
    rate = fit.ops_per_cycle or precision.ops_per_cycle.value
    memory = min(fit.memory * units, dram) if fit.memory else dram
    return Nominal(
        peak=units * state.clock_hz * rate / 2e6,
        dram=memory / 1e6,
        sram=fit.sram,
        block=fit.block,
        bytes=BYTES[precision.dtype],
        slowdown=engine.clock_hz.value / state.clock_hz,
        submit_us=fit.submit_ns / 1e3,
        launch_us=fit.launch_ns / 1e3,
        taps=fit.taps,
        resident=fit.resident,
        units=units,
        copies=fit.copies,
    )


def estimate(
    work: StageWork,
    platform: Platform,
    engine: Engine,
    mode: PowerMode,
    units: int,
    runtime: str = "",
    chosen: str = "",
) -> Estimate:
    """Return the estimate of a stage on `units` units of an engine: of a host function by what is known of it, of a
    network by its runtime's measured kernels or by a fit of its precision, of others by rooflines.

    `runtime`: the program that runs it, where it is to be another than the one that plans stand for; `chosen`: the one
    of the engine's runtimes that computes it, "" for the first.
    """
    precision, state = engine.precisions[work.precision], mode.engines[engine.id]
    capacity, fit = dram_capacity(platform, mode), choose_fit(precision.fitted, units, runtime)
    function = function_estimate(work, engine, state, units, min(engine.bandwidth.value, capacity))
    if function is not None:
        return function
    measured = kernel_times.estimate(work, engine, units, chosen)
    if measured is not None:
        return measured
    if fit is None or not work.passes:
        return roofline_estimate(work, engine, state, units, capacity)
    units = sum(mode.engines[name].units for name in fit.joined) or units
    stated = nominal(engine, precision, fit, state, units, mode.dram.value)
    times = pass_times(work.passes, stated, fit.parameters)
    job_ns = round(fit.parameters.job * stated.submit_us * stated.slowdown * 1e3)
    made = _segments(work, times, job_ns, engine, min(engine.bandwidth.value, capacity))
    total = sum(one.busy_us + one.fixed_us for one in times)
    unseen = sum(
        time.busy_us + time.fixed_us
        for one, time in zip(work.passes, times, strict=True)
        if pass_class(one) not in fit.classes
    )
    return Estimate(made, *evidence(fit, units, 1 - unseen / total if total else 1.0))


def evidence(fit: Fit, units: int, seen: float) -> tuple[str, str, float]:
    """Return provenance, source and relative error of a time by a fit on `units` units.

    `seen`: share of the time that operators of measured classes take; the error grows with the rest, up to threefold.
    On other units or another board than was measured, or with a rest that carries weight, the fit is extrapolated.
    """
    same = fit.networks and fit.units in (0, units) and 1 - seen < CARRIES
    return ("fitted" if same else weakest(["fitted", "derived"])), fit_text(fit), fit.interval * (3 - 2 * seen)


def fit_text(fit: Fit) -> str:
    """Return the evidence of a fit as display text."""
    if not fit.networks:
        return f"parameters of the engine's family fitted to {fit.source}, ± {fit.error:.0%}"
    return f"fitted to {fit.networks} networks of {fit.source}, ± {fit.error:.0%}"


def entry_ns(engine: Engine, precision: str, state: EngineMode, passes: bool, units: int) -> int:
    """Return the time (ns) a job pays once: its submission, and the launch where a whole job is one launch.

    `passes`: the job is a network whose passes are known; `units`: those of the engine that it uses.
    """
    fit = choose_fit(engine.precisions[precision].fitted, units)
    if fit is not None and passes:
        return round(fit.parameters.job * fit.submit_ns * engine.clock_hz.value / state.clock_hz)
    once = round(engine.submit_ns.value)
    return once if launches_per_operator(engine) else once + round(engine.launch_ns.value)


def _segments(
    work: StageWork, times: Sequence[PassTime], job_ns: int, engine: Engine, bandwidth: float
) -> tuple[Segment, ...]:
    """Cut a job into the segments its engine runs, one a pass on engines that launch every operator.

    Traffic cannot exceed `bandwidth` (bytes/s); what is read faster came from on-chip memory.
    """
    if launches_per_operator(engine):
        parts = [(one.name, *time) for one, time in zip(work.passes, times, strict=True)]
    else:
        parts = [(work.stage, *(sum(column) for column in zip(*times, strict=True)))]
    made = []
    for number, (name, busy_us, fixed_us, size) in enumerate(parts):
        # rounded up once, as bounds of cut networks allow for
        fixed, whole = math.floor(fixed_us * 1e3), max(math.ceil((busy_us + fixed_us) * 1e3), 1)
        moved, entry = min(round(size), int((whole - fixed) * bandwidth / 1e9)), 0 if number else job_ns
        made.append(Segment(name, whole + entry, fixed + entry, moved))
    return tuple(made)


def pass_times(passes: Sequence[Pass], engine: Nominal, p: Parameters) -> list[PassTime]:
    """Return the times of passes, without the cost of the job."""
    rates = {name: engine.peak * p.conv * getattr(p, name) for name in RELATIVE}
    dense, vector_rate = engine.peak * p.conv, engine.peak * p.vector
    fill, launch = p.fill * 1e3 * engine.units, p.layer * engine.launch_us * engine.slowdown
    onchip, spill, weights = engine.dram * p.onchip, engine.dram * p.spill, engine.dram * p.weights
    streamed = _streamed(passes, engine)
    found = []
    for one in passes:
        kind = pass_class(one)
        macs, vector = padded(one, kind, engine.block), float(vector_work(one))
        arithmetic = 0.0
        if kind == "depthwise":
            vector += macs * engine.taps ** (one.kernel - 3)
        elif macs:
            arithmetic = macs / rates.get(kind, dense) * (1 + fill / (one.rows * one.cout * one.groups))
        arithmetic += (vector + p.exp * one.costly) / vector_rate
        kernels = one.copies * engine.copies if kind == "copy" else 1
        moved = (one.read + one.written) * engine.bytes if kernels else 0.0
        fetched = one.weights * engine.bytes * streamed
        spilled = one.live * engine.bytes > engine.sram
        traffic = moved / (spill if spilled else onchip) + fetched / weights
        both = (arithmetic**SHARPNESS + traffic**SHARPNESS) ** (1 / SHARPNESS)
        found.append(PassTime(both, launch * kernels, moved * spilled + fetched))
    return found


def vector_work(one: Pass) -> int:
    """Return the element operations of a pass that is no convolution: window positions, terms of a mean, norms."""
    if one.kind == "pool":
        return max(one.written * one.kernel, one.read)  # sliding windows are separable
    if one.kind in ("eltwise", "resize"):
        return max(one.cheap, one.written)
    if one.kind == "pillars":  # offsets of every point, then the maximum over the points of a pillar
        return 2 * one.read + one.macs // one.cin
    return 4 * one.written if one.kind == "softmax" else 0


def padded(one: Pass, kind: str, block: int) -> float:
    """Return the multiply-adds of a pass with channels rounded up to the native block.

    A depthwise layer pads its channels; a grouped one packs as many groups as fit into a block, whose off-diagonal
    products are wasted; of an image runtimes fold the taps into channels.
    """
    if block <= 1 or not one.macs:
        return one.macs
    if kind == "depthwise":
        return one.macs * (_round_up(one.groups, block) / one.groups)
    if kind == "grouped":
        return one.macs * max(block / max(one.cin, 1), 1.0)
    narrow = FEW if one.cin <= FEW else _round_up(one.cin, block)
    return one.macs * ((narrow / one.cin) * (_round_up(one.cout, block) / one.cout))


def _round_up(channels: int, block: int) -> int:
    return -(-channels // block) * block


def _streamed(passes: Sequence[Pass], engine: Nominal) -> float:
    """Return the share of weights that every job reads anew: what does not fit on chip."""
    if not engine.resident:
        return 1.0
    total = sum(one.weights for one in passes) * engine.bytes
    return min(max((total - engine.sram) / max(total, 1), 0.05), 1.0)
