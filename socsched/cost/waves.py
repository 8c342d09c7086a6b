"""Kernels on a share of an engine's units: blocks in whole waves, against what so few units can draw.

A kernel is a number of equal blocks.  The busiest of u units runs ceil(blocks / u) of them; a unit is busy from `busy`
blocks on, so that fewer than these take as long as one wave.  It begins the next ones when those that it holds have
ended, where it is known how many these are: equal blocks that begin together end together.  Its traffic takes as long
as the slower of DRAM, of which a share has all, and the ports of its units.  Launches and the latency of a kernel do
not depend on units.

Beside a neighbour on other units, what it has driven out of the cache comes from DRAM, at the max-min share of the
job's units, and each load waits as long as DRAM's queue is: loads in flight are served in turn (Little's law).
Computing and waiting are taken not to overlap, as in blocks that all wait for their first tile.

Blocks: Volkov, "Understanding latency hiding on GPUs" (2016); ports: CUDA programming guide, 64 bytes a clock and SM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

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
