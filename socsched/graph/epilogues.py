"""Element-wise operators that kernels of CPUs compute along with the convolution or product before them."""

from __future__ import annotations

from socsched.graph.fusion import Graph, Group

LINEAR = ("conv2d", "conv2d_transpose", "dense", "add")
"""Operators that apply an activation to their sums."""
ACTIVATIONS = ("sigmoid", "tanh", "clip", "leaky_relu", "relu")


def merged(graph: Graph) -> frozenset[str]:
    """Return the results of operators that have no kernel of their own, as `compiler.targets.llvm.fuse` merges them.

    These are a bias of a product that stands alone, x * sigmoid(x), a residual sum and an activation, where nothing
    else reads the operand.
    """
    return frozenset(_Merging(graph).gone)


class _Merging:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {group.output: group for group in graph.groups}
        self.readers: dict[str, list[Group]] = {}
        for group in graph.groups:
            for value in group.inputs:
                self.readers.setdefault(value, []).append(group)
        self.plain: dict[str, str] = {}
        """Results of sums without an activation yet -> the kind of the operator."""
        self.gone: set[str] = set()
        for group in graph.groups:
            self.see(group)

    def see(self, group: Group) -> None:
        host = self.host(group)
        if host:
            self.gone.add(group.output)
        kind = host or group.kind
        activated = group.relu or group.kind in ACTIVATIONS or group.kind == "multiply"
        if kind in LINEAR and not activated:
            self.plain[group.output] = kind

    def host(self, group: Group) -> str:
        """Return the kind of the operator that computes this one along with its own, "" for none."""
        if group.kind == "multiply" and len(group.inputs) == 2:
            gate = self.gate(group)
            if gate is None:
                return ""
            self.gone.add(gate.output)
            return self.plain.get(gate.inputs[0], "") if self.read_by(gate.inputs[0]) == 2 else ""
        if group.kind in ACTIVATIONS and len(group.inputs) == 1 and self.read_by(group.inputs[0]) == 1:
            return self.plain.get(group.inputs[0], "")
        if group.kind == "add":
            return self.host_of_sum(group)
        return ""

    def gate(self, product: Group) -> Group | None:
        """Return the sigmoid of a product x * sigmoid(x)."""
        for value, other in (product.inputs, product.inputs[::-1]):
            maker = self.makers.get(other)
            if maker is not None and maker.kind == "sigmoid" and maker.inputs == (value,) and self.read_by(other) == 1:
                return maker
        return None

    def host_of_sum(self, total: Group) -> str:
        values = self.graph.values
        if len(total.inputs) == 1:
            shapes = [self.graph.network.params.get(name) for name in total.weights.values()]
            maker = self.makers.get(total.inputs[0])
            bias = maker is not None and maker.kind == "dense" and "bias" not in maker.weights
            alone = self.plain.get(total.inputs[0]) == "dense" and self.read_by(total.inputs[0]) == 1
            return "dense" if bias and alone and shapes == [values[total.output].shape[-1:]] else ""
        if len({values[value].shape for value in (*total.inputs, total.output)}) > 1 or len(set(total.inputs)) < 2:
            return ""
        sums = (self.plain.get(value) == "conv2d" and self.read_by(value) == 1 for value in total.inputs)
        return "conv2d" if any(sums) else ""

    def read_by(self, value: str) -> int:
        """Return the number of readers of a value, one more where it leaves the network."""
        return len(self.readers.get(value, ())) + (value in self.graph.outputs)
