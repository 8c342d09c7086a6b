"""Passes of a network: what one kernel of an accelerator's runtime computes and moves, whatever the data type.

The operators of `graph.fusion` still hold every activation function, residual addition and gate; the runtimes that
were measured run these inside the convolution before.  A pass is such a convolution with all that rides on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod
from typing import Any

from socsched.graph.expand import COMPARISONS
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import Pass, Place

CHEAP = frozenset(
    ("relu", "clip", "add", "subtract", "multiply", "maximum", "minimum", "leaky_relu", "divide", "abs", "cast",
     "where", "floor", "ceil", "round", "sign", *COMPARISONS)
)  # fmt: skip
"""Element-wise operators of one instruction; the others (sigmoid, exp, tanh, sqrt) need a table or several."""
FREE = frozenset(("relu", "clip", "cast"))
"""Element-wise operators that convolutions do while they store; the others take the vector unit's time."""
PARTS = {"leaky_relu": -1, "erf": 4, "sigmoid": 1}
"""Operators around one that runtimes compute with it: GELU has four more, SiLU one; a leaky ReLU is two by itself."""
COSTLY = frozenset(("sigmoid", "exp", "tanh", "sqrt", "erf", "log", "sin", "cos", "power", "floor_mod"))
RIDERS = CHEAP | COSTLY | {"concat"}
"""Operators that cost less in one part with those before them."""
VIEWS = frozenset(("reshape",))
"""Operators that move nothing."""
LAYOUTS = ((0, 2, 3, 1), (0, 3, 1, 2))
"""Orders of a transpose between channels first and channels last."""
COPIES = frozenset(("concat", "slice", "transpose", "pad", "gather", "scatter_nd"))
UNCLASSED = frozenset(("function",))
"""Operators without a class."""
REDUCTIONS = frozenset(
    ("max_pool", "avg_pool", "global_avg_pool", "reduce_mean", "reduce_sum", "reduce_max", "argmax", "topk")
)


@dataclass(slots=True)
class _Cluster:
    """A pass being built: its first operator, the values inside, and what they need from outside."""

    head: Group
    values: set[str] = field(default_factory=set)
    sources: list[str] = field(default_factory=list)
    cheap: int = 0
    costly: int = 0
    weights: int = 0


def pass_class(one: Pass) -> str:
    """Return the class of a pass: its kind, "pointwise" for 1x1 convolutions."""
    return "pointwise" if one.kind == "conv" and one.kernel == 1 else one.kind


BALANCE = 100
"""Multiply-adds that weigh as much as an element moved, on a machine of no vendor: places hold for every engine."""


def place(passes: Iterable[Pass]) -> Place:
    """Return the place of a network among networks: its work by class of passes, and the logarithm of all as `size`."""
    work: dict[str, float] = {}
    for one in passes:
        kind = pass_class(one)
        work[kind] = work.get(kind, 0.0) + max(one.macs / BALANCE, one.read + one.written + one.weights)
    total = sum(work.values()) or 1.0
    return tuple(sorted({**{kind: share / total for kind, share in work.items()}, "size": log(total)}.items()))


def passes(graph: Graph, nominal: int = 0) -> tuple[Pass, ...]:
    """Return the passes of a network in the order of execution, with its varying dimension set to `nominal`.

    Empty where an operator has no class: code that the host runs.
    """
    if any(group.kind in UNCLASSED for group in graph.groups):
        return ()
    return _Passes(graph, nominal).run()


def restricted(graph: Graph, names: Collection[str]) -> Graph:
    """Return the part of a graph with the operators of these names; what others read of it are its outputs."""
    groups = tuple(group for group in graph.groups if group.name in names)
    results = {group.output for group in groups}
    others = {value for group in graph.groups if group.name not in names for value in group.inputs}
    outputs = tuple(value for value in results if value in others or value in graph.outputs)
    inputs = tuple(dict.fromkeys(value for group in groups for value in group.inputs if value not in results))
    return Graph(graph.network, inputs, outputs, groups, graph.values)


