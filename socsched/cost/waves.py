"""Kernels on a share of an engine's units: blocks in whole waves, against what so few units can draw.

A kernel is a number of equal blocks.  The busiest of u units runs ceil(blocks / u) of them; a unit is busy from `busy`
blocks on, so that fewer than these take as long as one wave.  Its traffic takes as long as the slower of DRAM, of which
a share has all, and the ports of its units.  Launches and the latency of a kernel do not depend on units.

Blocks: Volkov, "Understanding latency hiding on GPUs" (2016); ports: CUDA programming guide, 64 bytes a clock and SM.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

BUSY = 2
"""Blocks that keep a unit busy: one waits for memory while the other computes."""


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
        least = self.traffic_ns(kernel, self.whole)
        if least >= 0.5 * moving > 0:  # memory limits it on all units, which therefore wait
            longer = moving * max(self.traffic_ns(kernel, units) / least, 1.0)
        return kernel.fixed_ns + max(longer, self.traffic_ns(kernel, units), moving)
