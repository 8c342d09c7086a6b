"""Times of networks from fitted parameters (`cost.timing` states the formula), in plain Python for single stages.

An engine whose precision states a fit answers with it for every network whose passes are known; any other work is left
to the roofline.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from socsched.cost import kernel_times
from socsched.cost.cost import CARRIES, Segment, weakest
from socsched.cost.host_functions import estimate as function_estimate
from socsched.cost.power import dram_capacity
from socsched.cost.roofline import Estimate, launches_per_operator
from socsched.cost.roofline import estimate as roofline_estimate
from socsched.cost.timing import BYTES, WEIGHT_BYTES, Nominal, job_us, loads, rates, terms
from socsched.descriptor.fit import Fit, Parameters, choose_fit
from socsched.descriptor.platform import Engine, EngineMode, Platform, PowerMode, Precision
from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import Pass, Place, StageWork

# How far a network is from those that an engine family was fitted to, by the kinds of its layers and its size.
#
# Errors of a fit grow with this distance: networks beside a measured one get narrow intervals, strange ones wide
# ones. What the model missed of measured networks is what it will miss of networks near them (`cost.fitting.least`).
# `measured.json` holds the places of the networks behind the shipped fits (`python -m tools.generate.fits`).

FILE = Path(__file__).with_name("measured.json")
SIZE = 0.03
"""Distance of two networks of the same layers whose work differs by a factor of e."""
FARTHEST = 1.0
"""Distance of networks without a layer in common; a greater one says nothing more."""
REACH = 0.05
"""Distance over which two networks' errors lose what they have in common, by a factor of e."""


def between(one: Place, other: Place) -> float:
    """Return the distance of two places: half the difference in shares, and that in size."""
    a, b = dict(one), dict(other)
    kinds = sorted((a.keys() | b.keys()) - {"size"})  # a sum in one order, whatever the hash seed
    return sum(abs(a.get(kind, 0.0) - b.get(kind, 0.0)) for kind in kinds) / 2 + SIZE * abs(a["size"] - b["size"])


def distance(one: Place, others: Iterable[Place]) -> float:
    """Return the distance to the nearest of other places, at most `FARTHEST`, and that without any."""
    return min([FARTHEST, *(between(one, other) for other in others)])


def kin(one: str, other: str) -> float:
    """Return how much of an error in a precision another precision has in common with it, over what it has alone."""
    return 2.0 if one == other else 1.0


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    known = json.loads(FILE.read_text(encoding="utf-8"))
    places = {name: tuple(sorted(own.items())) for name, own in known["networks"].items()}
    return {**known, "networks": places}


def measured(family: str) -> Sequence[Place]:
    """Return the places of the networks that an engine family was fitted to."""
    known = _document()
    return [known["networks"][name] for name in known["families"].get(family, ())]


@lru_cache(maxsize=4096)
def correction(family: str, precision: str, where: Place) -> float:
    """Return measured over predicted time of networks at a place, as the family's measured networks near it tell.

    1 far from all of them, and where the family's errors say nothing of one another.
    """
    known = _document()
    logarithm = sum(
        weight * kin(precision, other) * math.exp(-between(where, known["networks"][name]) / REACH)
        for other, weights in known["residuals"].get(family, {}).items()
        for name, weight in weights.items()
    )
    return math.exp(logarithm)


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
        weight_bytes=WEIGHT_BYTES[precision.dtype],
        slowdown=engine.clock_hz.value / state.clock_hz,
        submit_us=fit.submit_ns / 1e3,
        launch_us=fit.launch_ns / 1e3,
        taps=fit.taps,
        resident=fit.resident,
        dataflow=fit.dataflow,
        padded=fit.padded,
        units=units,
        copies=fit.copies,
        views=fit.views,
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
    memory = engine.bandwidth if engine.keeps else mode.dram
    stated = nominal(engine, precision, fit, state, units, memory.value)
    near = correction(fit.family, work.precision, work.place)
    times = [
        PassTime(one.busy_us * near, one.fixed_us * near, one.bytes)
        for one in pass_times(work.passes, stated, fit.parameters)
    ]
    job_ns = round(job_us(stated, fit.parameters) * near * 1e3)
    made = _segments(work, times, job_ns, engine, min(engine.bandwidth.value, capacity))
    shares = {"job": job_ns / 1e3}
    for one, time in zip(work.passes, times, strict=True):
        shares[pass_class(one)] = shares.get(pass_class(one), 0.0) + time.busy_us + time.fixed_us
    return Estimate(made, *evidence(fit, units, shares, work.place))


def evidence(fit: Fit, units: int, shares: Mapping[str, float], place: Place = ()) -> tuple[str, str, float]:
    """Return provenance, source and relative error of a time by a fit on `units` units.

    `shares`: of the time by class of passes, and of the `job`; `place`: that of the whole network.  On other units or
    another board than was measured, or with unmeasured classes that carry weight, the fit is extrapolated.
    """
    strange = sum(time for name, time in shares.items() if name not in (*fit.classes, "job")) / sum(shares.values())
    same = fit.networks and fit.units in (0, units) and strange < CARRIES
    away = distance(place, measured(fit.family)) if place and "near" in fit.doubt else 0.0
    error = fit.width(away, strange)
    return ("fitted" if same else weakest(["fitted", "derived"])), fit_text(fit), error


def fit_text(fit: Fit) -> str:
    """Return the evidence of a fit as display text."""
    if not fit.networks:
        return f"parameters of the engine's family fitted to {fit.source}, ± {fit.error:.0%}"
    return f"fitted to {fit.networks} networks of {fit.source}, ± {fit.error:.0%}"


def entry_ns(engine: Engine, precision: str, state: EngineMode, place: Place, units: int) -> int:
    """Return the time (ns) a job pays once: its submission, and the launch where a whole job is one launch.

    `place`: that of the network, none where its passes are not known; `units`: those of the engine that it uses.
    """
    fit = choose_fit(engine.precisions[precision].fitted, units)
    if fit is not None and place:
        near = correction(fit.family, precision, place)
        return round(fit.parameters.job * fit.submit_ns * near * engine.clock_hz.value / state.clock_hz)
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
        if engine.keeps:  # behind a link, which hand-overs cross
            fixed, moved, entry = whole, 0, 0
        made.append(Segment(name, whole + entry, fixed + entry, moved))
    return tuple(made)


def pass_times(passes: Sequence[Pass], engine: Nominal, p: Parameters) -> list[PassTime]:
    """Return the times of passes, without the cost of the job."""
    relative, found = rates(p), []
    for load in loads(passes, engine):
        part = terms(load, engine, p, relative[load.kind])
        found.append(PassTime(part.busy, part.fixed, load.spilled + load.carried + load.border + load.weights))
    return found
