"""Control flow and sequences of an ONNX file written out: the branch of an If, the turns of a Loop, lists of tensors.

A Loop whose end is known is written out turn by turn, as its condition folds to a constant, a Scan at once; sequences
exist while the file is read only, as lists of names.  What depends on computed values is refused, since its work has no
bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.models.onnx_file import MOST_NODES, body, branch

if TYPE_CHECKING:
    from socsched.models.onnx_graph import Array, Node, OnnxGraph

_LOOP = "export by tracing, so that control flow is unrolled for the fixed shapes"
_COMPUTED = "it depends on a computed value, so that its work has no bound"


class Unrolled:
    """Rewrites nodes of a graph that is being read; `array` returns the values of a tensor of the file."""

    def __init__(self, graph: OnnxGraph, array: Callable[[Any], Array]) -> None:
        self.graph, self.array = graph, array
        self.lists: dict[str, list[str]] = {}
        """Sequence -> the values in it."""
        self.scans: dict[str, list[list[str]]] = {}
        """First output of a Loop -> the values that each of its scan outputs has so far."""

    def takes(self, node: Node) -> bool:
        """Return whether a node is control flow or about sequences, and so is none of the graph."""
        return not node.domain and (node.op in _REWRITES or (node.op == "Identity" and node.inputs[0] in self.lists))

    def rewrite(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes that stand in a node's place; UnknownOperator where computed values decide on them."""
        if node.op == "Identity":
            self.lists[node.outputs[0]] = self.lists[node.inputs[0]]
            return []
        nodes: list[Any] = _REWRITES[node.op](self, index, node, proto)
        return nodes

    def constant(self, node: Node, place: int, what: str, default: int | None = None) -> int:
        """Return the only value of a constant input."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if not name and default is not None:
            return default
        array = self.graph.constants.get(name)
        if array is None:
            raise self.graph.refused(node, f"{what} is not known on export: {_COMPUTED}", _LOOP)
        if array.size != 1:
            raise self.graph.refused(node, f"{what} has {array.size} values", "check it with onnx.checker")
        return int(array.reshape(()))

    def decided(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of the branch that an If with a constant condition takes; its weights join the graph's."""
        condition = bool(self.constant(node, 0, "the condition"))
        try:
            nodes, tensors = branch(proto, condition, f"{node.name}/{index}/")
        except (StopIteration, ValueError) as error:
            raise self.graph.refused(node, f"its branches are not usable: {error}") from None
        self.graph.constants |= {tensor.name: self.array(tensor) for tensor in tensors}
        return nodes

    def turn(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of a Loop's next turn and the Loop for what is left, or the values that it ends with."""
        left, goes_on = self.constant(node, 0, "its end", 2**31), self.constant(node, 1, "its condition", 1)
        carried = list(proto.input[2:])
        scans = self.scans.setdefault(node.outputs[0], [[] for _ in proto.output[len(carried) :]])
        if left <= 0 or not goes_on:
            del self.scans[node.outputs[0]]
            return self.ended(node, proto, carried, scans)
        prefix = f"{node.name}/{index}/"
        names = {"turn": f"{prefix}turn", "on": f"{prefix}on", "left": f"{prefix}left"}
        done = next((item.i for item in proto.attribute if item.name == "turns"), 0)
        self.graph.constants |= {
            names["turn"]: np.array(done, np.int64), names["on"]: np.array(True), names["left"]: np.array(left - 1),
        }  # fmt: skip
        try:
            nodes, tensors, results = body(proto, (names["turn"], names["on"], *carried), prefix)
        except (StopIteration, ValueError) as error:
            raise self.graph.refused(node, f"its body is not usable: {error}") from None
        self.graph.constants |= {tensor.name: self.array(tensor) for tensor in tensors}
        for values, name in zip(scans, results[1 + len(carried) :], strict=True):
            values.append(name)
        rest = type(proto).FromString(proto.SerializeToString())
        del rest.input[:]
        rest.input.extend([names["left"], results[0], *results[1 : 1 + len(carried)]])
        del rest.attribute[:]
        rest.attribute.extend(item for item in proto.attribute if item.name != "turns")
        rest.attribute.add(name="turns", type=2, i=done + 1)
        rest.name = node.name
        return [*nodes, rest]

    def scanned(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of all turns of a Scan, whose number is the size of what it goes along."""
        from onnx import helper

        count = int(node.attrs.get("num_scan_inputs", 0))
        if self.graph.opsets.get("", 1) < 9 or not 0 < count <= len(proto.input):
            raise self.graph.refused(node, "a Scan of this form is not read", _LOOP)
        states, along = list(proto.input[:-count]), list(proto.input[-count:])
        axes, turned = (list(node.attrs.get(f"scan_input_{name}") or [0] * count) for name in ("axes", "directions"))
        out_axes, out_turned = (
            list(node.attrs.get(f"scan_output_{name}") or [0] * len(proto.output)) for name in ("axes", "directions")
        )
        constants, turns = self.graph.constants, self.turns(node, proto, along[0], axes[0])
        nodes: list[Any] = []
        scans: list[list[str]] = [[] for _ in proto.output[len(states) :]]
        for turn in range(turns):
            prefix = f"{node.name}/{index}/{turn}/"
            rows = [f"{prefix}along{place}" for place in range(count)]
            for name, row, axis, back in zip(along, rows, axes, turned, strict=True):
                constants[f"{row}/place"] = np.array(turns - 1 - turn if back else turn)
                nodes.append(helper.make_node("Gather", [name, f"{row}/place"], [row], axis=axis))
            try:
                more, tensors, results = body(proto, (*states, *rows), prefix)
            except (StopIteration, ValueError) as error:
                raise self.graph.refused(node, f"its body is not usable: {error}") from None
            constants |= {tensor.name: self.array(tensor) for tensor in tensors}
            nodes += more
            states, last = results[: len(states)], results[len(states) :]
            for values, name in zip(scans, last, strict=True):
                values.append(name)
        for name, output in zip(states, proto.output, strict=False):
            nodes += [helper.make_node("Identity", [name], [output])] if output else []
        for place, (values, output) in enumerate(zip(scans, proto.output[len(states) :], strict=True)):
            values = values[::-1] if out_turned[place] else values
            nodes += self.joined(proto, values, output, out_axes[place], True) if output else []
        return nodes

    def turns(self, node: Node, proto: Any, along: str, axis: int) -> int:
        """Return the size of what a Scan goes along; UnknownOperator where that is open, or much too large."""
        held = self.graph.constants.get(along)
        shape = held.shape if held is not None else self.graph.shapes.get(along, ())
        turns = shape[axis] if -len(shape) <= axis < len(shape) else 0
        inner = next((len(item.g.node) for item in proto.attribute if item.name == "body"), 0)
        if not 0 < turns * max(inner, 1) <= MOST_NODES:
            raise self.graph.refused(node, f"{turns} turns of {inner} nodes are not written out", _LOOP)
        return turns

    def ended(self, node: Node, proto: Any, carried: list[str], scans: list[list[str]]) -> list[Any]:
        made: list[Any] = []
        for name, output in zip(carried, proto.output, strict=False):
            if output:
                made.append(type(proto)(op_type="Identity", input=[name], output=[output]))
        for values, output in zip(scans, proto.output[len(carried) :], strict=True):
            if output and not values:
                raise self.graph.refused(node, "a loop without a turn has results without values", _LOOP)
            made += self.joined(proto, values, output, 0, True) if output else []
        return made

    def joined(self, proto: Any, values: Sequence[str], output: str, axis: int, new: bool) -> list[Any]:
        """Return the nodes that join values along an axis, which is `new` or their own."""
        made = []
        if new:
            self.graph.constants[f"{output}/axis"] = np.array([axis])
            for number, name in enumerate(values):
                one = type(proto)(op_type="Unsqueeze", input=[name, f"{output}/axis"], output=[f"{output}/{number}"])
                if self.graph.opsets.get("", 13) < 13:
                    del one.input[1:]
                    one.attribute.add(name="axes", type=7, ints=[axis])
                made.append(one)
            values = [f"{output}/{number}" for number in range(len(values))]
        whole = type(proto)(op_type="Concat", input=values, output=[output], name=proto.name)
        whole.attribute.add(name="axis", type=2, i=axis)
        return [*made, whole]

    # Sequences.

    def of(self, node: Node, place: int = 0) -> list[str]:
        if node.inputs[place] not in self.lists:
            raise self.graph.refused(node, f"{node.inputs[place]!r} is no sequence that is known on export", _LOOP)
        return self.lists[node.inputs[place]]

    def listed(self, index: int, node: Node, proto: Any) -> list[Any]:
        self.lists[node.outputs[0]] = list(node.inputs)
        return []

    def inserted(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = list(self.of(node))
        place = self.constant(node, 2, "the place", len(values))
        if not -len(values) <= place <= len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        values.insert(place if place >= 0 else place + len(values), node.inputs[1])
        self.lists[node.outputs[0]] = values
        return []

    def erased(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = list(self.of(node))
        place = self.constant(node, 1, "the place", -1)
        if not -len(values) <= place < len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        del values[place]
        self.lists[node.outputs[0]] = values
        return []

    def picked(self, index: int, node: Node, proto: Any) -> list[Any]:
        values, place = self.of(node), self.constant(node, 1, "the place")
        if not -len(values) <= place < len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        return [type(proto)(op_type="Identity", input=[values[place]], output=list(node.outputs))]

    def counted(self, index: int, node: Node, proto: Any) -> list[Any]:
        self.graph.constants[node.outputs[0]] = np.array(len(self.of(node)), np.int64)
        return []

    def concatenated(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = self.of(node)
        if not values:
            raise self.graph.refused(node, "it joins no values")
        return self.joined(proto, values, node.outputs[0], int(node.attrs["axis"]), bool(node.attrs.get("new_axis", 0)))

    def split(self, index: int, node: Node, proto: Any) -> list[Any]:
        shape = self.graph.tensor(node.inputs[0]).shape
        axis = int(node.attrs.get("axis", 0)) % max(len(shape), 1)
        size, stated = shape[axis], self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if len(node.inputs) > 1 and node.inputs[1] and stated is None:
            raise self.graph.refused(node, f"its sizes are not known on export: {_COMPUTED}", _LOOP)
        step = 1 if stated is None else int(stated.reshape(-1)[0])
        if step < 1:
            raise self.graph.refused(node, f"pieces of {step}")
        sizes = [min(step, size - begin) for begin in range(0, size, step)]
        if stated is not None and stated.ndim:
            sizes = [int(one) for one in stated]
        output = node.outputs[0]
        names = [f"{output}/{number}" for number in range(len(sizes))]
        pieces = type(proto)(op_type="Split", input=[node.inputs[0]], output=names, name=node.name)
        pieces.attribute.add(name="axis", type=2, i=axis)
        if self.graph.opsets.get("", 13) < 13:
            pieces.attribute.add(name="split", type=7, ints=sizes)
        else:
            self.graph.constants[f"{output}/sizes"] = np.array(sizes)
            pieces.input.append(f"{output}/sizes")
        made = [pieces]
        self.lists[output] = names
        if stated is None and not node.attrs.get("keepdims", 1):
            self.lists[output] = [f"{name}/row" for name in names]
            made += [self.row(name, axis) for name in names]
        return made

    def row(self, name: str, axis: int) -> Any:
        from onnx import helper

        if self.graph.opsets.get("", 13) < 13:
            return helper.make_node("Squeeze", [name], [f"{name}/row"], axes=[axis])
        self.graph.constants[f"{name}/axis"] = np.array([axis])
        return helper.make_node("Squeeze", [name, f"{name}/axis"], [f"{name}/row"])


_REWRITES: dict[str, Callable[[Unrolled, int, Node, Any], list[Any]]] = {
    "If": Unrolled.decided,
    "Loop": Unrolled.turn,
    "Scan": Unrolled.scanned,
    "SequenceEmpty": Unrolled.listed,
    "SequenceConstruct": Unrolled.listed,
    "SequenceInsert": Unrolled.inserted,
    "SequenceErase": Unrolled.erased,
    "SequenceAt": Unrolled.picked,
    "SequenceLength": Unrolled.counted,
    "ConcatFromSequence": Unrolled.concatenated,
    "SplitToSequence": Unrolled.split,
}
