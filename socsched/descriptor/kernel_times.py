"""What a probe has measured of the kernels that run on an engine: a table a runtime (`cost.kernel_times` reads it)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Time (ns) of a kernel of a family on `threads` units, and the work it did.

    `ops`: arithmetic operations as counted; `moved`, `weights`: bytes of tensors and of constants.  `spread`: quartile
    distance of its undisturbed calls over the time; `calls`: their number, 0 where every call was disturbed, in which
    case the time is the shortest.
    """

    family: str
    threads: int
    ops: float
    moved: float
    weights: float
    time_ns: float
    spread: float = 0.0
    calls: int = 1


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """The measured kernels of one runtime on an engine in a precision, with the version of its kernels and the date.

    `block`: channels that a convolution's kernels compute together; images whose channels fill no whole blocks are
    converted where they enter or leave a network.
    """

    runtime: str
    version: str
    date: str
    precision: str
    kernels: tuple[KernelTime, ...]
    block: int = 1
