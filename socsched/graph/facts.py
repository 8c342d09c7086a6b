"""What operator rules may ask of an operator beyond its own attributes: decided by the graph around it."""

from __future__ import annotations

from math import prod

from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import TensorType

EQUAL, ONE_VALUE, BY_CHANNEL, OTHERWISE = range(4)
"""How the second operand of an element-wise operator is broadcast to the first."""


class Facts:
    """The facts of every operator of one graph.

    `operands`: inputs that are computed, not constants; `rank` and `out_rank`: dimensions of the first input and of the
    result; `width`, `batch`: last size of the first input, and the first one of three and more; `broadcast`: 0 equal
    shapes, 1 one value, 2 a value a channel, 3 otherwise; `low`, `high`: bounds of a clip; `first_axis`, `step`: first
    axis that a slice, split or pad changes, largest step of a slice; `fraction`: 1 where a resize is by no whole
    factor; `moves`: 0 where a reshape drops or adds sizes of 1 alone; `counts_padding`: 1 where padding counts in an
    average, or there is none; `in_gelu`, `in_norm`: 1 where an operator is a part of a written-out GELU, or layer norm.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.layers = {layer.name: layer for layer in graph.network.layers}
        self.makers = {group.output: group for group in graph.groups}
        self.readers: dict[str, list[Group]] = {}
        for group in graph.groups:
            for value in group.inputs:
                self.readers.setdefault(value, []).append(group)

    def of(self, group: Group, inputs: tuple[TensorType, ...], output: TensorType) -> dict[str, float]:
        """Return the facts of an operator whose tensors have these types."""
        first = inputs[0].shape if inputs else output.shape
        facts: dict[str, float] = {"operands": len(group.inputs), "rank": len(first), "out_rank": len(output.shape)}
        if first:
            facts["width"] = first[-1]
        if len(first) > 2:
            facts["batch"] = first[0]
        layer = self.layers.get(group.layer)
        attrs = layer.attrs if layer is not None and layer.op == group.kind else {}
        match group.kind:
            case "add" | "subtract" | "multiply" | "divide" | "maximum" | "minimum":
                constant = group.weights.get("weight")
                second = self.graph.network.params[constant] if constant else inputs[-1].shape
                facts["broadcast"] = _broadcast(first, second)
            case "clip" if "low" in attrs:
                facts |= {"low": attrs["low"], "high": attrs["high"]}
            case "slice" if "axes" in attrs:
                changed = [
                    a for a, one, other in zip(range(len(first)), first, output.shape, strict=False) if one != other
                ]
                facts |= {"first_axis": min(changed, default=1), "step": max(attrs["step"])}
            case "pad" if "pads" in attrs:
                half = len(attrs["pads"]) // 2
                padded = [a for a in range(half) if attrs["pads"][a] or attrs["pads"][a + half]]
                facts["first_axis"] = min(padded, default=half)
            case "reshape":
                facts["moves"] = int([size for size in first if size != 1] != [s for s in output.shape if s != 1])
            case "avg_pool":
                facts["counts_padding"] = int(bool(attrs.get("count_padding")) or not group.attrs.get("pad"))
            case "resize2d":
                scales = (group.attrs["scale_h"], group.attrs["scale_w"])
                facts["fraction"] = int(any(scale != int(scale) for scale in scales))
            case "erf":
                facts["in_gelu"] = int(self.in_gelu(group))
        if group.kind in ("sqrt", "divide"):
            facts["in_norm"] = int(self.in_norm(group))
        return facts

    def in_gelu(self, erf: Group) -> bool:
        """Return whether an erf is that of x / 2 (1 + erf(x / sqrt 2)), in any order of its products."""
        scaled = self.makers.get(erf.inputs[0])
        if scaled is None or scaled.kind not in ("multiply", "divide") or len(scaled.inputs) > 1:
            return False
        x, moved = scaled.inputs[0], self.only_reader(erf.output, ("add",))
        if moved is None or len(moved.inputs) > 1:
            return False
        product = self.only_reader(moved.output, ("multiply",))
        if product is None:
            return False
        if len(product.inputs) == 1:  # halved before x joins
            product = self.only_reader(product.output, ("multiply",))
        joined = [value for value in product.inputs if value != moved.output] if product is not None else []
        return any(value == x or self.halved(value) == x for value in joined)

    def halved(self, value: str) -> str:
        """Return what a product with a constant scales, "" for any other value."""
        maker = self.makers.get(value)
        return maker.inputs[0] if maker is not None and maker.kind == "multiply" and len(maker.inputs) == 1 else ""

    def only_reader(self, value: str, kinds: tuple[str, ...]) -> Group | None:
        readers = self.readers.get(value, [])
        return readers[0] if len(readers) == 1 and readers[0].kind in kinds else None

    def in_norm(self, group: Group) -> bool:
        """Return whether a root or quotient is that of (x - mean) / sqrt(mean of squares + epsilon)."""
        if group.kind == "divide":
            root = self.makers.get(group.inputs[-1]) if len(group.inputs) == 2 else None
            return root is not None and root.kind == "sqrt" and self.in_norm(root)
        moved = self.makers.get(group.inputs[0])
        if moved is not None and moved.kind == "add" and len(moved.inputs) == 1:
            moved = self.makers.get(moved.inputs[0])
        reader = self.only_reader(group.output, ("divide",))
        return moved is not None and moved.kind == "reduce_mean" and reader is not None and len(reader.inputs) == 2


def _broadcast(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    rank = max(len(first), len(second))
    one, other = (1,) * (rank - len(first)) + first, (1,) * (rank - len(second)) + second
    if one == other:
        return EQUAL
    small = other if prod(other) <= prod(one) else one
    if prod(small) == 1:
        return ONE_VALUE
    return BY_CHANNEL if rank > 1 and prod(small) == small[1] else OTHERWISE
