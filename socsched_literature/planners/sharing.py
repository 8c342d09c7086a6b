"""Co-running kernels on one engine: a small model of an operator's time on a share of the engine's units.

An engine that launches operators one by one (a GPU) has U units (SMs, shader cores).  An operator without co-runners
takes its time in the cost model.  It occupies as many units as it has blocks of 64 x 64 results, U at most, and the
rest idle: inter-operator parallelism fills this gap (IOS, MLSys 2021, introduction; REEF, OSDI 2022, counts blocks per
compute unit in the same way).  On k units arithmetic takes occupied/k times as long if k is less; traffic goes at full
speed down to half of the units and in proportion below (`SATURATED`, assumed: a few SMs cannot fill a memory's queues).

Groups that run together get disjoint units, as streams of green contexts provide on CUDA devices; a plan shows them as
lanes of the engine, so that simulator and analysis treat them like cores.  Units that fall idle before the stage ends
are not reassigned, so gains are underestimated rather than overestimated.  The total DRAM traffic bounds a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from socsched.cost.cost import Segment
from socsched.graph.operators import DTYPE_BYTES, Operator

BLOCK = 64 * 64
"""Number of results computed by a block of a matrix product or convolution."""
SATURATED = 0.5
"""Share of the units that fills the engine's bandwidth."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operator in execution: arithmetic and traffic (ns on all units, the longer counts), launch, units it fills."""

    name: str
    compute_ns: float
    memory_ns: float
    launch_ns: int
    fills: int
    bytes: int
    operator: Operator | None = None

    def time_ns(self, units: int, total: int) -> int:
        """Return the time (ns) on `units` of `total` units."""
        compute = self.compute_ns * max(1.0, self.fills / units)
        memory = self.memory_ns * max(1.0, SATURATED * total / units)
        return self.launch_ns + max(ceil(max(compute, memory)), 1)

    def segment(self, units: int, total: int) -> Segment:
        """Return the kernel as a segment of a job."""
        return Segment(self.name, self.time_ns(units, total), self.launch_ns, self.bytes)


Group = Sequence[Kernel]
"""Kernels that run in sequence."""


def fills(operator: Operator, units: int) -> int:
    """Return how many of `units` units the operator's blocks fill."""
    results = sum(prod(max(size, 1) for size in tensor.shape) for tensor in operator.outputs)
    return max(min(units, -(-results // BLOCK)), 1)


def group_ns(group: Group, units: int, total: int) -> int:
    """Return the time (ns) of a group on some units."""
    return sum(kernel.time_ns(units, total) for kernel in group)


@dataclass(frozen=True, slots=True)
class Together:
    """Co-running groups: their total time (ns), and the units of each."""

    time_ns: int
    units: tuple[int, ...]


def share_units(groups: Sequence[Group], total: int, bandwidth: float, grain: int = 1) -> Together | None:
    """Return the shares, multiples of `grain` units, that minimise the end of the last group.

    None if there are more groups than shares.  The next share always goes to the group that ends last, which is optimal
    as more units never slow a group down.  `bandwidth` (bytes/s, 0: unlimited) bounds the total traffic.
    """
    if len(groups) * grain > total:
        return None
    if len(groups) == 1:
        return Together(group_ns(groups[0], total, total), (total,))
    shares = [grain] * len(groups)
    times = [group_ns(group, grain, total) for group in groups]
    while sum(shares) + grain <= total:
        last = max(range(len(groups)), key=times.__getitem__)
        shares[last] += grain
        times[last] = group_ns(groups[last], shares[last], total)
    moved = sum(kernel.bytes for group in groups for kernel in group)
    floor = ceil(moved * 1e9 / bandwidth) if bandwidth else 0
    return Together(max(*times, floor), tuple(shares))


def merge_convolutions(kernels: Sequence[Kernel], bandwidth: float, total: int) -> Kernel | None:
    """Return convolutions that read one tensor as a single one, smaller kernels padded with zeros to the largest.

    None if they cannot be merged.  IOS, "operator merge": stride, dilation and groups must match, results are split
    again without a copy.
    """
    operators = [kernel.operator for kernel in kernels if kernel.operator and kernel.operator.kind == "conv2d"]
    if len(operators) < len(kernels) or len(operators) < 2:
        return None
    alike = ("stride_h", "stride_w", "dilation", "groups")
    first = operators[0]
    shape = first.outputs[0].shape[2:]
    for other in operators:
        if any(other.attrs.get(a) != first.attrs.get(a) for a in alike) or other.outputs[0].shape[2:] != shape:
            return None
    sides = [(op.attrs.get("kernel_h", 1), op.attrs.get("kernel_w", 1)) for op in operators]
    high, wide = max(h for h, _ in sides), max(w for _, w in sides)
    grown = [high * wide / (h * w) for h, w in sides]
    size = max(sum(_size(t.shape) for t in op.inputs) for op in operators) * _bytes(first)
    size += sum(op.write_bytes for op in operators)
    size += sum(round(op.weight_bytes * more) for op, more in zip(operators, grown, strict=True))
    results = sum(prod(t.shape) for op in operators for t in op.outputs)
    return Kernel(
        "+".join(kernel.name for kernel in kernels),
        sum(kernel.compute_ns * more for kernel, more in zip(kernels, grown, strict=True)),
        size * 1e9 / bandwidth if bandwidth else 0.0,
        kernels[0].launch_ns,
        max(min(total, -(-results // BLOCK)), 1),
        size,
        None,
    )


def _size(shape: Sequence[int]) -> int:
    return prod(max(size, 1) for size in shape)


def _bytes(operator: Operator) -> int:
    return DTYPE_BYTES[operator.dtype]
