"""What a probe has measured of the kernels that run on an engine: a table a runtime (`cost.kernel_times` reads it)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
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
    farther apart, as those of virtual machines do every few seconds (`expected`); `apart`: they count.
    """

    runtime: str
    version: str
    date: str
    precision: str
    kernels: tuple[KernelTime, ...]
    block: int = 1
    elsewhere: tuple[KernelTime, ...] = ()
    apart: bool = False

    def expected(self) -> KernelTimes:
        """Return the table for processors that may lie either way, with the times of the farther way apart.

        Processors that are nearer and yet take longer share a core.  What runs virtual processors moves them to two as
        soon as both compute: like a call beside another program, a time from before that does not count.
        """
        found = list(ways(one for one in self.kernels if one.handover))
        while len(found) > 1 and _total(found[0], found[1]) > _total(found[1], found[0]):
            found = found[1:]
        if not found:
            return self
        near, far = found[0], [one for way in found[1:] for one in way]
        alone = (one for one in self.kernels if not one.handover)
        return replace(self, kernels=(*alone, *_whole(near, far)), elsewhere=tuple(_whole(far, near)) if far else ())


def ways(kernels: Iterable[KernelTime]) -> Iterator[list[KernelTime]]:
    """Yield those that were timed while processors lay alike to each other, the nearest first."""
    left = sorted(kernels, key=lambda one: one.handover)
    while left:
        some = [one for one in left if alike(one.handover, left[0].handover)]
        yield some
        left = left[len(some) :]


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


def _total(some: Sequence[KernelTime], others: Sequence[KernelTime]) -> float:
    """Return the time of those kernels that both have."""
    shared = {_work(one) for one in others}
    return sum(one.time_ns for one in some if _work(one) in shared)


def _work(one: KernelTime) -> tuple[str | float, ...]:
    return one.family, one.threads, one.ops, one.moved, one.weights
