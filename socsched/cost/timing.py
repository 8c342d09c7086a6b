"""Time of a network on an engine from its passes and a few fitted parameters.

A pass takes the longer of its arithmetic and its traffic, with a rounded corner, and a fixed cost; a job adds one of
its own.  Nominal figures (peak, memory bandwidth, launch, submission) scale with units and clocks; the parameters are
ratios to them, so that a fit in one mode predicts the others:

    t(job)     = job * submit + sum over passes of (arithmetic^p + traffic^p)^(1/p) + layer * launch
    arithmetic = macs * padding * (1 + fill * units / outputs) / (peak * conv * class)  on the matrix unit
               + (depthwise macs + window positions + exp * costly elements) / (peak * vector)  on the vector unit
    traffic    = activation bytes / (dram * onchip, or dram * spill where what is alive exceeds the memory on chip)
               + weight bytes / (dram * weights)

Ratios, since one fit then serves every power mode.  Rejected: an efficiency for each class of operators (off by 69 % on
average), efficiencies that saturate with a layer's work (the same as a cost a layer) or its pixels (the same as a cost
of weights), regression trees (they do not scale with clocks and cannot be read), parameters for each mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from socsched.cost.fitted import FEW, RELATIVE, SHARPNESS, vector_work
from socsched.cost.fitted import Nominal as Nominal
from socsched.descriptor.fit import NAMES as NAMES
from socsched.descriptor.fit import PASS_KINDS as KINDS
from socsched.descriptor.fit import Parameters as Parameters
from socsched.graph.accelerator_kernels import pass_class
from socsched.graph.operators import Pass

Array = NDArray[Any]


def from_logs(logs: Array) -> Parameters:
    """Return parameters from logarithms in the order of `NAMES`."""
    return Parameters(**dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))


@dataclass(frozen=True, slots=True)
class Table:
    """The passes of several networks as arrays; `network` numbers the network of each."""

    kind: Array
    macs: Array
    read: Array
    written: Array
    weights: Array
    rows: Array
    cin: Array
    cout: Array
    groups: Array
    costly: Array
    simple: Array
    live: Array
    kernel: Array
    copies: Array
    network: Array
    count: int


def table(networks: Sequence[Sequence[Pass]]) -> Table:
    """Return the passes of networks as arrays."""
    flat = [(one, number) for number, passes in enumerate(networks) for one in passes]

    def column(name: str) -> Array:
        return np.array([getattr(one, name) for one, _ in flat], float)

    kind = np.array([KINDS.index(pass_class(one)) for one, _ in flat])
    numbers = np.array([number for _, number in flat])
    columns = {name: column(name) for name in ("macs", "read", "written", "weights", "rows", "cin", "cout", "groups",
                                               "costly", "live", "kernel", "copies")}  # fmt: skip
    simple = np.array([vector_work(one) for one, _ in flat], float)
    return Table(kind=kind, network=numbers, count=len(networks), simple=simple, **columns)


def padded(work: Table, block: int) -> Array:
    """Return the multiply-adds of each pass with channels rounded up to the native block.

    A depthwise layer pads its channels; a grouped one packs as many groups as fit into a block, whose off-diagonal
    products are wasted.
    """
    if block <= 1:
        return work.macs
    narrow = np.where(work.cin <= FEW, FEW, _round_up(work.cin, block))  # images: runtimes fold taps into channels
    dense = (narrow / work.cin) * (_round_up(work.cout, block) / work.cout)
    deep = _round_up(work.groups, block) / work.groups
    packed = np.maximum(block / np.maximum(work.cin, 1), 1.0)
    factor = np.where(work.kind == KINDS.index("depthwise"), deep, dense)
    factor = np.where(work.kind == KINDS.index("grouped"), packed, factor)
    return work.macs * np.where(work.macs > 0, factor, 1.0)


def _round_up(channels: Array, block: int) -> Array:
    return np.ceil(channels / block) * block


def terms(work: Table, engine: Nominal, p: Parameters, macs: Array | None = None) -> dict[str, Array]:
    """Return the parts (us) of every pass's time by name: matrix, fill, vector, exp, onchip, spill, weights, fixed."""
    relative = np.ones(len(KINDS))
    for name in RELATIVE:
        relative[KINDS.index(name)] = getattr(p, name)
    macs = padded(work, engine.block) if macs is None else macs
    deep, copy = work.kind == KINDS.index("depthwise"), work.kind == KINDS.index("copy")
    matrix = np.where(deep, 0.0, macs) / (engine.peak * p.conv * relative[work.kind])
    outputs = work.rows * work.cout * work.groups
    vector = work.simple + np.where(deep, macs * engine.taps ** (work.kernel - 3), 0.0)
    kernels = np.where(copy, work.copies * engine.copies, 1.0)
    moved = (work.read + work.written) * engine.bytes * (kernels > 0)
    spilled = moved * (work.live * engine.bytes > engine.sram)
    return {
        "matrix": matrix,
        "fill": matrix * p.fill * 1e3 * engine.units / outputs,
        "vector": vector / (engine.peak * p.vector),
        "exp": p.exp * work.costly / (engine.peak * p.vector),
        "onchip": (moved - spilled) / (engine.dram * p.onchip),
        "spill": spilled / (engine.dram * p.spill),
        "weights": work.weights * engine.bytes / (engine.dram * p.weights) * streamed(work, engine),
        "fixed": p.layer * engine.launch_us * engine.slowdown * kernels,
    }


