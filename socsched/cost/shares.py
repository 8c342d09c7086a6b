"""What a stage takes on a share of an engine's units: its cost on all of them, and its kernels there and here.

No network is known here: what is known of a kernel is its arithmetic, its blocks and its bytes (`cost.shares`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import ceil, inf
from typing import TypeGuard

from socsched.cost.cost import TRANSFER_ERROR, Cost, Segment, Shared, weakest
from socsched.descriptor.platform import Engine, EngineMode
from socsched.graph.operators import DTYPE_BYTES, Operator, Pass, StageWork

# Kernels on a share of an engine's units: blocks in whole waves, against what so few units can draw.
#
# A kernel is a number of equal blocks.  The busiest of u units runs ceil(blocks / u) of them; a unit is busy from
# `busy` blocks on, so that fewer than these take as long as one wave.  It begins the next ones when those that it
# holds have ended, where it is known how many these are: equal blocks that begin together end together.  Its traffic
# takes as long as the slower of DRAM, of which a share has all, and the ports of its units.  Launches and the latency
# of a kernel do not depend on units.
#
# Beside a neighbour on other units, what it has driven out of the cache comes from DRAM, at the max-min share of the
# job's units, and each load waits as long as DRAM's queue is: loads in flight are served in turn (Little's law).
# Computing and waiting are taken not to overlap, as in blocks that all wait for their first tile.
#
# Blocks: Volkov, "Understanding latency hiding on GPUs" (2016); ports: CUDA programming guide, 64 bytes a clock and
# SM.

WARPS, LOADING = 8, 16
"""Warps that keep a unit busy: where they load tiles ahead into its own memory, and where they wait for each load."""
BUSY = 2
"""Blocks of four of the former warps: one waits for memory while the other computes."""


def busy_blocks(warps: int, resident: int, needed: int = WARPS) -> float:
    """Return the blocks of so many warps that keep a unit busy: `needed` warps, or all that are `resident` at once."""
    return max(min(needed / warps, resident), 1.0)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on all units of its engine: `time_ns`, of which `fixed_ns` whatever the units, its blocks and bytes.

    `bytes` are DRAM's, `cached` those that the cache holds meanwhile.  `busy`: blocks that keep one unit busy; `held`:
    those that it holds at once, 0 if that is not known or does not matter.
    """

    time_ns: float
    fixed_ns: float
    blocks: int
    bytes: int
    busy: float = BUSY
    cached: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Work on other units of the engine: the bytes/s that it would draw if DRAM had no limit, on how many units.

    `cache`: the bytes that all units cache together; `far`: the latency of DRAM over that of this cache; `launch_ns`:
    what a kernel waits until the launches of the neighbour leave the queue that all units share; `touched`: the most
    bytes that it can drive others' out with.
    """

    wanted: float
    units: int
    cache: float
    far: float
    launch_ns: float = 0.0
    touched: float = inf
    name: str = ""


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What a job takes longer (ns) beside a neighbour: its bytes from DRAM, loads that the cache no longer serves, and
    launches; `evicted`: the bytes that the cache no longer holds.
    """

    memory: float
    cache: float
    launches: float
    evicted: float


@dataclass(frozen=True, slots=True)
class Units:
    """The units that kernels run on: all of them, the bytes/s that one draws at most, and those of the memory."""

    whole: int
    port: float
    memory: float

    def wave(self, kernel: Kernel, units: int) -> float:
        """Return the blocks in turn on the busiest of `units`, at least one that is busy."""
        blocks = max(ceil(kernel.blocks / units), 1)
        rounds, rest = divmod(blocks, kernel.held) if kernel.held else (0, blocks)
        return rounds * max(kernel.held / kernel.busy, 1.0) + (max(rest / kernel.busy, 1.0) if rest else 0.0)

    def traffic_ns(self, kernel: Kernel, units: int) -> float:
        """Return the least time (ns) of a kernel's bytes on `units`."""
        return kernel.bytes / min(self.memory, self.port * units) * 1e9

    def time_ns(self, kernel: Kernel, units: int) -> float:
        """Return the time (ns) of a kernel on `units`."""
        moving = max(kernel.time_ns - kernel.fixed_ns, 0.0)
        longer = moving * self.wave(kernel, units) / self.wave(kernel, self.whole)
        least = self.traffic_ns(kernel, self.whole)
        if least >= 0.5 * moving > 0:  # memory limits it on all units, which therefore wait
            longer = moving * max(self.traffic_ns(kernel, units) / least, 1.0)
        return kernel.fixed_ns + max(longer, self.traffic_ns(kernel, units), moving)

    def beside(self, kernels: Sequence[Kernel], units: int, other: Neighbour, alone: float) -> Slowdown:
        """Return what a job of kernels on `units` that takes `alone` ns takes longer beside a neighbour."""
        gone = min(min(min(other.wanted, self.memory) * alone * 1e-9, other.touched) / max(other.cache, 1.0), 1.0)
        moved, cached = sum(one.bytes for one in kernels), sum(one.cached for one in kernels)
        fair = max(self.memory / (units + other.units), (self.memory - other.wanted) / units)  # max-min over units
        slow, port = min(fair, self.port) * units, self.port * units
        late = moved * (1 / slow - 1 / min(self.memory, port)) + gone * cached * (1 / slow - 1 / port)
        queue = max((other.wanted + (moved + cached) / alone * 1e9) / self.memory, 1.0)
        waiting = sum(one.fixed_ns for one in kernels) * (other.far * queue - 1.0)
        return Slowdown(late * 1e9, gone * waiting, len(kernels) * other.launch_ns, gone * cached)


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
