"""ONNX graphs as networks: operators become layers one by one, batch norm is folded into the convolution before it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.errors import InputError
from socsched.graph.network import Layer, Network
from socsched.models.model import Quantisation
from socsched.models.onnx_graph import Array, Node, OnnxGraph
from socsched.models.onnx_help import help_for
from socsched.models.onnx_operators import HANDLERS


def translate(graph: OnnxGraph, values: bool = True) -> tuple[Network, dict[str, Array], Quantisation | None]:
    """Return the network of a graph, its weights by parameter name, and the scales that the file states, if any.

    InputError for an unsupported operator.

    Without `values`, weights have their shape only, and take no memory.
    """
    translation = Translation(graph, values)
    network, weights = translation.run()
    return network, weights, translation.quantisation()


def operator_name(op: str) -> str:
    """Return the name under which operator rules list an ONNX operator of their own, such as hard_swish."""
    words = re.sub(r"Normalization$", "Norm", op)
    return {"PRelu": "prelu", "LRN": "lrn", "TopK": "topk"}.get(op) or re.sub(
        r"(?<=[a-z0-9])(?=[A-Z])", "_", words
    ).lower()


class Translation:
    """Translation state: layers and weights so far, and the value of every ONNX name."""

    def __init__(self, graph: OnnxGraph, values: bool = True) -> None:
        self.graph = graph
        self.hollow = not values
        self.layers: list[Layer] = []
        self.weights: dict[str, Array] = {}
        self.values: dict[str, str] = {}
        self.names: set[str] = set()
        self.scales: dict[str, tuple[float, bool]] = {}
        """ONNX value -> its step and whether it is signed, as a QuantizeLinear states it."""
        self.steps: dict[str, tuple[float, ...]] = {}
        """Weight -> the steps of its output channels, where the file stores integers."""
        self.repeated: dict[str, str] = {}
        """ONNX value of repeated places -> the value that it repeats."""
        self.node: Node | None = None

    def run(self) -> tuple[Network, dict[str, Array]]:
        inputs = {f"input{i}": self.graph.tensor(name) for i, name in enumerate(self.graph.inputs)}
        self.values = dict(zip(self.graph.inputs, inputs, strict=True))
        self.require_known()
        for node in self.graph.nodes:
            self.node = node
            try:
                HANDLERS[node.op](self, node)
            except InputError:
                raise
            except (ArithmeticError, AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
                detail = f": {error}" if str(error) else ""
                raise self.refused(f"a form of {node.op} that is not understood{detail}") from error
        self.fold_batch_norm()
        missing = [name for name in self.graph.outputs if name not in self.values]
        if missing:
            raise self.graph.error(f"output {missing[0]!r} is a constant")
        outputs = tuple(self.values[name] for name in self.graph.outputs)
        if len(set(outputs)) < len(outputs) or any(name in inputs for name in outputs):
            raise self.graph.error("an output is an input, or the same value as another output")
        params = {name: tuple(array.shape) for name, array in self.weights.items()}
        name = f"onnx.{self.graph.path.stem}"
        return Network(name, inputs, tuple(self.layers), outputs, params), self.weights

    def require_known(self) -> None:
        """Refuse all unknown operators in one error, each with the first node that uses it."""
        first: dict[tuple[str, str], Node] = {}
        for node in self.graph.nodes:
            if node.domain or node.op not in HANDLERS:
                first.setdefault((node.domain, node.op), node)
        if not first:
            return
        node, *others = first.values()
        more = f"; nor are {', '.join(f'{other.op} ({other.name})' for other in others)}" if others else ""
        if node.domain:
            hint = f"export with ONNX's own operators in place of those of {node.domain}"
        else:
            hint = "; ".join(dict.fromkeys(filter(None, (help_for(one.op) for one in first.values()))))
            hint = hint or f"known are {', '.join(sorted(HANDLERS))}"
        raise self.graph.refused(node, f"operator {node.op} is not known{more}", hint)

    # Interface for handlers.

    def refused(self, problem: str, hint: str = "") -> InputError:
        assert self.node is not None
        return self.graph.refused(self.node, problem, hint)

    def source(self, name: str) -> str:
        """Return the layer or input behind an ONNX value."""
        if name in self.values:
            return self.values[name]
        if name in self.graph.constants:
            raise self.refused(
                f"{name!r} is a constant where a computed value was expected", "fold constants (onnxsim) on export"
            )
        if name in self.repeated:
            hint = "leave it out: operators broadcast by themselves"
            raise self.refused(f"repeating computed values is not known: {name!r}", hint)
        raise self.refused(f"{name!r} is not defined before")

    def constant(self, node: Node, index: int, what: str) -> Array | None:
        """Return an optional constant input; InputError when it is computed at run time."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        found = self.graph.constants.get(node.inputs[index])
        if found is None:
            raise self.refused(
                f"{what} must be a constant, {node.inputs[index]!r} is computed", "export weights as initialisers"
            )
        return found

    def param(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (
            np.broadcast_to(np.float32(0), array.shape) if self.hollow else np.asarray(array, np.float32)
        )
        return name

    def emit(self, node: Node, op: str, inputs: list[str], output: int = 0, **attrs: Any) -> str:
        weights = attrs.pop("weights", {})
        name = self.named(node, op)
        self.layers.append(Layer(name, op, tuple(inputs), weights, attrs, operator_name(node.op)))
        self.values[node.outputs[output]] = name
        return name

    def named(self, node: Node, op: str) -> str:
        """Return a layer name: the node's, in letters, digits, _ and . (scopes), with a number if already taken.

        Compilers and scales refer to layers with _ for dots, so names are unique in that form too.
        """
        plain = re.sub(r"[^A-Za-z0-9_.]+", "_", node.name.strip("/").replace("/", ".")).strip("._")[:60]
        if not plain or not plain[0].isalpha() or plain == "main" or re.fullmatch(r"(input|w)\d+", plain):
            plain = f"n{len(self.layers)}_{op}" if not plain else f"n_{plain}"
        name, number = plain, 1
        while name.replace(".", "_") in self.names:
            number += 1
            name = f"{plain}_{number}"
        self.names.add(name.replace(".", "_"))
        return name

    def rank(self, name: str) -> int:
        return len(self.graph.tensor(name).shape)

    def axis(self, node: Node, default: int) -> int:
        axis, rank = int(node.attrs.get("axis", default)), self.rank(node.inputs[0])
        if not -rank <= axis <= rank:
            raise self.refused(f"there is no axis {axis} among {rank}", "check the file with onnx.checker")
        return axis + rank if axis < 0 else axis

    def quantisation(self) -> Quantisation | None:
        """Return the scales that the file states, by layer and weight; None for a network in floats."""
        if not self.scales:
            return None
        found: dict[str, tuple[float, bool]] = {}
        for name, scale in self.scales.items():
            layer = self.values[name]
            if found.setdefault(layer, scale) != scale:
                raise self.graph.error(
                    f"{name}: quantised with a step of {scale[0]:g} and elsewhere of {found[layer][0]:g}",
                    "give every value one scale",
                )
        return Quantisation(found, {name: steps for name, steps in self.steps.items() if name in self.weights})

    # Batch norm.

    def fold_batch_norm(self) -> None:
        """Fold every scale-and-shift that follows a convolution used nowhere else into the convolution's weights."""
        uses: dict[str, int] = {}
        for layer in self.layers:
            for name in layer.inputs:
                uses[name] = uses.get(name, 0) + 1
        by_name = {layer.name: layer for layer in self.layers}
        kept: list[Layer] = []
        outputs = {self.values.get(name) for name in self.graph.outputs}
        renamed: dict[str, str] = {}
        for layer in self.layers:
            inputs = tuple(renamed.get(name, name) for name in layer.inputs)
            before = by_name.get(layer.inputs[0]) if layer.inputs else None
            folds = (
                layer.op == "batch_norm"
                and before is not None
                and before.op in ("conv2d", "conv2d_transpose")
                and uses[before.name] == 1
                and before.name not in outputs
            )
            if folds and before is not None:
                self.scale(before, layer)
                renamed[layer.name] = renamed.get(before.name, before.name)
                continue
            kept.append(replace(layer, inputs=inputs))
        self.layers = kept
        used = {name for layer in kept for name in layer.weights.values()}
        self.weights = {name: array for name, array in self.weights.items() if name in used}
        self.values = {name: renamed.get(layer, layer) for name, layer in self.values.items()}

    def scale(self, conv: Layer, norm: Layer) -> None:
        scale, shift = (self.weights[norm.weights[role]].reshape(-1) for role in ("scale", "shift"))
        weight = self.weights[conv.weights["weight"]]
        if self.hollow:
            return
        groups = int(conv.attrs.get("groups", 1))
        if conv.op == "conv2d":
            weight = weight * scale[:, None, None, None]
        else:  # [in, out / groups, h, w]: every group has its own slice of the output channels
            per = scale.reshape(groups, 1, -1, 1, 1)
            weight = (weight.reshape(groups, -1, *weight.shape[1:]) * per).reshape(weight.shape)
        self.weights[conv.weights["weight"]] = weight.astype(np.float32)
        if conv.weights["weight"] in self.steps:
            stated = np.asarray(self.steps[conv.weights["weight"]]) * np.abs(scale)
            self.steps[conv.weights["weight"]] = tuple(float(step) for step in stated)
        bias = self.weights[conv.weights["bias"]]
        self.weights[conv.weights["bias"]] = (bias * scale + shift).astype(np.float32)