def roofs(part: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Return arithmetic, traffic and their rounded maximum (us) of every pass."""
    arithmetic = part["matrix"] + part["fill"] + part["vector"] + part["exp"]
    traffic = part["onchip"] + part["spill"] + part["weights"]
    return arithmetic, traffic, (arithmetic**SHARPNESS + traffic**SHARPNESS) ** (1 / SHARPNESS)


def pass_times(work: Table, engine: Nominal, p: Parameters, macs: Array | None = None) -> Array:
    """Return the time (us) of every pass, without the cost of the job."""
    part = terms(work, engine, p, macs)
    return roofs(part)[2] + part["fixed"]


def streamed(work: Table, engine: Nominal) -> Array:
    """Return the share of weights that every job reads anew: what does not fit on-chip beside the activations."""
    if not engine.resident:
        return np.ones(len(work.macs))
    total = np.bincount(work.network, work.weights, work.count) * engine.bytes
    share: Array = np.clip((total - engine.sram) / np.maximum(total, 1), 0.05, 1)
    return share[work.network]


def job_times(work: Table, engine: Nominal, p: Parameters, macs: Array | None = None) -> Array:
    """Return the time (us) of one job of each network."""
    times = np.bincount(work.network, pass_times(work, engine, p, macs), work.count)
    return times + p.job * engine.submit_us * engine.slowdown


def slopes(work: Table, engine: Nominal, p: Parameters, macs: Array | None = None) -> tuple[Array, Array]:
    """Return the job times (us) and their derivatives by the logarithm of every parameter, for fits."""
    part = terms(work, engine, p, macs)
    arithmetic, traffic, both = roofs(part)
    safe = np.maximum(both, 1e-12)
    by_work, by_traffic = (arithmetic / safe) ** (SHARPNESS - 1), (traffic / safe) ** (SHARPNESS - 1)
    dense = part["matrix"] + part["fill"]
    change = {
        "conv": -dense * by_work,
        **{name: -dense * by_work * (work.kind == KINDS.index(name)) for name in RELATIVE},
        "vector": -(part["vector"] + part["exp"]) * by_work,
        "exp": part["exp"] * by_work,
        "fill": part["fill"] * by_work,
        "onchip": -part["onchip"] * by_traffic,
        "spill": -part["spill"] * by_traffic,
        "weights": -part["weights"] * by_traffic,
        "layer": part["fixed"],
    }
    job = p.job * engine.submit_us * engine.slowdown
    times = np.bincount(work.network, both + part["fixed"], work.count) + job
    columns = [np.bincount(work.network, change[name], work.count) if name in change else np.full(work.count, job)
               for name in NAMES]  # fmt: skip
    return times, np.stack(columns, axis=1)


Prior = Mapping[str, tuple[float, float]]
"""Parameter -> (median, spread of the logarithm)."""
