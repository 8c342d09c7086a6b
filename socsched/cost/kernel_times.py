"""Times of networks from measured kernels of their families, on engines that state them (`Engine.kernel_times`).

A kernel's time is a sum of what its family takes for a call, an operation, a byte of tensors and a byte of weights,
and of what memory takes longer than a cache for as many bytes.  No rate is negative; they are fitted to the family's
kernels of several sizes, each of which counts alike, and those that help to predict a kernel left out are used.  That
error is the family's.

Several threads divide a kernel evenly, and take longer by what they lose, by a call, and by the bytes that one has to
fetch from another's cache: no more than such a cache holds, whatever the kernel's size.

Rejected: one rate a family (a small layer takes twice as long for each operation), the nearest measured size (jumps),
several threads by a fit of their own (what they hand each other is half of a small kernel and nothing of a large one).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np

from socsched.cost.roofline import Estimate, kind_of, segments
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import OWN, Engine
from socsched.graph.epilogues import SKIPPED, channels_read, inside
from socsched.graph.operators import Operator, StageWork, tensor_bytes

_T = TypeVar("_T")
ELEMENTWISE, COPY, READ, PACK, UNPACK = "elementwise", "copy", "read", "pack", "unpack"
QUANTISE, DEQUANTISE, QUANTISE_ROWS = "quantise", "dequantise", "quantise of rows"
CONVOLUTIONS = ("pointwise", "pixel", "conv", "transposed", "camera", "3x3 in tiles of 2", "3x3 in tiles of 4")
FAMILIES = {
    "depthwise": "depthwise", "conv2d_transpose": "transposed", "dense": "dense", "matmul": "matmul",
    "layer_norm": "norm", "group_norm": "norm", "softmax": "softmax", "max_pool": "pool", "avg_pool": "pool",
    "global_avg_pool": "pool", "concat": "move", "slice": "move", "gather": "move", "pad": "move",
    "layout_transform": "move", "transpose": "transpose", "resize2d": "move", "scatter": "scatter", "erf": "erf",
    "sigmoid": "costly", "tanh": "costly", "exp": "costly", "log": "costly", "reduce_mean": "reduce",
    "reduce_sum": "reduce", "reduce_max": "reduce", "pillar_features": "pillars",
}  # fmt: skip
"""Kind of an operator -> family of its kernels; any other is elementwise."""
IMAGES = ("move", ELEMENTWISE)
"""Families whose kernels for images are others than those for any other tensors."""
PAGE = 4096
"""Distance in bytes of addresses that share a set of a core's first cache."""
TILES = 32
"""Least number of tiles of 4 x 4 or 2 x 2 results with which a convolution multiplies less (Winograd)."""
LEAST_ERROR, SHARED_ERROR = 0.14, 0.15
"""Relative error that is left of what is known best on one thread, and on several: programs of one source differ this
much between processes, and what threads take to hand data to each other between minutes."""
UNKNOWN = 1.0
"""Relative error of a family of which no kernel was measured."""
CONFIDENCE = 1.64
"""Standard deviations of the interval that holds 90 % of the errors."""
KEPT, OUTSIDE = 1 << 20, 0.5
"""Bytes of a tensor that caches keep while other stages run, and relative error of the time that larger ones cost."""
COSTLY = ("costly", "erf")
"""Families whose arithmetic takes time where another kernel computes it along: what they take longer than a move."""
CALL, OPS, MOVED, WEIGHTS = range(4)
"""Terms of a kernel's time."""
ARITHMETIC = 2.0
"""Operations a byte of tensors from which on a kernel is arithmetic."""
HEAVY = 0.125
"""Bytes of weights over those of tensors up to which a family's weights are no term: a constant of four bytes would
only tell its kernels from others, and a bias pay for it by the byte."""
SHORT = 5_000.0
"""Time (ns) below which a kernel's relative error does not matter."""
RECURRENT = 0.7
"""Relative error of a recurrent operator's time: its turns were not measured, only products and reads."""
UNKINDRED = 0.7
"""Relative error of an operator that only a runtime knows and that is priced as another with as much arithmetic."""
TERM = 0.01
"""Relative error that a term of a family's rates must save to be one."""
FEWEST = 3
"""Kernels of a family that were not disturbed, with which disturbed ones do not count."""
POINTS = 3
"""Points in a pillar of a LiDAR's scan, two and a half to four: what a pillar's other slots hold is not read."""
FEW = 4
"""Channels of an image as cameras deliver it at most; its first convolution is another kind of kernel."""


