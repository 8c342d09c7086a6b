"""Roofline: operator times on an engine from peak rate, efficiency, bandwidth and launch overhead.

Williams, Waterman, Patterson, "Roofline", CACM 52(4) 2009: an operator takes the longer of its arithmetic at the
reached rate and its DRAM traffic at the engine's bandwidth; here a launch overhead is added per segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from socsched.cost.cost import Segment, sources_of, trust
from socsched.descriptor.platform import Engine, EngineMode, Figure, Link, Precision
from socsched.graph.operators import Operator, StageWork, tensor_bytes

OPERATOR_CLASS = {
    "conv2d": "conv", "conv2d_transpose": "conv", "winograd": "winograd", "depthwise": "depthwise",
    **dict.fromkeys(("dense", "matmul", "pillar_features"), "gemm"),
    **dict.fromkeys(
        ("relu", "add", "concat", "max_pool", "reduce_max", "scatter", "erf", "gather", "layer_norm", "cast",
         "layout_transform", "resize2d", "avg_pool", "global_avg_pool", "reduce_mean", "reduce_sum", "sigmoid", "tanh",
         "exp", "sqrt", "log", "abs", "group_norm", "argmax", "topk", "grid_sample", "scatter_nd", "clip", "leaky_relu",
         "subtract", "multiply", "divide", "maximum", "minimum", "softmax", "slice", "transpose", "pad", "reshape"),
        "elementwise",
    ),
}  # fmt: skip
"""Operator kind -> efficiency class of `Precision.efficiency`; anything else is "default"."""
INSTEAD = {"depthwise": "elementwise", "winograd": "conv"}
"""Class substituted where a platform gives no efficiency: a depthwise convolution is memory-bound."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Segments of one job with the provenance, sources and relative error of their times (`cost.cost.trust`).

    `lower`: a lower bound (host code, whose accesses depend on data), to which a time from other hardware is preferred.
    """

    foreign: ClassVar[bool] = False
    segments: tuple[Segment, ...]
    provenance: str
    source: str
    error: float
    lower: bool = False

    @property
    def time_ns(self) -> int:
        """Return the duration of the job alone on the SoC."""
        return sum(segment.time_ns for segment in self.segments)


def launches_per_operator(engine: Engine) -> bool:
    """Return whether every operator is a separate segment (kernels), rather than a whole job being one (loadables)."""
    return engine.preemption.kind == "segment" and engine.preemption.segment_kind == "kernel"


def efficiency(precision: Precision, kind: str) -> Figure:
    """Return the share of peak an operator kind reaches; that of class "default" where its own is not given."""
    table, own = precision.efficiency, OPERATOR_CLASS.get(kind, "default")
    figure = table.get(own) or table.get(INSTEAD.get(own, "default")) or table.get("default")
    return figure or Figure(1.0, "assumed", note="no efficiency given")


def kind_of(op: Operator) -> str:
    """Return the kind an operator is charged as.

    A convolution with one group per channel is "depthwise"; a 3x3 one of stride 1 on an image of 32 or more 4x4 tiles
    is "winograd", which needs fewer multiplications on engines that use it (the efficiency may then exceed 1); a
    recurrent layer is the products of its steps, "dense".
    """
    if op.attrs.get("turns"):
        return "dense"
    if op.kind != "conv2d":
        return op.kind
    attrs, groups = op.attrs, op.attrs.get("groups", 1)
    if 1 < groups == attrs.get("in_channels"):
        return "depthwise"
    square = attrs.get("kernel_h") == attrs.get("kernel_w") == 3 and attrs.get("dilation", 1) == groups == 1
    unit = attrs.get("stride_h") == attrs.get("stride_w") == 1
    *_, height, width = op.outputs[0].shape
    return "winograd" if square and unit and -(-height // 4) * -(-width // 4) >= 32 else op.kind


def roofs_ns(
    op: Operator,
    engine: Engine,
    mode: EngineMode,
    precision: Precision,
    units: int,
    dram: float,
    reached: Figure | None = None,
) -> tuple[float, float]:
    """Return the time (ns) of an operator's arithmetic and of its DRAM traffic; the longer one is its duration.

    `reached`: share of the peak that it reaches, that of its kind if not given.
    """
    reached = reached or efficiency(precision, kind_of(op))
    peak = units * mode.clock_hz * precision.ops_per_cycle.value
    compute = op.flops / (peak * reached.value)
    bandwidth = engine.bandwidth.value if engine.link else min(engine.bandwidth.value, dram)
    # every step of a recurrent layer reads the weights again: whether a cache keeps them meanwhile is not known
    again = (
        op.weight_bytes * (op.attrs["turns"] / op.attrs["directions"] - 1) if op.attrs.get("turns") and op.flops else 0
    )
    return compute * 1e9, (op.bytes + again) / bandwidth * 1e9


def crossing_bytes(work: StageWork, engine: Engine) -> int:
    """Return the bytes of one job that cross the link of an engine with memory of its own.

    Its inputs and outputs; what its weights have more than there is room for, which is loaded anew for every job; and
    the tensors of operators whose inputs and outputs together do not fit on chip, where the engine states how much
    does.  Nothing where the engine keeps tensors: then hand-overs cross.
    """
    if engine.keeps:
        return 0
    border = sum(map(tensor_bytes, (*work.inputs, *work.outputs)))
    room = engine.weights.size.value if engine.weights else math.inf
    loaded = max(sum(op.weight_bytes for op in work.operators) - room, 0)
    most = engine.sram.value if engine.sram else math.inf
    spilled = sum(size for op in work.operators if (size := op.read_bytes + op.write_bytes) > most)
    return int(border + loaded + spilled)


def estimate(work: StageWork, engine: Engine, mode: EngineMode, units: int, dram: float) -> Estimate:
    """Return the roofline estimate of a stage on `units` units of an engine; `dram` in bytes/s."""
    precision = engine.precisions[work.precision]
    reached = [efficiency(precision, kind_of(op)) for op in work.operators]
    roofs = [
        roofs_ns(op, engine, mode, precision, units, dram, share)
        for op, share in zip(work.operators, reached, strict=True)
    ]
    made = segments(work.operators, [max(roof) for roof in roofs], engine, work.stage)
    if engine.link is not None:
        made = _behind_link(made, work, engine, engine.link, dram)
    parts: list[tuple[float, Sequence[Figure]]] = [
        (compute, (precision.ops_per_cycle, share)) if compute > memory else (memory, (engine.bandwidth,))
        for share, (compute, memory) in zip(reached, roofs, strict=True)
    ]
    parts.append((sum(segment.fixed_ns for segment in made), (engine.launch_ns, engine.submit_ns)))
    if engine.link is not None:
        moved = sum(segment.bytes for segment in made) / engine.host_bandwidth(dram) * 1e9
        parts.append((moved, (engine.link.bandwidth,)))
    provenance, error = trust(parts)
    return Estimate(made, provenance, sources_of(figure for _, figures in parts for figure in figures), error)


def _behind_link(
    made: Sequence[Segment], work: StageWork, engine: Engine, link: Link, dram: float
) -> tuple[Segment, ...]:
    """Return a job's segments with the transfers before and after them; only these use the bandwidth of main memory."""
    inner = tuple(Segment(one.name, one.time_ns, one.time_ns, 0) for one in made)
    if link.keeps:
        return inner
    total, after = crossing_bytes(work, engine), sum(map(tensor_bytes, work.outputs))
    moves = []
    for name, size, tensors in (("to the engine", total - after, work.inputs), ("back", after, work.outputs)):
        fixed = round(link.latency_ns.value * len(tensors))
        moves.append(_segment(f"{work.stage} {name}", size / engine.host_bandwidth(dram) * 1e9, size, fixed))
    if launches_per_operator(engine):
        return (moves[0], *inner, moves[1])
    parts = (moves[0], *inner, moves[1])
    time, fixed = (sum(getattr(one, name) for one in parts) for name in ("time_ns", "fixed_ns"))
    return (Segment(work.stage, time, fixed, total),)


