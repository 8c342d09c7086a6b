"""What a stage takes on a share of an engine's units: its cost on all of them, and its kernels there and here.

No network is known here: what is known of a kernel is its arithmetic, its blocks and its bytes (`cost.waves`).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TypeGuard

from socsched.cost.cost import TRANSFER_ERROR, Cost, Segment, weakest
from socsched.cost.waves import BUSY, LOADING, WARPS, Kernel, Units
from socsched.descriptor.platform import Engine, EngineMode
from socsched.graph.operators import DTYPE_BYTES, Operator, Pass, StageWork

PORT = 64
"""Bytes a clock that a unit draws where its engine states no rate."""
TILES = ((128, 128), (128, 64), (64, 64), (64, 32))
"""Rows and columns of a product that a block computes, the largest that fill the engine."""
DEEP = 512
"""Terms of a sum that are worth a block of their own, where there are too few blocks."""
ELEMENTS = 2048
"""Elements that a block of an element-wise kernel computes."""


def tiled(one: Pass | Operator) -> TypeGuard[Pass]:
    """Return whether a kernel is a product, whose blocks load tiles ahead."""
    return isinstance(one, Pass) and bool(one.macs) and one.kind != "depthwise"


def blocks_of(one: Pass | Operator, whole: int) -> int:
    """Return the blocks of a pass, or of an operator without one, as a library chooses them for `whole` units."""
    if not tiled(one):
        size = one.written if isinstance(one, Pass) else one.write_bytes // 2
        return max(ceil(size / ELEMENTS), 1)
    blocks = 1
    for rows, columns in TILES:
        blocks = ceil(one.rows / rows) * ceil(one.cout / columns) * one.groups
        if blocks >= whole:
            return blocks
    depth = one.macs // max(one.rows * one.cout * one.groups, 1)
    return min(blocks * max(depth // DEEP, 1), max(whole, blocks))


def ratio(work: StageWork | None, engine: Engine, state: EngineMode, units: int, dram: float) -> float:
    """Return the time of a job on `units` of an engine over that on all its online ones, launches aside.

    Without known kernels it is inverse to the units: what uses all of them takes no longer.
    """
    if work is None or not (work.passes or work.operators):
        return state.units / units
    on = units_of(engine, state, dram)
    kernels = kernels_of(work, engine, state, dram)
    return max(sum(on.time_ns(one, units) for one in kernels) / sum(on.time_ns(one, on.whole) for one in kernels), 1.0)


def units_of(engine: Engine, state: EngineMode, dram: float) -> Units:
    """Return the units of an engine in a mode."""
    stated = engine.division.port if engine.division else None
    port = stated.value * state.clock_hz / engine.clock_hz.value if stated else PORT * state.clock_hz
    return Units(state.units, port, engine.bandwidth.value if engine.link else min(engine.bandwidth.value, dram))


def kernels_of(work: StageWork, engine: Engine, state: EngineMode, dram: float) -> list[Kernel]:
    """Return the kernels of a stage by the roofline: passes where they are known, else operators."""
    precision = engine.precisions[work.precision]
    on, rate = units_of(engine, state, dram), state.units * state.clock_hz * precision.ops_per_cycle.value
    reached = precision.efficiency.get("conv") or next(iter(precision.efficiency.values()))
    room = engine.sram.value if engine.sram else 0.0
    found = []
    for one in work.passes or work.operators:
        if isinstance(one, Pass):
            size = DTYPE_BYTES[work.precision]
            ops, moved = 2.0 * one.macs, (one.read + one.written + one.weights) * size
            moved = one.weights * size if one.live * size <= room else moved  # the rest stays in the cache
        else:
            ops, moved = float(one.flops), one.bytes
        blocks = blocks_of(one, state.units)
        busy = BUSY * (LOADING // WARPS if isinstance(one, Pass) and not tiled(one) else 1)
        kernel = Kernel(0.0, 0.0, blocks, moved, busy)
        part = on.wave(kernel, state.units) * busy * state.units / max(blocks, 1)  # whole waves: units that wait
        time = max(ops / (rate * reached.value) * 1e9 * max(part, 1.0), on.traffic_ns(kernel, state.units), 1.0)
        found.append(replace(kernel, time_ns=time))
    return found


def on_share(cost: Cost, work: StageWork | None, engine: Engine, state: EngineMode, groups: int, dram: float) -> Cost:
    """Return the cost of a stage on some groups of an engine's units, from that on all of them.

    Beside other shares it takes as much longer as the engine's division states, since caches and queues stay shared.
    """
    division = engine.division
    assert division is not None
    units = min(groups * division.group, state.units)
    longer = ratio(work, engine, state, units, dram)
    beside = division.beside.value if division.beside and units < state.units else 1.0
    segments = tuple(_longer(one, longer * beside) for one in cost.segments)
    note = f"{units} of {state.units} {engine.unit}" if units < state.units else ""
    error = cost.error + (TRANSFER_ERROR + (division.beside.error if division.beside else 0.0) if note else 0.0)
    kinds = [cost.provenance, *(["derived"] if note else [])]
    narrow = sum(_longer(one, longer).time_ns for one in cost.segments)
    return replace(
        cost,
        share_ns=narrow - cost.time_ns,
        beside_ns=sum(one.time_ns for one in segments) - narrow,
        share=groups,
        time_ns=sum(one.time_ns for one in segments),
        segments=segments,
        provenance=weakest(kinds),
        source=", ".join(filter(None, (cost.source, note))),
        error=round(error, 6),
    )


def _longer(one: Segment, factor: float) -> Segment:
    return replace(one, time_ns=one.fixed_ns + ceil((one.time_ns - one.fixed_ns) * factor))