class _Passes:
    def __init__(self, graph: Graph, nominal: int) -> None:
        self.graph = graph
        self.nominal = nominal
        self.clusters: list[_Cluster] = []
        self.home: dict[str, int] = {}
        self.alias: dict[str, str] = {}

    def run(self) -> tuple[Pass, ...]:
        for group in self.graph.groups:
            self.add(group)
        used = self.readers()
        live = self.liveness(used)
        return tuple(self.finished(index, used, live[index]) for index in range(len(self.clusters)))

    def shape(self, value: str) -> tuple[int, ...]:
        return tuple(side if side >= 0 else self.nominal for side in self.graph.values[value].shape)

    def size(self, value: str) -> int:
        return prod(max(side, 1) for side in self.shape(value))

    def plain(self, value: str) -> str:
        """Return the value behind views."""
        return self.alias.get(value, value)

    def add(self, group: Group) -> None:
        sources = [self.plain(value) for value in group.inputs]
        if group.kind == "constant":
            return
        if group.kind in VIEWS and sources:
            self.alias[group.output] = sources[0]
            return
        index = self.host(group, sources)
        if index is None:
            index = len(self.clusters)
            self.clusters.append(_Cluster(group))
        cluster = self.clusters[index]
        cluster.values.add(group.output)
        cluster.sources += [value for value in sources if value not in cluster.values]
        size = self.size(group.output)
        held = sum(prod(self.graph.network.params[name]) for name in group.weights.values())
        cluster.weights += min(held, size) if group.kind == "gather" else held  # a table: only the rows looked up
        cluster.cheap += size * ((group.kind in CHEAP - FREE) - PARTS.get(group.kind, 0))
        cluster.costly += size * (group.kind in COSTLY)
        self.home[group.output] = index

    def host(self, group: Group, sources: Sequence[str]) -> int | None:
        """Return the pass an element-wise operator rides on: the latest one that makes a whole operand of it.

        A gate that is computed later than this pass (squeeze and excitation) needs a pass of its own.
        """
        if group.kind not in CHEAP | COSTLY or not sources:
            return None
        homes = [self.home.get(value, -1) for value in sources]
        index = max(homes)
        whole = [
            home for home, value in zip(homes, sources, strict=True) if self.size(value) == self.size(group.output)
        ]
        if index < 0 or index not in whole:
            return None
        return index

    def readers(self) -> dict[str, list[int]]:
        """Return the passes that read each value made elsewhere."""
        used: dict[str, list[int]] = {}
        for index, cluster in enumerate(self.clusters):
            for value in dict.fromkeys(cluster.sources):
                used.setdefault(value, []).append(index)
        for value in self.graph.outputs:
            used.setdefault(self.plain(value), []).append(len(self.clusters))
        return used

    def liveness(self, used: dict[str, list[int]]) -> list[int]:
        """Return the elements of all activations alive during each pass."""
        change = [0] * (len(self.clusters) + 2)
        for value, readers in used.items():
            change[max(self.home.get(value, 0), 0)] += self.size(value)
            change[max(readers) + 1] -= self.size(value)
        total, found = 0, []
        for index in range(len(self.clusters)):
            total += change[index]
            found.append(total)
        return found

    def finished(self, index: int, used: dict[str, list[int]], live: int) -> Pass:
        cluster = self.clusters[index]
        head = cluster.head
        read = sum(self.size(value) for value in dict.fromkeys(cluster.sources) if value not in cluster.values)
        written = sum(self.size(value) for value in cluster.values if value in used)
        kind, macs, cin, cout = self.arithmetic(head)
        attrs, shape = head.attrs, self.shape(head.output)
        groups = int(attrs.get("groups", 1)) if kind in ("conv", "winograd", "depthwise", "grouped") else 1
        rows = max(prod(shape) // max(cout * groups, 1), 1)
        copies = 0
        if kind == "transpose" and tuple(head.options.get("order", ())) in LAYOUTS:
            kind = "copy"  # of which there are none: engines choose the layouts of their tensors
        elif kind == "copy":
            copied = self.copied(head, used)
            copies, read, written = len(copied), sum(map(self.size, copied)), sum(map(self.size, copied))
            if head.kind in ("slice", "gather"):
                read = written = self.size(head.output)
        window = int(attrs.get("kernel_h", 1)), int(attrs.get("stride_h", 1))
        riders = max(cluster.cheap, 0), cluster.costly
        size = macs, read, written, cluster.weights, rows, cin, cout
        return Pass(kind, *size, groups, *window, *riders, live, copies, head.name)

    def copied(self, head: Group, used: dict[str, list[int]]) -> list[str]:
        """Return the operands that a copy must move.

        An operand of a concatenation that nothing else reads is written in place by the pass that makes it.
        """
        sources = [self.plain(value) for value in head.inputs]
        if head.kind != "concat":
            return sources[:1]
        return [value for value in sources if len(used.get(value, ())) > 1 or self.home.get(value) is None]

    def arithmetic(self, head: Group) -> tuple[str, int, int, int]:
        """Return a pass's class, multiply-adds and the input and output channels of one group."""
        out, attrs = self.size(head.output), head.attrs
        weight = self.graph.network.params[head.weights["weight"]] if "weight" in head.weights else ()
        if head.kind in ("conv2d", "conv2d_transpose"):
            groups = int(attrs.get("groups", 1))
            cin, cout = int(attrs["in_channels"]) // groups, int(attrs["out_channels"]) // groups
            if head.kind == "conv2d_transpose":
                return "conv", self.size(self.plain(head.inputs[0])) * prod(weight[1:]), cin, cout
            return convolution_class(attrs, self.shape(head.output)), out * prod(weight[1:]), cin, cout
        if head.kind == "dense":
            inner = int(attrs["in_channels"])
            return "gemm", out * inner, inner, int(attrs["out_channels"])
        if head.kind == "matmul":
            inner = int(attrs["in_channels"])
            return "matmul", out * inner, inner, int(attrs["out_channels"])
        if head.kind == "onnx" and head.options["operator"] == "Conv" and head.weights:  # of one or three dimensions
            held = (self.graph.network.params[name] for name in head.weights.values())
            wide, narrow = next((shape[:2] for shape in held if len(shape) > 2), (1, 1))  # weights may be computed
            return "conv", int(head.options["flops"]) // 2, narrow, wide
        if head.kind == "pillar_features":
            inner = int(weight[1]) if weight else 1
            macs = out * inner * int(head.attrs["window"]) if weight else 0
            return "pillars", macs, inner, self.shape(head.output)[-1]
        if head.kind == "scatter":
            return "scatter", 0, 1, 1
        if head.kind in REDUCTIONS:
            return "pool", 0, 1, 1
        if head.kind in ("softmax", "layer_norm", "group_norm"):
            return "softmax", 0, 1, 1
        if head.kind in ("resize2d", "grid_sample"):
            return "resize", 0, 1, 1
        if head.kind == "transpose":
            return "transpose", 0, 1, 1
        if head.kind in COPIES:
            return "copy", 0, 1, 1
        return "eltwise", 0, 1, 1


def convolution_class(attrs: Mapping[str, Any], shape: tuple[int, ...]) -> str:
    """Return the class of a convolution: depthwise (one channel a group), grouped, winograd (3x3, stride 1) or conv."""
    groups = int(attrs.get("groups", 1))
    if groups > 1:
        return "depthwise" if groups == int(attrs["in_channels"]) else "grouped"
    square = attrs["kernel_h"] == attrs["kernel_w"] == 3 and attrs.get("dilation", 1) == 1
    large = -(-shape[-1] // 4) * -(-shape[-2] // 4) >= 8
    return "winograd" if square and large and attrs["stride_h"] == attrs["stride_w"] == 1 else "conv"
