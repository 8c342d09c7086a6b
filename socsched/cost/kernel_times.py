"""Times of networks from measured kernels of their families, on engines that state them (`Engine.kernel_times`).

A kernel's time is a sum of what its family takes for a call, an operation, a byte of tensors and a byte of weights.
None of the four is negative; they are fitted to the family's kernels of several sizes, every one of which counts alike.
The error of a family is that of kernels that its fit has not used, each left out in turn; errors of families are
independent of each other, and those of kernels of one family are the same error.

Rejected: one rate a family (a small layer takes twice as long for each operation), the nearest measured size (jumps).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from socsched.cost.roofline import Estimate, kind_of, segments
from socsched.descriptor.kernel_times import KernelTime, KernelTimes
from socsched.descriptor.platform import OWN, Engine
from socsched.graph.operators import Operator, StageWork

ELEMENTWISE = "elementwise"
FAMILIES = {
    "winograd": "winograd", "conv2d": "conv", "pointwise": "pointwise", "depthwise": "depthwise", "grouped": "conv",
    "conv2d_transpose": "conv", "dense": "dense", "matmul": "matmul", "layer_norm": "norm", "group_norm": "norm",
    "softmax": "softmax", "max_pool": "pool", "avg_pool": "pool", "global_avg_pool": "pool", "concat": "move",
    "slice": "move", "transpose": "transpose", "gather": "move", "pad": "move", "reshape": "move",
    "layout_transform": "move", "erf": "costly", "sigmoid": "costly", "tanh": "costly", "exp": "costly",
    "log": "costly",
}  # fmt: skip
"""Kind of an operator -> family of its kernels; any other is elementwise."""
LEAST_ERROR = 0.06
"""Relative error that is left of what is known best: programs of one source differ this much between processes."""
UNKNOWN = 1.0
"""Relative error of a family of which no kernel was measured."""
CONFIDENCE = 1.64
"""Standard deviations of the interval that holds 90 % of the errors."""
FEW = 3
"""Channels of an image as cameras deliver it: its first convolution has kernels of its own."""


class Rates(NamedTuple):
    """Times (ns) of a call, an operation, a byte of tensors and one of weights, and the relative error of kernels."""

    call: float
    op: float
    moved: float
    weight: float
    error: float


def family(op: Operator) -> str:
    """Return the family of kernels that an operator's belongs to."""
    kind = kind_of(op)
    attrs = op.attrs
    if kind == "conv2d":
        if attrs.get("groups", 1) > 1:
            kind = "grouped"
        elif attrs.get("kernel_h") == attrs.get("kernel_w") == 1:
            kind = "pointwise"
    return FAMILIES.get(kind, ELEMENTWISE)


def work_of(op: Operator) -> tuple[float, float, float]:
    """Return operations, bytes of tensors and of weights as a kernel has them; groups of a convolution are computed as
    one that has zeros between them."""
    groups = op.attrs.get("groups", 1) if family(op) == "conv" else 1
    return op.flops * groups, op.read_bytes + op.write_bytes, op.weight_bytes * groups


def kernel_time(times: KernelTimes, op: Operator, threads: int) -> tuple[float, float]:
    """Return time (ns) and relative error of an operator under a runtime on a number of threads."""
    rates = rates_of(times, family(op), threads)
    ops, moved, weights = work_of(op)
    return rates.call + rates.op * ops + rates.moved * moved + rates.weight * weights, rates.error


def estimate(work: StageWork, engine: Engine, units: int, runtime: str = OWN) -> Estimate | None:
    """Return the time of a network on units of an engine from the measured kernels of the runtime that computes it.

    None where the engine states none in the network's precision, and for host functions.
    """
    asked = (runtime or OWN, work.precision)
    times = next((one for one in engine.kernel_times if (one.runtime, one.precision) == asked), None)
    if times is None or not work.operators or any(op.kind == "function" for op in work.operators):
        return None
    errors: dict[str, float] = {}
    found = []
    for op in work.operators:
        time, error = kernel_time(times, op, units)
        errors[family(op)] = errors.get(family(op), 0.0) + time * error
        found.append(time)
    made = segments(work.operators, found, engine, work.stage)
    error = math.hypot(*errors.values()) / max(sum(found), 1) + LEAST_ERROR
    return Estimate(made, "fitted", f"kernels of {times.runtime} {times.version} measured here {times.date}", error)


def rates_of(times: KernelTimes, name: str, threads: int) -> Rates:
    """Return the rates of a family on a number of threads, between those of measured numbers of threads.

    A family without kernels has those of element-wise ones, with a large error.
    """
    known = sorted({kernel.threads for kernel in times.kernels})
    low = max((n for n in known if n <= threads), default=known[0])
    high = min((n for n in known if n >= threads), default=known[-1])
    first, last = (_fitted(times, name, n) for n in (low, high))
    if low == high:
        return first
    share = (1 / low - 1 / threads) / (1 / low - 1 / high)
    return Rates(*(one + (other - one) * share for one, other in zip(first, last, strict=True)))


@lru_cache(maxsize=512)
def _fitted(times: KernelTimes, name: str, threads: int) -> Rates:
    """Return the rates of a family on a measured number of threads."""
    kernels = [one for one in times.kernels if (one.family, one.threads) == (name, threads)]
    if not kernels:
        if name == ELEMENTWISE:
            return Rates(0.0, 1.0, 1.0, 1.0, UNKNOWN)
        return _fitted(times, ELEMENTWISE, threads)._replace(error=UNKNOWN)
    whole = _least(kernels)
    if len(kernels) < 2:
        return Rates(*whole, UNKNOWN / 2)
    errors = []
    for left in range(len(kernels)):
        others = _least([one for number, one in enumerate(kernels) if number != left])
        errors.append(float(np.log(max(_time(others, kernels[left]), 1.0) / kernels[left].time_ns)))
    spread = max(one.spread for one in kernels)
    return Rates(*whole, min(CONFIDENCE * math.sqrt(sum(e * e for e in errors) / len(errors)) + spread / 2, UNKNOWN))


def _time(rates: Sequence[float], kernel: KernelTime) -> float:
    work = (1.0, kernel.ops, kernel.moved, kernel.weights)
    return sum(rate * amount for rate, amount in zip(rates, work, strict=True))


def _least(kernels: Sequence[KernelTime]) -> tuple[float, float, float, float]:
    """Return the rates, none of them negative, with the least sum of squared relative errors of the kernels."""
    table = np.array([(1.0, one.ops, one.moved, one.weights) for one in kernels]) / [[k.time_ns] for k in kernels]
    best, least = np.zeros(4), math.inf
    for size in range(1, min(4, len(kernels)) + 1):
        for columns in itertools.combinations(range(4), size):
            some = table[:, columns]
            scale = np.maximum(np.abs(some).max(axis=0), 1e-300)
            found = np.linalg.lstsq(some / scale, np.ones(len(kernels)), rcond=None)[0] / scale
            rest = float(((some @ found - 1) ** 2).sum())
            if (found >= 0).all() and rest < least - 1e-9:
                best, least = np.zeros(4), rest
                best[list(columns)] = found
    return float(best[0]), float(best[1]), float(best[2]), float(best[3])
