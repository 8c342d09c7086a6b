"""Padding: best-effort blocks on the units left by a real-time kernel, limited so that they end before it does.

`DynamicPadding` after REEF (Han et al., OSDI 2022, section 5): a real-time kernel spreads its blocks evenly over
rounds, ceil(blocks / ceil(blocks / units)) units; the others are filled with as many blocks of a best-effort kernel as
end before it does (rule 1: its latency by occupancy), and arriving real-time requests kill the running kernels.
`ElasticPadding` after Miriam (Zhao et al., SenSys 2023, arXiv 2307.04339): best-effort kernels are elastic, their
shards fit the remaining units and time, and those bound by the opposite resource go first.  Reconstructed from the
abstracts and REEF's code: REEF's second rule, by registers and local memory, is assumed to hold, since profiles do not
include these; shards of Miriam are any share of the blocks above `least`.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched_literature.sharing.corun import Kernel, View
from socsched_literature.sharing.orion import opposite


@dataclass(frozen=True, slots=True)
class DynamicPadding:
    """REEF: reset at an arrival (35 us), padding next to real-time kernels."""

    reset_ns: int | None = 35_000

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return the units and the fraction to start."""
        if view.urgent is None:
            return min(view.free, kernel.units), left
        return view.free, min(left, fitting(kernel, view.free, view.urgent_left_ns))


@dataclass(frozen=True, slots=True)
class ElasticPadding:
    """Miriam: shards of kernels of the opposite class next to real-time kernels; `any_class` admits all."""

    least: float = 0.02
    any_class: bool = False
    reset_ns: int | None = None
    largest_ns: int = 100_000

    def admit(self, kernel: Kernel, left: float, view: View) -> tuple[int, float]:
        """Return the units and the fraction to start."""
        if view.urgent is None:
            # Use shards even while no real-time kernel runs: the next request then waits for at most one of them.
            part = min(left, max(self.least, self.largest_ns / kernel.alone_ns))
            return min(view.free, kernel.units), part
        if not (self.any_class or opposite(kernel, view.urgent)):
            return 0, 0.0
        time = kernel.alone_ns * kernel.units / max(1, view.free)
        part = min(left, view.urgent_left_ns / time)
        return (view.free, part) if part >= min(left, self.least) else (0, 0.0)


def fitting(kernel: Kernel, units: int, within_ns: float) -> float:
    """Return the share of a kernel's blocks that fit on `units` in time, in rounds at the largest fitting occupancy."""
    rounds = kernel.by_occupancy or (kernel.alone_ns,)
    occupancy = max((i for i, one in enumerate(rounds, 1) if one <= within_ns), default=0)
    if not occupancy or not units:
        return 0.0
    repeats = int(within_ns // rounds[occupancy - 1])
    return min(1.0, units * repeats * occupancy / kernel.blocks)