class Rates(NamedTuple):
    """Times (ns) of a call, an operation, a byte of tensors and one of weights.

    `error`: relative error of a kernel's time by them (90 % have less); `basis`: number of kernels that gave them;
    `handed`: time of a byte of tensors, up to `KEPT`, that threads hand each other.
    """

    call: float
    op: float
    moved: float
    weight: float
    error: float
    basis: float = 1
    handed: float = 0.0

    def time(self, ops: float, moved: float, weights: float) -> float:
        """Return the time (ns) of a kernel whose tensors a core's cache holds."""
        shared = self.handed * min(moved, KEPT)
        return self.call + self.op * ops + self.moved * moved + self.weight * weights + shared


def family(op: Operator) -> str:
    """Return the family of kernels that an operator's belongs to."""
    kind = kind_of(op)
    if kind in ("conv2d", "winograd") or (kind == "depthwise" and op.outputs[0].shape[1] != op.attrs["groups"]):
        return _convolution(op)
    if _is_arithmetic(op):
        return "conv" if op.whole == "other_conv" else "products"
    name = FAMILIES.get(kind, ELEMENTWISE)
    if kind == "resize2d" and op.attrs.get("bilinear"):
        return "linear"
    rank = len(op.outputs[0].shape) if op.outputs else 4
    if kind == "reduce_mean" and op.attrs.get("spatial"):
        return "pool"
    if name == "dense":
        return name if rank == 2 else "products"
    if name == "matmul" and op.inputs[0].shape[-2:-1] == (1,):
        return "products of rows"
    return f"{name} of tokens" if name in IMAGES and rank != 4 else name


def _is_arithmetic(op: Operator) -> bool:
    """Return whether an operator without a kind here (a 3-D convolution) takes the time of its arithmetic.

    Element-wise kernels tell the time of a byte only: by theirs, its operations would be free.
    """
    return op.kind == "onnx" and not op.attrs.get("turns") and op.flops > ARITHMETIC * (op.read_bytes + op.write_bytes)


