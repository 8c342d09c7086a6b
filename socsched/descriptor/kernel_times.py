"""What a probe has measured of the kernels that run on an engine: a table a runtime (`cost.kernel_times` reads it)."""

from __future__ import annotations

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
    otherwise to each other, as those of virtual machines do every few seconds.
    """

    runtime: str
    version: str
    date: str
    precision: str
    kernels: tuple[KernelTime, ...]
    block: int = 1
    elsewhere: tuple[KernelTime, ...] = ()

    def lying(self, handover: float) -> KernelTimes:
        """Return the table for processors that hand over in a time (ns), with the others' times apart."""
        alone = tuple(one for one in self.kernels if not one.handover)
        here = [one for one in self.kernels if one.handover and alike(one.handover, handover)]
        there = [one for one in self.kernels if one.handover and not alike(one.handover, handover)]
        if not here or not there:
            return self
        return replace(self, kernels=(*alone, *_whole(here, there)), elsewhere=tuple(_whole(there, here)))


def alike(one: float, other: float) -> bool:
    """Return whether two times of a hand-over are of processors that lie alike."""
    return max(one, other) <= APART * min(one, other)


def _whole(some: Sequence[KernelTime], others: Sequence[KernelTime]) -> Iterator[KernelTime]:
    """Yield some kernels, and for those that they lack the others', by as much longer as those are that both have."""

    def work(one: KernelTime) -> tuple[str | float, ...]:
        return one.family, one.threads, one.ops, one.moved, one.weights

    yield from some
    mine = {work(one): one.time_ns for one in some}
    longer = [mine[work(one)] / one.time_ns for one in others if work(one) in mine]
    for one in others:
        if work(one) not in mine:
            yield replace(one, time_ns=one.time_ns * statistics.median(longer or [1.0]))
