"""What a probe has measured of the kernels that run on an engine: a table a runtime (`cost.kernel_times` reads it)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

APART = 1.6
"""Ratio of two times of a hand-over from which on processors count as lying otherwise to each other."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time (ns) of a kernel of a family on `threads` units, and the work it did.

    `ops`: arithmetic operations as counted; `moved`, `weights`: bytes of tensors and of constants.  `spread`: quartile
    distance of its undisturbed calls over the time; `calls`: their number, 0 where every call was disturbed, in which
    case the time is the shortest; `handover`: time (ns) of an empty kernel on these units then, 0 if not measured.
    """

    family: str
    threads: int
    ops: float
    moved: float
    weights: float
    time_ns: float
    spread: float = 0.0
    calls: int = 1
    handover: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """The measured kernels of one runtime on an engine in a precision, with the version of its kernels and the date.

    `block`: channels that a convolution's kernels compute together; images whose channels fill no whole blocks are
    converted where they enter or leave a network.  `elsewhere`: kernels on several threads while the processors lay
    farther apart, as those of virtual machines do every few seconds (`expected`).
    """

    runtime: str
    version: str
    date: str
    precision: str
    kernels: tuple[KernelTime, ...]
    block: int = 1
    elsewhere: tuple[KernelTime, ...] = ()

    def expected(self) -> KernelTimes:
        """Return the table for processors that may lie either way: geometric means, and apart the times of the farther.

        A plan is for later, and how the processors lie when it is made says nothing of how they will lie then.
        """
        least = min((one.handover for one in self.kernels if one.handover), default=0.0)
        near = [one for one in self.kernels if one.handover and alike(one.handover, least)]
        far = [one for one in self.kernels if one.handover and not alike(one.handover, least)]
        if not far:
            return self
        farther = {_work(one): one for one in _whole(far, near)}
        alone = (one for one in self.kernels if not one.handover)
        pairs = ((one, farther[_work(one)]) for one in _whole(near, far))
        means = (replace(one, time_ns=math.sqrt(one.time_ns * other.time_ns)) for one, other in pairs)
        return replace(self, kernels=(*alone, *means), elsewhere=tuple(farther.values()))


def alike(one: float, other: float) -> bool:
    """Return whether two times of a hand-over are of processors that lie alike."""
    return max(one, other) <= APART * min(one, other)


def _whole(some: Sequence[KernelTime], others: Sequence[KernelTime]) -> Iterator[KernelTime]:
    """Yield some kernels, and for those that they lack the others', by as much longer as those are that both have."""
    yield from some
    mine = {_work(one): one.time_ns for one in some}
    longer = [mine[_work(one)] / one.time_ns for one in others if _work(one) in mine]
    for one in others:
        if _work(one) not in mine:
            yield replace(one, time_ns=one.time_ns * statistics.median(longer or [1.0]))


def _work(one: KernelTime) -> tuple[str | float, ...]:
    return one.family, one.threads, one.ops, one.moved, one.weights