def _convolution(op: Operator) -> str:
    attrs, (*_, height, width) = op.attrs, op.outputs[0].shape
    if attrs.get("in_channels", FEW + 1) <= FEW:
        return "camera"
    if attrs.get("kernel_h") == attrs.get("kernel_w") == 1:
        return "pixel" if height == width == 1 else "pointwise"  # threads divide rows
    plain = all(attrs.get(name, 1) == 1 for name in ("stride_h", "stride_w", "dilation", "groups"))
    if plain and attrs.get("kernel_h") == attrs.get("kernel_w") == 3:
        for size in (4, 2):
            if -(-height // size) * -(-width // size) >= TILES:
                return f"3x3 in tiles of {size}"
    return "conv"


def work_of(op: Operator, block: int = 1) -> tuple[float, float, float]:
    """Return operations, bytes of tensors and of weights as a kernel has them.

    Channels of a convolution fill blocks; one in groups is computed with zeros between the groups of a block.
    """
    name, groups = family(op), int(op.attrs.get("groups", 1))
    times = 1.0
    if groups > 1 and name in CONVOLUTIONS:
        channels = int(op.attrs["in_channels"])
        times = channels_read(channels, op.outputs[0].shape[1], groups, block)[0] * groups / channels
    elif name in CONVOLUTIONS and op.outputs:
        inputs, outputs = op.attrs.get("in_channels", 0), op.outputs[0].shape[1]
        times = _filled(outputs, block) * (_filled(inputs, block) if inputs > FEW else 1.0)
    if name == "conv" and groups == 1 and op.inputs and len(op.inputs[0].shape) == 4:
        share = inside(op.attrs, op.inputs[0].shape, op.outputs[0].shape)
        times *= share if share < SKIPPED else 1.0
    return op.flops * times, op.read_bytes * _slots_read(op) + op.write_bytes, op.weight_bytes * times


def _slots_read(op: Operator) -> float:
    """Return the share that a kernel reads of its tensors."""
    return min(POINTS / op.inputs[0].shape[1], 1.0) if family(op) == "pillars" else 1.0


def _filled(channels: float, block: int) -> float:
    """Return the channels that a kernel computes over those that there are."""
    return math.ceil(channels / block) * block / channels if channels else 1.0


def beyond_cache(times: KernelTimes, moved: float, weights: float, threads: int) -> float:
    """Return the time (ns) that bytes of tensors and of weights take longer than as many that a core's cache holds.

    Copies and reads of several sizes tell; between them the time of a byte follows the logarithm of the size.
    """
    longer, size = 0.0, math.log(max(moved + weights, 1.0))
    for family, amount in ((COPY, moved), (READ, weights)):
        sizes, rates, _ = _memory(times, family, threads)
        longer += float(amount * np.interp(size, sizes, rates)) if sizes else 0.0
    return longer


@lru_cache(maxsize=64)
def _memory(times: KernelTimes, family: str, threads: int) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Return logarithms of sizes of copies or reads, times (ns) of a byte beyond the smallest's, and the latter."""
    rows = sorted(
        (one.moved, one.time_ns / one.moved) for one in times.kernels if (one.family, one.threads) == (family, threads)
    )
    base = rows[0][1] if rows else 0.0
    return tuple(math.log(size) for size, _ in rows), tuple(max(rate - base, 0.0) for _, rate in rows), base


def kernel_time(times: KernelTimes, op: Operator, threads: int) -> tuple[float, float]:
    """Return time (ns) and relative error of an operator under a runtime on a number of threads.

    An operator that the kernel before it computes along (`graph.epilogues`) takes what it adds to that one: the traffic
    of another operand, the arithmetic of a costly function.
    """
    rates = rates_of(times, family(op), threads)
    ops, moved, weights = work_of(op, times.block)
    if not (ops or moved or weights):  # a reshape is another name of its operand
        return 0.0, 0.0
    if op.attrs.get("merged"):
        if family(op) in COSTLY:
            return max(rates.moved - rates_of(times, ELEMENTWISE, threads).moved, 0.0) * moved, rates.error
        return rates.moved * (moved / len(op.inputs) / 2 if len(op.inputs) > 1 else 0.0), 1.0
    if op.attrs.get("turns"):
        return _in_turns(times, op, threads, rates)
    time = rates.time(ops, moved, weights)
    error = max(rates.error, UNKINDRED) if _is_arithmetic(op) else rates.error
    written = min(float(op.write_bytes), moved)
    traffic = (moved + written) / 1.5  # a line is read before it is written: a copy moves three for two
    return time + beyond_cache(times, traffic, weights, _known(times, threads)[-1]), error


def _in_turns(times: KernelTimes, op: Operator, threads: int, rates: Rates) -> tuple[float, float]:
    """Return time and relative error of a recurrent operator: products in turn, each of which reads all weights.

    A turn takes as long as its arithmetic or as the weights take from the cache that keeps them between turns. Copies
    tell how long: reads are timed with an addition a word, which products do many at a time.
    """
    if not op.flops:  # another result of the same operator
        return 0.0, 0.0
    turns, weights = op.attrs["turns"], op.weight_bytes / op.attrs["directions"]
    reads = [
        base + float(np.interp(math.log(max(weights, 1.0)), sizes, longer))
        for sizes, longer, base in (_memory(times, COPY, count) for count in (1, _known(times, threads)[-1]))
        if sizes
    ]
    read = weights * min(reads, default=rates.weight)  # threads do not share a turn that one of them computes sooner
    turn = max(rates.op * op.flops / turns, read)
    return rates.call + turns * turn + rates.moved * (op.read_bytes + op.write_bytes), max(rates.error, RECURRENT)


def estimate(work: StageWork, engine: Engine, units: int, runtime: str = OWN) -> Estimate | None:
    """Return the time of a network on units of an engine from the measured kernels of the runtime that computes it.

    None where the engine states none in the network's precision, and for host functions.
    """
    tables = {one.precision: one for one in engine.kernel_times if one.runtime == (runtime or OWN)}
    times = tables.get(work.precision)
    computed = (work.kernels if times is not None and times.runtime == OWN else ()) or work.operators
    if times is None or not computed or any(op.kind == "function" for op in computed):
        return None
    kernels, durations = _priced(times, tables, work, computed, units)
    error = _error(units, kernels)
    # Processors change places: the time is that of the nearer way, which most probes see, and the interval holds the
    # other.  A part that only renames data takes no time in either.
    if units > 1 and times.elsewhere and any(durations):
        apart = {precision: replace(one, apart=True) for precision, one in tables.items()}
        _, longer = _priced(apart[work.precision], apart, work, computed, units)
        error = max(error, sum(longer) / sum(durations) * (1 + error / 2) - 1)
    made = [
        replace(one, bytes=min(one.bytes, int((one.time_ns - one.fixed_ns) * engine.bandwidth.value / 1e9)))
        for one in segments(computed, durations, engine, work.stage)  # what is faster came from caches
    ]
    return Estimate(
        tuple(made), "fitted", f"kernels of {times.runtime} {times.version} measured here {times.date}", error
    )


def _priced(
    times: KernelTimes, tables: Mapping[str, KernelTimes], work: StageWork, computed: Sequence[Operator], threads: int
) -> tuple[list[Kernel], list[float]]:
    """Return the kernels of a network, and the time (ns) of each of its operators."""
    kernels, durations = [], []
    for op in computed:
        table = tables.get("fp32", times) if op.attrs.get("floats") else times
        own = [Kernel(table, family(op), *kernel_time(table, op, threads))]
        for form, tensor in op.moves:  # for its sake, in fp32 among others (`graph.integers.in_kernels`)
            moving, share = (table, 2.0) if form in (PACK, UNPACK) else (times, 1.25)
            kind = form_of(form, tensor.shape, times.block)
            own.append(_moving(moving, kind, share * tensor_bytes(tensor), threads))
        durations.append(sum(one.time for one in own))
        kernels += own
    borders = list(_borders(times, work, threads))
    durations[0] += sum(one.time for one in borders if one.family == PACK)
    durations[-1] += sum(one.time for one in borders if one.family != PACK)
    return [*kernels, *borders], durations


class Kernel(NamedTuple):
    """Time (ns) and relative error of a kernel of a family by a table."""

    table: KernelTimes
    family: str
    time: float
    error: float


def form_of(form: str, shape: Sequence[int], block: int) -> str:
    """Return the family of the kernel that gives an image of this shape another form, by how it walks memory.

    Channels are planes of rows: rows of less than two vectors are copied value by value, and channels whose planes are
    whole pages apart drive each other out of the first cache.
    """
    if len(shape) != 4:
        return form
    if form == UNPACK:
        return f"{form} of short rows" if shape[3] < 2 * block else form
    paged = shape[1] >= block and 4 * shape[2] * shape[3] % PAGE == 0
    return f"{form} of pages" if paged and form in (PACK, QUANTISE_ROWS) else form


def _moving(table: KernelTimes, name: str, moved: float, threads: int) -> Kernel:
    """Return a kernel that reads and writes so many bytes to give them another form."""
    rates = rates_of(table, name, threads)
    longer = beyond_cache(table, moved, 0.0, _known(table, threads)[-1])
    return Kernel(table, name, rates.time(0.0, moved, 0.0) + longer, rates.error)


def _borders(times: KernelTimes, work: StageWork, threads: int) -> Iterator[Kernel]:
    """Yield what tensors cost that enter or leave a network, which are floats in any precision.

    Images whose channels fill no whole blocks are converted, and all that become bytes, but for one that a convolution
    of few channels alone reads, which does it itself; between two jobs other stages drive large tensors out of the
    caches.
    """
    scale = 4 if times.precision == "int8" else 1
    of_images = [op for op in work.operators if family(op) in (*CONVOLUTIONS, "depthwise", "pool", "linear")]
    read = {tensor.shape for op in of_images for tensor in op.inputs}
    made = {tensor.shape for op in of_images for tensor in op.outputs}
    slots = {op.inputs[0].shape: _slots_read(op) for op in work.operators if op.inputs}
    for name, tensors, images in ((PACK, work.inputs, read), (UNPACK, work.outputs, made)):
        for tensor in tensors:
            size = scale * tensor_bytes(tensor)
            readers = [family(op) for op in of_images if any(one.shape == tensor.shape for one in op.inputs)]
            itself = scale > 1 and name == PACK and readers == ["camera"]
            if times.block > 1 and len(tensor.shape) == 4 and tensor.shape in images and not itself:
                form = form_of(name, tensor.shape, times.block)
                if scale > 1 and name == PACK:
                    yield _moving(times, form, 1.25 * size, threads)
                elif tensor.shape[1] % times.block:
                    yield _moving(times, form, 2.0 * size, threads)
            sizes, rates, _ = _memory(times, COPY, _known(times, threads)[-1])
            touched = size * (slots.get(tensor.shape, 1.0) if name == PACK else 1.0)
            if sizes and touched > KEPT:
                longer = touched * (rates[-1] - float(np.interp(math.log(touched), sizes, rates)))
                yield Kernel(times, COPY, longer, OUTSIDE)


def _error(threads: int, kernels: Sequence[Kernel]) -> float:
    """Return the relative error of a sum of kernels.

    The mean error of a family's kernels is that of one over the root of their number, and as uncertain as the number of
    measured ones allows; families err independently.
    """
    squares = 0.0
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for one in kernels:
        groups.setdefault((one.table.precision, one.family), []).append(one)
    for mine in groups.values():
        total = sum(one.time for one in mine)
        if not total:
            continue
        effective = total**2 / sum(one.time**2 for one in mine)
        mean = math.sqrt(min(1 / effective + 1 / rates_of(mine[0].table, mine[0].family, threads).basis, 1.0))
        squares += (mean * sum(one.time * one.error for one in mine)) ** 2
    least = LEAST_ERROR if threads == 1 else SHARED_ERROR
    return math.sqrt(squares) / max(sum(one.time for one in kernels), 1.0) + least


def rates_of(times: KernelTimes, name: str, threads: int) -> Rates:
    """Return the rates of a family on a number of threads, between those of measured numbers of threads.

    A family without kernels has those of element-wise ones, with a large error.
    """
    low, high = _known(times, threads)
    first, last = (_fitted(times, name, n) for n in (low, high))
    if low == high:
        return first
    share = (1 / low - 1 / threads) / (1 / low - 1 / high)
    return Rates(*(one + (other - one) * share for one, other in zip(first, last, strict=True)))


def _known(times: KernelTimes, threads: int) -> tuple[int, int]:
    """Return the measured numbers of threads around one."""
    known = sorted({kernel.threads for kernel in times.kernels})
    return max((n for n in known if n <= threads), default=known[0]), min(
        (n for n in known if n >= threads), default=known[-1]
    )


@lru_cache(maxsize=512)
def _fitted(times: KernelTimes, name: str, threads: int) -> Rates:
    """Return the rates of a family on a measured number of threads."""
    kernels, fewest = _in_cache(times, name, threads), _known(times, 1)[0]
    if not kernels and threads > fewest and _in_cache(times, name, fewest):  # processors changed places in every turn
        alone, share = _fitted(times, name, fewest), fewest / threads
        return Rates(alone.call, alone.op * share, alone.moved * share, alone.weight * share, UNKNOWN)
    if not kernels:
        if name == ELEMENTWISE:
            return Rates(0.0, 1.0, 1.0, 1.0, UNKNOWN)
        like, _, kind = name.partition(" of ")  # a kind of a family that no kernel is of
        return _fitted(times, like if kind else ELEMENTWISE, threads)._replace(error=UNKNOWN)
    if threads > fewest and (pairs := _pairs(_in_cache(times, name, fewest), kernels)):
        near = _divided(_fitted(times, name, fewest), pairs, threads / fewest)
        farther = _in_cache(replace(times, kernels=times.elsewhere), name, threads) if times.apart else []
        return _farther(near, _pairs(kernels, farther)) if farther else near
    kernels = _quiet(kernels, kernels)
    rates, error = _chosen(kernels)
    call, op, moved, weight = rates
    return Rates(call, op, moved, weight, _relative(error, kernels), len(kernels))


def _in_cache(times: KernelTimes, name: str, threads: int) -> list[KernelTime]:
    """Return the kernels of a family without what memory takes longer than a cache."""
    return [
        replace(one, time_ns=max(one.time_ns - beyond_cache(times, one.moved, one.weights, threads), one.time_ns / 4))
        for one in times.kernels
        if (one.family, one.threads) == (name, threads)
    ]


def _quiet(kernels: list[_T], timed: Sequence[KernelTime]) -> list[_T]:
    """Return those of which the time was not disturbed, all where these are too few."""
    quiet = [kernel for kernel, one in zip(kernels, timed, strict=True) if one.calls]
    return quiet if len(quiet) >= FEWEST else kernels


def _relative(error: float, kernels: Sequence[KernelTime]) -> float:
    """Return the error of nine kernels in ten from the root mean square and the kernels' spread."""
    return min(CONFIDENCE * error + sorted(one.spread for one in kernels)[len(kernels) // 2] / 2, UNKNOWN)


def _pairs(few: Sequence[KernelTime], many: Sequence[KernelTime]) -> list[tuple[KernelTime, KernelTime]]:
    """Return the same kernels on few and on many threads."""
    waiting: dict[tuple[float, ...], list[KernelTime]] = {}
    for one in few:
        waiting.setdefault((one.ops, one.moved, one.weights), []).append(one)
    return [(same.pop(0), one) for one in many if (same := waiting.get((one.ops, one.moved, one.weights)))]


def _divided(alone: Rates, pairs: list[tuple[KernelTime, KernelTime]], share: float) -> Rates:
    """Return the rates on several threads, from those on one, of kernels measured on both.

    A part of a kernel takes its share of the kernel's time alone; what all take longer grows with that share, with the
    call, or with the bytes that threads hand each other, as predicts left-out kernels best.
    """
    pairs = _quiet(pairs, [many for _, many in pairs])
    even = [few.time_ns / share for few, _ in pairs]
    times = [many.time_ns for _, many in pairs]
    work = [(part, 1.0, min(many.moved, KEPT)) for part, (_, many) in zip(even, pairs, strict=True)]
    (lost, call, handed), error = _selected(work, times, even)
    error = _relative(error, [many for _, many in pairs])
    factor = (1 + lost) / share
    rates = (factor * alone.call + call, factor * alone.op, factor * alone.moved, factor * alone.weight)
    return Rates(*rates, min(math.hypot(alone.error, error), UNKNOWN), len(pairs), handed)


def _farther(near: Rates, pairs: list[tuple[KernelTime, KernelTime]]) -> Rates:
    """Return the rates for processors that lie farther apart, of kernels measured either way.

    Arithmetic does not know how they lie: what takes longer is the call, or the bytes that threads hand each other.
    """
    pairs = _quiet(pairs, [far for _, far in pairs])
    work = [(1.0, min(far.moved, KEPT)) for _, far in pairs]
    (call, handed), _ = _selected(work, [far.time_ns for _, far in pairs], [one.time_ns for one, _ in pairs])
    return near._replace(call=near.call + call, handed=near.handed + handed)


def _chosen(kernels: Sequence[KernelTime]) -> tuple[list[float], float]:
    """Return rates and their root mean square relative error, of the terms that predict left-out kernels best.

    Every term has to earn its place: with as many terms as kernels any times would be explained.  Operations are one of
    them where a kernel is arithmetic, bytes of tensors where it moves data, so that larger kernels take longer.
    """
    main = OPS if all(one.ops > ARITHMETIC * one.moved for one in kernels) else MOVED
    heavy = any(one.weights > HEAVY * one.moved for one in kernels)
    work = [(1.0, one.ops, one.moved, one.weights if heavy else 0.0) for one in kernels]
    return _selected(work, [one.time_ns for one in kernels], main=main)


def _selected(
    work: Sequence[Sequence[float]],
    times: Sequence[float],
    base: Sequence[float] | None = None,
    main: int | None = None,
) -> tuple[list[float], float]:
    """Return the rates of the terms that predict left-out times best, and their root mean square relative error.

    `base`: what every time has in any case; `main`: a term that is always one, without which no term may do.
    """
    count, width = len(times), len(work[0])
    base = base or [0.0] * count

    def rates_of_terms(terms: Sequence[int], rows: Sequence[int]) -> list[float]:
        if not rows:  # the only time is left out
            return [0.0] * width
        some = [[work[row][term] if term in terms else 0.0 for term in range(width)] for row in rows]
        return nonnegative(some, [times[row] for row in rows], [base[row] for row in rows])

    def error_of(terms: Sequence[int]) -> float:
        off = 0.0
        for left in range(count):
            rates = rates_of_terms(terms, [row for row in range(count) if row != left])
            predicted = base[left] + sum(rate * amount for rate, amount in zip(rates, work[left], strict=True))
            off += math.log((predicted + SHORT) / (times[left] + SHORT)) ** 2
        return math.sqrt(off / count) + TERM * len(terms)

    sizes = range(1 if main is not None else 0, min(3, count - 1) + 1)
    choices = [terms for size in sizes for terms in itertools.combinations(range(width), size)]
    choices = [terms for terms in choices if main is None or main in terms]
    least, best = min(((error_of(terms), terms) for terms in choices), default=(math.inf, ()))
    if least >= UNKNOWN / CONFIDENCE:
        best = best if main is None else (main,)
        least = UNKNOWN / CONFIDENCE
    return rates_of_terms(best, range(count)), least


def nonnegative(
    work: Sequence[Sequence[float]], times: Sequence[float], base: Sequence[float] | None = None
) -> list[float]:
    """Return the rates, none of them negative, of each column of `work` with the least sum of squared relative errors.

    `base`: what each time has besides.  A handful of columns: every choice of them is tried, which needs no solver.
    """
    table = np.array(work, float) / np.array(times, float)[:, None]
    count, width = table.shape
    target = np.ones(count) if base is None else 1 - np.array(base, float) / np.array(times, float)
    best, least = [0.0] * width, float((target**2).sum())
    used = [column for column in range(width) if table[:, column].any()]
    for size in range(1, min(len(used), count) + 1):
        for columns in itertools.combinations(used, size):
            some = table[:, columns]
            scale = np.maximum(np.abs(some).max(axis=0), 1e-300)
            found = np.linalg.lstsq(some / scale, target, rcond=None)[0] / scale
            rest = float(((some @ found - target) ** 2).sum())
            if (found >= 0).all() and rest < least - 1e-9:
                best, least = [0.0] * width, rest
                for column, rate in zip(columns, found.tolist(), strict=True):
                    best[column] = rate
    return best
