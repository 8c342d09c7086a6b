"""What a stage takes on a share of an engine's units: its cost on all of them, and its kernels there and here.

No network is known here: what is known of a kernel is its arithmetic, its blocks and its bytes (`cost.waves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from math import ceil
from typing import TypeGuard

from socsched.cost.cost import TRANSFER_ERROR, Cost, Segment, Shared, weakest
from socsched.cost.waves import BUSY, LOADING, WARPS, Kernel, Neighbour, Slowdown, Units
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
DEPENDENT = 10
"""Loads of a kernel of which each waits for the one before: what nine networks on an H200 fit, over a load from L2."""
CO_RUN = 0.3
"""Relative error of what a neighbour costs: the largest of 18 co-runs on an H200 is 0.17 of the whole time."""


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
            ops, moved, cached = 2.0 * one.macs, (one.read + one.written + one.weights) * size, 0
            if one.live * size <= room:
                moved, cached = one.weights * size, (one.read + one.written) * size
        else:
            ops, moved, cached = float(one.flops), one.bytes, 0
        blocks = blocks_of(one, state.units)
        busy = BUSY * (LOADING // WARPS if isinstance(one, Pass) and not tiled(one) else 1)
        kernel = Kernel(0.0, 0.0, blocks, moved, busy, cached)
        part = on.wave(kernel, state.units) * busy * state.units / max(blocks, 1)  # whole waves: units that wait
        time = max(ops / (rate * reached.value) * 1e9 * max(part, 1.0), on.traffic_ns(kernel, state.units), 1.0)
        found.append(replace(kernel, time_ns=time))
    return found


def neighbour_of(
    cost: Cost, work: StageWork | None, engine: Engine, state: EngineMode, units: int, dram: float
) -> Neighbour:
    """Return a stage of some `cost` on units as others see it; without known kernels it draws all it can."""
    division, on = engine.division, units_of(engine, state, dram)
    assert division is not None
    room = engine.sram.value if engine.sram else 0.0
    far = division.far.value / division.near.value if division.near and division.far else 1.0
    if work is None or not (work.passes or work.operators):
        return Neighbour(on.port * units, units, room, far, name=cost.stage)
    kernels = kernels_of(work, engine, state, dram)
    time = max(cost.time_ns, 1)
    moved, size = sum(one.bytes + one.cached for one in kernels), DTYPE_BYTES[work.precision]
    weights = sum(one.weights for one in work.passes) * size or sum(one.weight_bytes for one in work.operators)
    live = max((one.live for one in work.passes), default=0) * size
    live = live or max(one.read_bytes + one.write_bytes for one in work.operators)
    launch = division.launch.value if division.launch else 0.0
    waits = launch * min(launch * len(kernels) / time, 1.0)  # how often a launch is under way
    return Neighbour(moved / time * 1e9, units, room, far, waits, weights + live, cost.stage)


def beside(
    alone: float, work: StageWork | None, engine: Engine, state: EngineMode, units: int, dram: float,
    others: Sequence[Neighbour],
) -> tuple[Slowdown, str]:  # fmt: skip
    """Return what a job of `alone` ns on some units takes longer beside the neighbour that costs it most, and its name.

    Where engines share DRAM, what its bytes cost is left to the plan's contention model, which is told of more bytes.
    """
    division, nothing = engine.division, Slowdown(0.0, 0.0, 0.0, 0.0)
    if division is None or division.by != "contexts" or work is None or not others:
        return nothing, ""
    on, latency = units_of(engine, state, dram), DEPENDENT * division.near.value if division.near else 0.0
    kernels = [replace(one, fixed_ns=latency) for one in kernels_of(work, engine, state, dram)]
    found = [(on.beside(kernels, units, other, max(alone, 1.0)), other.name) for other in others]
    if engine.link is None:
        found = [(replace(one, memory=0.0), name) for one, name in found]
    return max(found, key=lambda one: (one[0].memory + one[0].cache + one[0].launches, one[0].evicted))


def on_share(
    cost: Cost, work: StageWork | None, engine: Engine, state: EngineMode, groups: int, dram: float,
    others: Sequence[Neighbour] = (),
) -> Cost:  # fmt: skip
    """Return the cost of a stage on some groups of an engine's units, from that on all of them, beside others there."""
    division = engine.division
    assert division is not None
    units = min(groups * division.group, state.units)
    if units == state.units:
        return replace(cost, share=groups)
    factor = ratio(work, engine, state, units, dram)
    narrow = _on_fewer(cost, work, engine, factor)
    alone = sum(one.time_ns for one in narrow)
    found, by = beside(alone, work, engine, state, units, dram, others)
    parts = Shared(alone - cost.time_ns, ceil(found.memory), ceil(found.cache), ceil(found.launches), by)
    more, wider = parts.memory_ns + parts.cache_ns + parts.launches_ns, 1.0
    if work is not None and found.evicted and engine.link is None and cost.bytes:
        held = sum(one.bytes for one in kernels_of(work, engine, state, dram)) + found.evicted
        wider = max(held / cost.bytes, 1.0)
    segments = _spread(narrow, more, wider)
    total = sum(one.time_ns for one in segments)
    note = f"{units} of {state.units} {engine.unit}" + (f" beside {by}" if by else "")
    return replace(
        cost,
        shared=parts,
        share=groups,
        time_ns=total,
        bytes=sum(one.bytes for one in segments),
        segments=segments,
        provenance=weakest([cost.provenance, "derived"]),
        source=", ".join(filter(None, (cost.source, note))),
        error=round(cost.error + TRANSFER_ERROR + CO_RUN * more / max(total, 1), 6),
    )


def _spread(segments: Sequence[Segment], more: int, wider: float) -> tuple[Segment, ...]:
    """Return segments with `more` ns that no bandwidth shortens, in proportion to their times, and more bytes."""
    whole = max(sum(one.time_ns for one in segments), 1)
    ends = [more * end // whole for end in accumulate((one.time_ns for one in segments), initial=0)]
    return tuple(
        Segment(one.name, one.time_ns + late, one.fixed_ns + late, ceil(one.bytes * wider))
        for one, late in zip(segments, (end - start for start, end in pairwise(ends)), strict=True)
    )


def _on_fewer(cost: Cost, work: StageWork | None, engine: Engine, factor: float) -> tuple[Segment, ...]:
    """Return a job's segments with all that depends on units `factor` times as long.

    Behind a link that is what lasts longer than the kernels' dependent loads, and no transfer: launches hide behind the
    kernels before them in a graph.
    """
    if engine.link is None:
        return tuple(
            replace(one, time_ns=one.fixed_ns + ceil((one.time_ns - one.fixed_ns) * factor)) for one in cost.segments
        )
    near, passes = engine.division and engine.division.near, work.passes if work is not None else ()
    latency = DEPENDENT * near.value * len(passes) if near and passes else engine.launch_ns.value * len(cost.segments)
    inner = sum(one.fixed_ns for one in cost.segments)
    return _spread(cost.segments, ceil(max(inner - latency, 0.0) * (factor - 1.0)), 1.0)
