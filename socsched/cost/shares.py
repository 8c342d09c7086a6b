"""What a job takes on a share of an engine's units: its kernels' blocks in waves, against what so few units can draw.

A kernel is a number of equal blocks.  The busiest of u units runs ceil(blocks / u) of them; a unit is busy from `busy`
blocks on, so that fewer than these take as long as one wave.  Its traffic takes as long as the slower of DRAM, of which
a share has all, and the ports of its units.  Launches and the latency of a kernel do not depend on units.  No network
is known here: what is known of a kernel is its time on all units, its blocks and its bytes.

Blocks: Volkov, "Understanding latency hiding on GPUs" (2016); ports: CUDA programming guide, 64 bytes a clock and SM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from socsched.cost.cost import TRANSFER_ERROR, Cost, Segment, weakest
from socsched.descriptor.platform import Engine, EngineMode
from socsched.graph.operators import DTYPE_BYTES, Operator, Pass, StageWork

PORT = 64
"""Bytes a clock that a unit draws where its engine states no rate."""
BUSY = 2
"""Blocks that keep a unit busy: one waits for memory while the other computes."""
TILES = ((128, 128), (128, 64), (64, 64), (64, 32))
"""Rows and columns of a product that a block computes, the largest that fill the engine."""
DEEP = 512
"""Terms of a sum that are worth a block of their own, where there are too few blocks."""
ELEMENTS = 2048
"""Elements that a block of an element-wise kernel computes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel on all units of its engine: `time_ns`, of which `fixed_ns` whatever the units, its blocks and bytes.

    `busy`: blocks that keep one unit busy.
    """

    time_ns: float
    fixed_ns: float
    blocks: int
    bytes: int
    busy: int = BUSY


@dataclass(frozen=True, slots=True)
class Units:
    """The units that kernels run on: all of them, the bytes/s that one draws at most, and those of the memory."""

    whole: int
    port: float
    memory: float

    def wave(self, kernel: Kernel, units: int) -> float:
        """Return the blocks in turn on the busiest of `units`, at least one that is busy."""
        return max(ceil(kernel.blocks / units) / kernel.busy, 1.0)

    def traffic_ns(self, kernel: Kernel, units: int) -> float:
        """Return the least time (ns) of a kernel's bytes on `units`."""
        return kernel.bytes / min(self.memory, self.port * units) * 1e9

    def time_ns(self, kernel: Kernel, units: int) -> float:
        """Return the time (ns) of a kernel on `units`."""
        moving = max(kernel.time_ns - kernel.fixed_ns, 0.0)
        longer = moving * self.wave(kernel, units) / self.wave(kernel, self.whole)
        bound = self.traffic_ns(kernel, self.whole) >= 0.5 * moving  # memory limits it on all units: less than a wave
        if bound:
            longer = moving * max(self.traffic_ns(kernel, units) / self.traffic_ns(kernel, self.whole), 1.0)
        return kernel.fixed_ns + max(longer, self.traffic_ns(kernel, units), moving)


def blocks_of(one: Pass | Operator, whole: int) -> int:
    """Return the blocks of a pass, or of an operator without one, as a library chooses them for `whole` units."""
    if isinstance(one, Operator) or not one.macs or one.kind == "depthwise":
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
        kernel = Kernel(0.0, 0.0, blocks, moved)
        part = on.wave(kernel, state.units) * BUSY * state.units / max(blocks, 1)  # whole waves: units that wait
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
    return replace(
        cost,
        share=groups,
        time_ns=sum(one.time_ns for one in segments),
        segments=segments,
        provenance=weakest(kinds),
        source=", ".join(filter(None, (cost.source, note))),
        error=round(error, 6),
    )


def _longer(one: Segment, factor: float) -> Segment:
    return replace(one, time_ns=one.fixed_ns + ceil((one.time_ns - one.fixed_ns) * factor))