def segments(operators: Sequence[Operator], times: Sequence[float], engine: Engine, name: str) -> tuple[Segment, ...]:
    """Cut a job into the segments its engine runs, launch and submission included; `times` in ns without either.

    Where an engine keeps tensors, stages that follow each other are submitted together, so that a plan charges it.
    """
    launch, submit = round(engine.launch_ns.value), 0 if engine.keeps else round(engine.submit_ns.value)
    if launches_per_operator(engine):
        parts = [(op.name, time, op.bytes) for op, time in zip(operators, times, strict=True)]
    else:
        parts = [(name, sum(times), sum(op.bytes for op in operators))]
    return tuple(
        _segment(part, time, size, launch + (submit if index == 0 else 0))
        for index, (part, time, size) in enumerate(parts)
    )


def _segment(name: str, time: float, size: int, fixed: int) -> Segment:
    return Segment(name, max(math.ceil(time), 1) + fixed, fixed, size)


def rescale(parts: Sequence[Segment], total_ns: int, bandwidth: float) -> tuple[Segment, ...]:
    """Stretch or shrink segments in proportion so that they last `total_ns` together.

    Traffic counted per operator cannot exceed the engine's `bandwidth` (bytes/s) over a known time, so it is capped
    there; the rest stayed on chip.
    """
    old, done, elapsed, result = max(sum(s.time_ns for s in parts), 1), 0, 0, []
    for part in parts:
        elapsed += part.time_ns
        end = total_ns * elapsed // old
        time = max(end - done, 1)
        fixed = min(part.fixed_ns, time // 2)
        result.append(Segment(part.name, time, fixed, min(part.bytes, int((time - fixed) * bandwidth / 1e9))))
        done += time
    return tuple(result)
