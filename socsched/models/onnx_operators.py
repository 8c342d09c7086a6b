"""ONNX graphs as networks: operators become layers one by one, batch norm is folded into the convolution before it.

One small function per operator emits its layers into a `Translation`; the remedies for operators that have none are at
the end.

Files become socsched's own layers, rather than going through a compiler's importer, so that planning and operator rules
use one name for an operator.  Operators without a layer of their own (PRelu, LRN, Einsum of two values, one-dimensional
convolutions) are composed of layers that have one: a new layer would need a rule in six files and a lowering in three
compilers.  A constant in Concat becomes an addition to a padded result, and exports that repeat the places of TopK for
GatherElements one Gather of whole rows, so that nothing is expanded in memory.

QuantizeLinear and DequantizeLinear are read as marks on values: layers stay those of the float network, and the file's
steps become its scales.  Operators on integers (QLinearConv) would be layers of their own for each target; they are
written out as marks and operators on floats (`onnx_integers`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from socsched.errors import InputError, OpenShape, UnknownOperator
from socsched.graph.expand import COMPARISONS, layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.model import Quantisation
from socsched.models.onnx_file import first_line
from socsched.models.onnx_graph import DTYPES_OF, FORMS, Array, Node, OnnxGraph, operations

Handler = Callable[["Translation", Node], Any]
_CHECK = "check the file with onnx.checker"
_LEAST = 1e-30
"""A length that no vector of a network has."""
HANDLERS: dict[str, Handler] = {}
"""Translation of each ONNX operator."""


def _translates(*operators: str) -> Callable[[Handler], Handler]:
    """Register the translation of operators."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(operators, handler))
        return handler

    return register


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
        self.scales: dict[str, tuple[float, int]] = {}
        """ONNX value -> its step and the byte of 0..255 that stands for zero, as a QuantizeLinear states them."""
        self.steps: dict[str, tuple[float, ...]] = {}
        """Weight -> the steps of its output channels, where the file stores integers."""
        self.makers: dict[str, Node] = {}
        """ONNX value -> the node that makes it."""
        self.repeated: dict[str, str] = {}
        """ONNX value of repeated places -> the value that it repeats."""
        self.node: Node | None = None

    def run(self) -> tuple[Network, dict[str, Array]]:
        inputs = {f"input{i}": self.graph.tensor(name) for i, name in enumerate(self.graph.inputs)}
        self.values = dict(zip(self.graph.inputs, inputs, strict=True))
        unknown: list[str] = []
        lost: set[str] = set()
        for node in self.graph.nodes:
            self.node = node
            if lost.isdisjoint(node.inputs):
                problem = self.add(node)
                if problem:
                    unknown.append(problem)
                    lost.update(node.outputs)
            else:
                lost.update(node.outputs)
        if unknown:
            raise UnknownOperator(f"{self.graph.path.name}: " + "; ".join(unknown), _UNKNOWN)
        self.fold_batch_norm()
        outputs = self.results(inputs)
        params = {name: tuple(array.shape) for name, array in self.weights.items()}
        network = Network(f"onnx.{self.graph.path.stem}", inputs, tuple(self.layers), outputs, params)
        self.check(network)
        return network, self.weights

    def check(self, network: Network) -> None:
        """Refuse a network whose layers do not fit each other, or have results of other sizes than the file's."""
        try:
            types = layer_types(network)
        except FORMS as error:
            raise self.graph.error(f"its operators do not fit each other: {first_line(error)}", _CHECK) from None
        for name, layer in self.values.items():
            stated, shape = self.graph.shapes.get(name, ()), types[layer].shape if layer in types else ()
            if layer in types and (min(shape, default=1) < 1 or (self.graph.fixed(name) and stated != shape)):
                maker = self.makers[name].name if name in self.makers else name
                raise self.graph.error(f"{maker}: no form that is understood: it makes {list(shape)}", _CHECK)

    def add(self, node: Node) -> str:
        """Emit the layers of a node, or the node as it is; return what is not known of it, empty if it is known."""
        mark = len(self.layers), len(self.weights)
        self.makers |= dict.fromkeys(node.outputs, node)
        reason = self.unlayered(node)
        if not reason:
            try:
                HANDLERS[node.op](self, node)
                return ""
            except UnknownOperator as error:
                if node.op in _MARKS and self.graph.constants.keys() >= set(filter(None, node.inputs[1:])):
                    raise  # but for scales that are computed, whose integers are values like any others
                reason = str(error).partition(f"{node.name}: ")[2] or str(error)
            except OpenShape as error:
                if not self.makes_shape(node):
                    raise
                reason = str(error).partition(f"{self.graph.path.name}: ")[2] or str(error)
            except FORMS as error:
                reason = f"a form of {node.op} that is not understood{f': {error}' if str(error) else ''}"
            self.undo(*mark)
        open_ = [name for name in node.outputs if name and not self.graph.fixed(name)]
        if open_ and (node.domain or node.op not in HANDLERS or self.makes_shape(node)):
            return f"{node.name}: {node.op}: {self.open_reason(node)}"
        take_whole(self, node, reason)
        return ""

    def undo(self, layers: int, weights: int) -> None:
        """Drop what a node's handler emitted before it refused the node."""
        gone = {layer.name for layer in self.layers[layers:]}
        if gone:
            self.values = {name: layer for name, layer in self.values.items() if layer not in gone}
            self.names -= {name.replace(".", "_") for name in gone}
        del self.layers[layers:]
        for name in list(self.weights)[weights:]:
            del self.weights[name]

    def unlayered(self, node: Node) -> str:
        """Return why an operator has no layers, empty where it may have."""
        if node.domain or node.op not in HANDLERS:
            return f"no kernel for {f'{node.domain} ' if node.domain else ''}{node.op}"
        if node.op in _ANY_TYPE:
            return ""
        names = [name for name in (*node.inputs, *node.outputs) if name and name not in self.graph.constants]
        types = {self.graph.dtypes.get(name, "fp32") for name in names}
        if types <= {"fp32", "fp16"}:
            return ""
        if node.op in _TYPED and types <= {"fp32", "fp16", "int32", "int64", "bool"}:
            return ""
        return f"no kernel for {node.op} of {', '.join(sorted(types))}"

    def rule_name(self, node: Node) -> str:
        """Return the name under which engines' rules list an operator that is taken as it is.

        One that has a layer in its usual form is another operator: rules for the usual form do not speak of it.
        """
        return f"{'other_' if node.op in HANDLERS and not node.domain else ''}{operator_name(node.op)}"

    def results(self, inputs: Mapping[str, TensorType]) -> tuple[str, ...]:
        """Return the layers of the file's outputs; one that is an input, a constant or another output is copied."""
        outputs: list[str] = []
        for number, name in enumerate(self.graph.outputs):
            if name not in self.graph.constants and name not in self.values and name not in self.repeated:
                raise self.graph.error(f"output {name!r} is not defined")
            if name in self.graph.constants or name in self.repeated or self.values[name] in (*inputs, *outputs):
                copy = f"{name}/copy"
                kind = self.graph.constants.get(name)
                self.graph.shapes[copy] = tuple(kind.shape) if kind is not None else self.graph.shapes[name]
                self.graph.dtypes[copy] = self.graph.dtypes.get(name, "fp32")
                if kind is not None:
                    self.graph.dtypes[copy] = DTYPES_OF.get(kind.dtype, "")
                    self.graph.shapes[name], self.graph.dtypes[name] = self.graph.shapes[copy], self.graph.dtypes[copy]
                self.node = Node(f"output{number}", "Identity", (name,), (copy,))
                take_whole(self, self.node, "an output that is an input, a constant, or another output")
                outputs.append(self.values[copy])
            else:
                outputs.append(self.values[name])
        return tuple(outputs)

    def makes_shape(self, node: Node) -> bool:
        """Return whether the shape of a node's results depends on values that are computed."""
        return all(self.graph.fixed(name) for name in node.inputs if name and name not in self.graph.constants)

    def open_reason(self, node: Node) -> str:
        """Return why the shape of a node's results is not known."""
        if node.domain:
            where = f"{node.domain} opset {self.graph.opsets.get(node.domain, '?')}"
            if node.domain.endswith(".nchwc"):
                return f"a layout of one processor ({where}): write the file with ORT_ENABLE_EXTENDED, not _ALL"
            return f"the types of its results are not known ({where})"
        return "the shape of its result depends on computed values"

    # Interface for handlers.

    def refused(self, problem: str, hint: str = "") -> InputError:
        assert self.node is not None
        return self.graph.refused(self.node, problem, hint)

    def invalid(self, problem: str) -> InputError:
        """Return the error for a node that no runtime computes, in whatever form."""
        assert self.node is not None
        where = f"{self.node.op}, opset {self.graph.opsets.get('', '?')}"
        return self.graph.error(f"{self.node.name}: {problem} ({where})", _CHECK)

    def source(self, name: str) -> str:
        """Return the layer or input behind an ONNX value."""
        if name in self.values:
            return self.values[name]
        if name in self.graph.constants:
            return self.stated(name)
        if name in self.repeated:
            node, self.node = self.node, self.makers[name]
            take_whole(self, self.node, "repeating computed places is not known")
            self.node = node
            return self.values[name]
        raise self.refused(f"{name!r} is not defined before")

    def stated(self, name: str) -> str:
        """Return the layer of a constant where others have computed values."""
        array = self.graph.constants[name]
        dtype = DTYPES_OF.get(array.dtype, "")
        if dtype not in ("fp32", "fp16", "int32", "int64", "bool") or not exact(array):
            raise self.refused(f"{name!r} is a constant of {array.dtype} where a computed value was expected")
        plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")[-40:] or "value"
        layer = self.free(f"constant_{plain}")
        weights = {"value": self.param(array)}
        kind = "fp32" if dtype == "fp16" else dtype
        self.layers.append(Layer(layer, "constant", (), weights, {"dtype": kind}, "constant"))
        self.values[name] = layer
        self.graph.shapes[name], self.graph.dtypes[name] = tuple(array.shape), dtype
        return layer

    def zero(self, node: Node, dtype: str) -> str:
        """Return the layer of a zero of a data type."""
        name = f"{node.name}/zero"
        self.graph.constants[name] = np.zeros((), {"fp32": "f4", "fp16": "f4", "bool": "?"}.get(dtype, dtype))
        return self.stated(name)

    def constant(self, node: Node, index: int, what: str) -> Array | None:
        """Return an optional constant input; InputError when it is computed at run time."""
        if index >= len(node.inputs) or not node.inputs[index]:
            return None
        array = self.graph.constants.get(node.inputs[index])
        if array is None:
            raise self.refused(
                f"{what} must be a constant, {node.inputs[index]!r} is computed", "export weights as initialisers"
            )
        return array

    def param(self, array: Array) -> str:
        number = len(self.weights)
        while (name := f"w{number}") in self.weights:  # some before it are gone, as a batch norm's
            number += 1
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

    def with_constant(self, node: Node, op: str, source: str, value: Any, **attrs: Any) -> str:
        """Emit a binary operator of a layer and a constant."""
        return self.emit(node, op, [source], weights={"constant": self.param(np.asarray(value, np.float32))}, **attrs)

    def named(self, node: Node, op: str) -> str:
        """Return a layer name: the node's, in letters, digits, _ and . (scopes), with a number if already taken.

        Compilers and scales refer to layers with _ for dots, so names are unique in that form too.
        """
        plain = re.sub(r"[^A-Za-z0-9_.]+", "_", node.name.strip("/").replace("/", ".")).strip("._")[:60]
        if not plain or not plain[0].isalpha() or plain == "main" or re.fullmatch(r"(input|w)\d+", plain):
            plain = f"n{len(self.layers)}_{op}" if not plain else f"n_{plain}"
        return self.free(plain)

    def free(self, plain: str) -> str:
        name, number = plain, 1
        while name.replace(".", "_") in self.names:
            number += 1
            name = f"{plain}_{number}"
        self.names.add(name.replace(".", "_"))
        return name

    def rank(self, name: str) -> int:
        array = self.graph.constants.get(name)
        return len(self.graph.tensor(name).shape) if array is None else array.ndim

    def axis(self, node: Node, default: int) -> int:
        axis, rank = int(node.attrs.get("axis", default)), self.rank(node.inputs[0])
        if not -rank <= axis <= rank:
            raise self.invalid(f"there is no axis {axis} among {rank}")
        return axis + rank if axis < 0 else axis

    def quantisation(self) -> Quantisation | None:
        """Return the scales that the file states, by layer and weight; None for a network in floats."""
        if not self.scales:
            return None
        scales: dict[str, tuple[float, int]] = {}
        for name, scale in self.scales.items():
            layer = self.values[name]
            if scales.setdefault(layer, scale) != scale:
                raise self.graph.error(
                    f"{name}: quantised with a step of {scale[0]:g} and elsewhere of {scales[layer][0]:g}",
                    "give every value one scale",
                )
        return Quantisation(scales, {name: steps for name, steps in self.steps.items() if name in self.weights})

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


def _pads(t: Translation, node: Node, kernel: list[int], stride: list[int], dilation: list[int]) -> Any:
    """Return the padding: (top, left, bottom, right), or one number."""
    pads = [int(p) for p in node.attrs.get("pads", [0] * 4)]
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", ""):
        raise t.invalid(f"padding {auto} is not known")
    if auto == "VALID":
        return 0
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        size = (1, *t.graph.tensor(node.inputs[0]).shape[2:])[-2:]
        pads = [0] * 4
        for i in range(2):
            reach = (kernel[i] - 1) * dilation[i] + 1
            if node.op == "ConvTranspose":  # enough to make the output a multiple of the input
                total = max(reach - stride[i], 0)
            else:
                total = max((-(-size[i] // stride[i]) - 1) * stride[i] + reach - size[i], 0)
            small, large = total // 2, total - total // 2
            pads[i], pads[i + 2] = (small, large) if auto == "SAME_UPPER" else (large, small)
    return pads[0] if len(set(pads)) == 1 else tuple(pads)


def _pair(values: Any, default: int = 1) -> list[int]:
    return [int(v) for v in values] if values else [default, default]


def _one(values: list[int]) -> Any:
    return values[0] if values[0] == values[1] else tuple(values)


def _window(stride: list[int], padding: Any, groups: int, dilation: list[int], more: list[int]) -> dict[str, Any]:
    """Return the attributes of a convolution's layer, the usual ones left out."""
    attrs: dict[str, Any] = {"stride": _one(stride), "padding": padding}
    attrs |= {"groups": groups} if groups != 1 else {}
    attrs |= {"dilation": _one(dilation)} if dilation != [1, 1] else {}
    return attrs | ({"output_padding": _one(more)} if any(more) else {})


@_translates("Conv", "ConvTranspose")
def _conv(t: Translation, node: Node) -> None:
    weight = t.constant(node, 1, "the weight")
    bias = t.constant(node, 2, "the bias")
    transposed = node.op == "ConvTranspose"
    known = "only convolutions over one or two dimensions are known"
    if weight is None or weight.ndim < 3:
        raise t.refused(known, "state the weights")
    groups = int(node.attrs.get("group", 1))
    if groups < 1 or weight.shape[0] % groups:
        raise t.invalid(f"{weight.shape[0]} rows of weights for {groups} groups")
    taken, channels = weight.shape[1] * groups, weight.shape[0]
    if transposed:
        taken, channels = weight.shape[0], weight.shape[1] * groups
    image = t.graph.shapes.get(node.inputs[0])  # of a constant it is not there
    if image is not None and image[1] != taken:
        raise t.invalid(f"weights for {taken} channels of input, which has {image[1]}")
    if bias is not None and bias.shape != (channels,):
        raise t.invalid(f"a bias of {list(bias.shape)} for {channels} channels of output")
    if weight.ndim > 4 or (weight.ndim == 3 and transposed):
        raise t.refused(known, "fold the others into the batch")
    row = weight.ndim == 3
    if row:
        weight, node = weight[:, :, None], _as_image(node)
    kernel, stride = list(weight.shape[2:]), _pair(node.attrs.get("strides"))
    dilation = _pair(node.attrs.get("dilations"))
    more = _pair(node.attrs.get("output_padding"), 0)
    if transposed and "output_shape" in node.attrs:
        raise t.refused("output_shape is not known", "pick kernel = stride, or state pads that give the size")
    if transposed and any(size >= step for size, step in zip(more, stride, strict=True)):
        raise t.refused(f"an output_padding of {more} with strides of {stride}", "state one below the stride")
    attrs = _window(stride, _pads(t, node, kernel, stride, dilation), groups, dilation, more if transposed else [0, 0])
    params = {"weight": t.param(weight), "bias": t.param(np.zeros(channels) if bias is None else bias)}
    _stated_steps(t, node, params["weight"], 1 if transposed else 0, channels)
    if row:
        over_rows(t, node, "conv2d", params, **attrs)
        return
    t.emit(node, "conv2d_transpose" if transposed else "conv2d", [t.source(node.inputs[0])], weights=params, **attrs)


@_translates("Col2Im")
def _col2im(t: Translation, node: Node) -> None:
    """Emit Col2Im as a transposed convolution whose weights put every value of a window into its place."""
    image, window = (t.constant(node, place, what) for place, what in ((1, "the image"), (2, "the window")))
    assert image is not None and window is not None, "no sizes"
    batch, rows, _ = t.graph.tensor(node.inputs[0]).shape
    if image.size != 2 or window.size != 2:
        raise t.refused("only images are put together from windows", "fold other dimensions into the batch")
    stride, dilation = _pair(node.attrs.get("strides")), _pair(node.attrs.get("dilations"))
    kernel = [int(n) for n in window]
    pads = [int(n) for n in node.attrs.get("pads") or [0] * 4]
    reach = [int(image[n]) + pads[n] + pads[n + 2] - dilation[n] * (kernel[n] - 1) - 1 for n in range(2)]
    sides, more = [reach[n] // stride[n] + 1 for n in range(2)], [reach[n] % stride[n] for n in range(2)]
    channels = rows // prod(kernel)
    places = np.eye(prod(kernel), dtype=np.float32).reshape(-1, 1, *kernel)
    params = {"weight": t.param(np.tile(places, (channels, 1, 1, 1))), "bias": t.param(np.zeros(channels))}
    padding = pads[0] if len(set(pads)) == 1 else tuple(pads)
    attrs = _window(stride, padding, channels, dilation, more)
    x = t.emit(node, "reshape", [t.source(node.inputs[0])], shape=(batch, rows, *sides))
    t.emit(node, "conv2d_transpose", [x], weights=params, **attrs)


def _as_image(node: Node) -> Node:
    """Return a convolution over one dimension with the attributes of one over images that are one row high."""
    attrs = dict(node.attrs)
    for name in ("strides", "dilations"):
        if attrs.get(name):
            attrs[name] = [1, *attrs[name]]
    if attrs.get("pads"):
        attrs["pads"] = [0, attrs["pads"][0], 0, attrs["pads"][1]]
    return replace(node, attrs=attrs)


def _stated_steps(t: Translation, node: Node, weight: str, axis: int, channels: int) -> None:
    """Note the steps of a convolution's weights that the file stores as integers."""
    stored = t.graph.steps.get(node.inputs[1])
    if stored is None or not stored.steps or stored.axis not in (-1, axis):
        return  # computed in floats
    t.steps[weight] = stored.steps * channels if stored.axis < 0 else stored.steps


@_translates("QuantizeLinear", "DequantizeLinear")
def _quantise(t: Translation, node: Node) -> None:
    """Note the scale of a value; its integers stand for the value itself."""
    step, zero = t.constant(node, 1, "the scale"), t.constant(node, 2, "the zero point")
    assert step is not None, "no scale"
    point = np.zeros((1,), np.uint8) if zero is None else zero.reshape(-1)
    if step.size != 1 or point.size != 1:
        raise t.refused("values with more than one scale are not read", "quantise activations by tensor")
    if point.dtype not in (np.uint8, np.int8):
        raise t.refused(f"values stored as {point.dtype} are not read", "quantise activations to eight bits")
    least = int(np.iinfo(point.dtype).min)
    if not (np.isfinite(step).all() and (step > 0).all()):
        raise t.refused("the scale is no positive number", "quantise the network again")
    if node.op == "DequantizeLinear" and node.inputs[0] in t.graph.inputs:
        raise t.refused("an input that is already quantised is not read", "begin with QuantizeLinear")
    scale = (scalar(step.reshape(-1)), int(point[0]) - least)
    t.values[node.outputs[0]] = t.source(node.inputs[0])
    name = node.inputs[0] if node.op == "QuantizeLinear" else node.outputs[0]
    t.scales.setdefault(node.outputs[0], scale)
    if t.scales.setdefault(name, scale) != scale:
        raise t.refused(f"{name!r} has two scales", "give every value one scale")


@_translates("Gemm")
def _gemm(t: Translation, node: Node) -> None:
    alpha = float(node.attrs.get("alpha", 1.0))
    if alpha != 1.0 and node.inputs[1] in t.graph.steps:
        raise t.refused("alpha times integers is not known", "fold alpha into the weight's steps")
    weight = t.constant(node, 1, "the weight")
    bias = t.constant(node, 2, "the bias")
    assert weight is not None, "no weight"
    if not node.attrs.get("transB", 0):
        weight = weight.T
    params = {"weight": t.param(weight if alpha == 1.0 else weight * np.float32(alpha))}
    if bias is not None:
        made = t.graph.tensor(node.outputs[0]).shape
        wider = any(size not in (1, whole) for size, whole in zip(bias.shape[::-1], made[::-1], strict=False))
        if wider or bias.ndim > len(made):
            raise t.invalid(f"a bias of {list(bias.shape)} for results of {list(made)}")
        flat = np.broadcast_to(bias * float(node.attrs.get("beta", 1.0)), (1, weight.shape[0])).reshape(-1)
        params["bias"] = t.param(flat)
    x = t.source(node.inputs[0])
    turned = node.attrs.get("transA", 0)
    t.emit(node, "dense", [t.emit(node, "transpose", [x], order=(1, 0)) if turned else x], weights=params)


@_translates("MatMul")
def _matmul(t: Translation, node: Node) -> None:
    weight = t.graph.constants.get(node.inputs[1])
    if weight is not None and weight.ndim == 2:
        t.emit(node, "dense", [t.source(node.inputs[0])], weights={"weight": t.param(weight.T)})
        return
    for place, swapped in ((0, {"swapped": True}), (1, {})):
        constant = t.graph.constants.get(node.inputs[place])
        if constant is not None and min(constant.ndim, t.rank(node.inputs[1 - place])) > 1:
            t.with_constant(node, "matmul", t.source(node.inputs[1 - place]), constant, **swapped)
            return
    sources = [t.source(name) for name in node.inputs]
    vectors = [t.rank(name) == 1 for name in node.inputs]
    for place, name in enumerate(node.inputs):
        if vectors[place]:  # a row on the left, a column on the right
            (size,) = t.graph.tensor(name).shape
            sources[place] = t.emit(node, "reshape", [sources[place]], shape=(size, 1) if place else (1, size))
    product = t.emit(node, "matmul", sources)
    if any(vectors):
        t.emit(node, "reshape", [product], shape=t.graph.tensor(node.outputs[0]).shape)


@_translates("BatchNormalization")
def _batch_norm(t: Translation, node: Node) -> None:
    scale, shift, mean, variance = (t.constant(node, i, "a batch norm's statistics") for i in range(1, 5))
    assert scale is not None and shift is not None and mean is not None and variance is not None
    factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    shape = (1, -1) + (1,) * (t.rank(node.inputs[0]) - 2)
    params = {"scale": t.param(factor.reshape(shape)), "shift": t.param((shift - mean * factor).reshape(shape))}
    t.emit(node, "batch_norm", [t.source(node.inputs[0])], weights=params)


@_translates("LayerNormalization")
def _layer_norm(t: Translation, node: Node) -> None:
    axis = t.axis(node, -1)
    scale, shift = t.constant(node, 1, "the scale"), t.constant(node, 2, "the bias")
    normalised = t.graph.tensor(node.inputs[0]).shape[axis:]
    assert scale is not None, "no scale"
    if any(array is not None and array.shape != normalised for array in (scale, shift)):
        raise t.refused(f"a scale or bias of another shape than {list(normalised)} is not known", "expand it")
    params = {"scale": t.param(scale), "shift": t.param(np.zeros(normalised) if shift is None else shift)}
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    t.emit(node, "layer_norm", [t.source(node.inputs[0])], weights=params, axis=axis, epsilon=epsilon)


@_translates("GroupNormalization", "InstanceNormalization")
def _group_norm(t: Translation, node: Node) -> None:
    shape = t.graph.tensor(node.inputs[0]).shape
    scale, shift = t.constant(node, 1, "the scale"), t.constant(node, 2, "the bias")
    assert scale is not None and shift is not None, "no scale or bias"
    groups = int(node.attrs["num_groups"]) if node.op == "GroupNormalization" else shape[1]
    if groups < 1 or shape[1] % groups:
        raise t.invalid(f"{shape[1]} channels cannot be divided into {groups} groups")
    if scale.size == groups != shape[1]:  # one a group before opset 21
        scale, shift = (np.repeat(array, shape[1] // groups) for array in (scale, shift))
    if scale.shape != (shape[1],) or shift.shape != (shape[1],):
        raise t.invalid(f"a scale or bias of another length than {shape[1]}")
    params = {"scale": t.param(scale), "shift": t.param(shift)}
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    t.emit(node, "group_norm", [t.source(node.inputs[0])], weights=params, groups=groups, epsilon=epsilon)


@_translates("Gelu")
def _gelu(t: Translation, node: Node) -> None:
    """Emit x / 2 (1 + erf(x / sqrt 2)), or its approximation by tanh."""
    x = t.source(node.inputs[0])
    if node.attrs.get("approximate", "none") == "tanh":
        cube = t.emit(node, "multiply", [t.emit(node, "multiply", [x, x]), x])
        bent = t.emit(node, "add", [x, t.with_constant(node, "multiply", cube, 0.044715)])
        gate = t.emit(node, "tanh", [t.with_constant(node, "multiply", bent, np.sqrt(2 / np.pi))])
    else:
        gate = t.emit(node, "erf", [t.with_constant(node, "multiply", x, np.sqrt(0.5))])
    both = t.emit(node, "multiply", [x, t.with_constant(node, "add", gate, 1.0)])
    t.with_constant(node, "multiply", both, 0.5)


@_translates("Pow")
def _pow(t: Translation, node: Node) -> None:
    exponent = t.graph.constants.get(node.inputs[1])
    value = scalar(exponent) if exponent is not None and exponent.size == 1 else 0.0
    x = t.source(node.inputs[0])
    if value == 0.5:
        t.emit(node, "sqrt", [x])
    elif value in (2.0, 3.0):
        square = t.emit(node, "multiply", [x, x])
        if value == 3.0:
            t.emit(node, "multiply", [square, x])
    else:
        _binary("power")(t, node)


@_translates("Cast")
def _cast(t: Translation, node: Node) -> None:
    types = [t.graph.tensor(name).dtype for name in (node.inputs[0], node.outputs[0])]
    if types[0] in ("uint8", "int8", "int32", "int64") and types[1] in ("fp32", "fp16"):
        t.emit(node, "cast", [t.source(node.inputs[0])])  # what cameras deliver
        return
    if types[0] == types[1] or all(dtype in ("fp32", "fp16") for dtype in types):
        _same(t, node)  # the planner chooses the precision
        return
    if not {*types} <= {"fp32", "fp16", "int32", "int64", "bool"}:
        raise t.refused(f"a conversion of {types[0]} to {types[1]} is not known")
    source = t.source(node.inputs[0])
    if types[1] == "bool":
        zero = t.zero(node, types[0])
        equal = t.emit(node, "equal", [source, zero])
        t.emit(node, "logical_not", [equal])
        return
    made: dict[str, Any] = {} if types[1] in ("fp32", "fp16") else {"dtype": types[1]}
    t.emit(node, "cast", [source], **made)


@_translates("Mod")
def _mod(t: Translation, node: Node) -> None:
    if node.attrs.get("fmod", 0):
        raise t.refused("remainders with the sign of the dividend are not known")
    _binary("floor_mod")(t, node)


@_translates("IsInf")
def _is_inf(t: Translation, node: Node) -> None:
    if not (node.attrs.get("detect_negative", 1) and node.attrs.get("detect_positive", 1)):
        raise t.refused("infinities of one sign are not known")
    t.emit(node, "isinf", [t.source(node.inputs[0])])


def _unary(op: str, **defaults: float) -> Handler:
    def handle(t: Translation, node: Node) -> None:
        attrs: dict[str, Any] = {name: float(node.attrs.get(name, value)) for name, value in defaults.items()}
        t.emit(node, op, [t.source(node.inputs[0])], **attrs)

    return handle


@_translates("Clip")
def _clip(t: Translation, node: Node) -> None:
    bounds = []
    for index, name, default in ((1, "min", -3.4e38), (2, "max", 3.4e38)):
        bound = t.constant(node, index, "the bound")
        bounds.append(scalar(bound) if bound is not None else float(node.attrs.get(name, default)))
    t.emit(node, "clip", [t.source(node.inputs[0])], low=bounds[0], high=bounds[1])


def _binary(op: str) -> Handler:
    def handle(t: Translation, node: Node) -> None:
        constants = [name for name in node.inputs if name in t.graph.constants]
        if not constants or op in COMPARISONS or t.graph.dtypes.get(node.outputs[0], "fp32") not in ("fp32", "fp16"):
            sources = [t.source(name) for name in node.inputs]
            while len(sources) > 2:  # Max and Min of several
                sources[:2] = [t.emit(node, op, sources[:2])]
            t.emit(node, op, sources)
            return
        other = next((name for name in node.inputs if name not in t.graph.constants), "")
        if len(node.inputs) != 2 or not other:
            raise t.refused("it needs two inputs, one of which is no constant")
        swapped = node.inputs[0] == constants[0]
        params = {"constant": t.param(t.graph.constants[constants[0]])}
        t.emit(node, op, [t.source(other)], weights=params, **({"swapped": True} if swapped else {}))

    return handle


@_translates("MaxPool", "AveragePool")
def _pool(t: Translation, node: Node) -> None:
    kernel, stride = _pair(node.attrs["kernel_shape"]), _pair(node.attrs.get("strides"))
    dilation = _pair(node.attrs.get("dilations"))
    if dilation != [1, 1]:
        raise t.refused("dilated pooling is not known", "replace it by a pooling of a larger window")
    if len(kernel) != 2:
        raise t.refused("only two-dimensional pooling is known", "write a one-dimensional one with a height of 1")
    attrs: dict[str, Any] = {"kernel": _one(kernel), "stride": _one(stride)}
    attrs["padding"] = _pads(t, node, kernel, stride, dilation)
    if node.attrs.get("ceil_mode"):
        attrs["ceil"] = True
    if node.op == "AveragePool" and node.attrs.get("count_include_pad"):
        attrs["count_padding"] = True
    t.emit(node, "max_pool" if node.op == "MaxPool" else "avg_pool", [t.source(node.inputs[0])], **attrs)


def scalar(array: Any) -> float:
    """Return the only value of a constant, of shape [] or [1]."""
    return float(np.asarray(array).reshape(()))


@_translates("Identity", "Dropout")
def _same(t: Translation, node: Node) -> None:
    """Give the output the value of the first input."""
    training = t.constant(node, 2, "whether it is training") if len(node.inputs) > 2 else None
    if (training is not None and training.any()) or any(node.outputs[1:]):
        raise t.refused("values that are dropped at random are not known", "export it for inference")
    t.values[node.outputs[0]] = t.source(node.inputs[0])


@_translates("ArgMax")
def _argmax(t: Translation, node: Node) -> None:
    if node.attrs.get("select_last_index", 0):
        raise t.refused("the last of several maxima is not known", "export with select_last_index = 0")
    axis, keep = t.axis(node, 0), bool(node.attrs.get("keepdims", 1))
    t.emit(node, "argmax", [t.source(node.inputs[0])], axis=axis, keepdims=keep)


@_translates("TopK")
def _topk(t: Translation, node: Node) -> None:
    """Emit TopK, a layer for each output in use."""
    count, axis = t.constant(node, 1, "the number of places"), t.axis(node, -1)
    size = t.graph.tensor(node.inputs[0]).shape[axis]
    k = int(scalar(count)) if count is not None else int(node.attrs["k"])
    if not 0 < k <= size:
        raise t.invalid(f"{k} of {size} values")
    attrs = {"axis": axis, "k": k, "largest": bool(node.attrs.get("largest", 1))}
    for output, (name, result) in enumerate(zip(node.outputs, ("values", "indices"), strict=False)):
        if name:
            t.emit(node, "topk", [t.source(node.inputs[0])], output, **attrs, result=result)


@_translates("GridSample")
def _grid_sample(t: Translation, node: Node) -> None:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(found := node.attrs.get("mode", "bilinear"), found)
    padding = node.attrs.get("padding_mode", "zeros")
    if mode not in ("bilinear", "nearest") or padding not in ("zeros", "border", "reflection"):
        raise t.refused(f"sampling in mode {mode} with padding {padding} is not known", "use bilinear or nearest")
    if t.rank(node.inputs[0]) != 4:
        raise t.refused("only images are sampled", "fold other dimensions into the batch")
    sources = [t.source(name) for name in node.inputs]
    t.emit(node, "grid_sample", sources, mode=mode, padding=padding, align=bool(node.attrs.get("align_corners", 0)))


@_translates("ScatterND")
def _scatter_nd(t: Translation, node: Node) -> None:
    if node.attrs.get("reduction", "none") != "none":
        raise t.refused("scattering with a reduction is not known", "write it as Add of two tensors")
    t.emit(node, "scatter_nd", [t.source(name) for name in node.inputs])


@_translates("Gather")
def _gather(t: Translation, node: Node) -> None:
    """Emit Gather: a table lookup, a slice, or a choice of constant places."""
    table = t.graph.constants.get(node.inputs[0])
    if table is not None and table.dtype.kind != "f":  # such as numbers of levels or classes
        t.stated(node.inputs[0])
    elif table is not None:
        axis = int(node.attrs.get("axis", 0)) % table.ndim
        t.emit(node, "gather", [t.source(node.inputs[1])], weights={"table": t.param(table)}, axis=axis)
        return
    axis = t.axis(node, 0)
    if node.inputs[1] not in t.graph.constants:
        t.emit(node, "gather", [t.source(name) for name in node.inputs], axis=axis)
        return
    indices = t.constant(node, 1, "the index")
    assert indices is not None, "no indices"
    x, size = t.source(node.inputs[0]), t.graph.tensor(node.inputs[0]).shape[axis]
    places = [int(place) for place in indices.reshape(-1)]
    if not places or not all(-size <= place < size for place in places):
        raise t.invalid(f"an index is outside of -{size} to {size - 1}")
    places = [place % size for place in places]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step > 0 and places == list(range(places[0], places[-1] + 1, step)):
        x = t.emit(node, "slice", [x], axes=(axis,), begin=(places[0],), end=(places[-1] + 1,), step=(step,))
    else:
        x = t.emit(node, "gather", [x], axis=axis, indices=tuple(places))
    if indices.ndim != 1:
        t.emit(node, "reshape", [x], shape=t.graph.tensor(node.outputs[0]).shape)


def _reduce(op: str) -> Handler:
    return lambda t, node: reduction(t, node, op, t.source(node.inputs[0]))


def reduction(t: Translation, node: Node, op: str, source: str) -> str:
    """Emit the reduction of a layer over the axes that a node states, and return its name."""
    axes = t.constant(node, 1, "the axes")
    stated = [int(a) for a in axes] if axes is not None else [int(a) for a in node.attrs.get("axes", [])]
    rank = t.rank(node.inputs[0])
    if not stated and node.attrs.get("noop_with_empty_axes", 0):
        raise t.refused("a reduction over no axis is not known")
    axis = tuple(a % rank for a in stated) or tuple(range(rank))
    keep = bool(node.attrs.get("keepdims", 1))
    return t.emit(node, op, [source], axis=axis[0] if len(axis) == 1 and not keep else axis, keepdims=keep)


@_translates("GlobalAveragePool")
def _global_average(t: Translation, node: Node) -> None:
    """Emit the mean of an image's pixels, or of the values of a row or a volume."""
    x, rank = t.source(node.inputs[0]), t.rank(node.inputs[0])
    if rank == 4:
        t.emit(node, "global_avg_pool", [x])
    else:
        t.emit(node, "reduce_mean", [x], axis=tuple(range(2, rank)), keepdims=True)


@_translates("Split")
def _split(t: Translation, node: Node) -> None:
    """Emit Split as one slice per output."""
    axis = t.axis(node, 0)
    begin = 0
    for output, name in enumerate(node.outputs):
        if t.graph.is_empty(name):
            continue
        end = begin + t.graph.tensor(name).shape[axis]
        t.emit(node, "slice", [t.source(node.inputs[0])], output, axes=(axis,), begin=(begin,), end=(end,), step=(1,))
        begin = end


@_translates("Slice")
def _slice(t: Translation, node: Node) -> None:

    def given(index: int, name: str) -> list[int] | None:
        found = t.constant(node, index, f"the {name}")
        return [int(v) for v in found] if found is not None else node.attrs.get(name)

    shape = t.graph.tensor(node.inputs[0]).shape
    starts, ends = given(1, "starts"), given(2, "ends")
    assert starts is not None and ends is not None
    axes = [a % len(shape) for a in given(3, "axes") or range(len(starts))]
    steps = given(4, "steps") or [1] * len(starts)
    if any(step < 1 for step in steps):
        raise t.refused("slices that run backwards are not known", "flip the weights of the next layer instead")
    ranges = [slice(s, e).indices(shape[a])[:2] for s, e, a in zip(starts, ends, axes, strict=True)]
    begin, end = tuple(r[0] for r in ranges), tuple(r[1] for r in ranges)
    t.emit(node, "slice", [t.source(node.inputs[0])], axes=tuple(axes), begin=begin, end=end, step=tuple(steps))


_PLACES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")


@_translates("Resize", "Upsample")
def _resize(t: Translation, node: Node) -> None:
    mode = node.attrs.get("mode", "nearest")
    where = node.attrs.get("coordinate_transformation_mode", "asymmetric" if node.op == "Upsample" else "half_pixel")
    if mode not in ("nearest", "linear") or where not in _PLACES:
        raise t.refused(
            f"resizing in mode {mode} with {where} is not known", "use nearest or linear, asymmetric or half_pixel"
        )
    rounding = node.attrs.get("nearest_mode", "floor" if node.op == "Upsample" else "round_prefer_floor")
    source, target = t.graph.tensor(node.inputs[0]).shape, t.graph.tensor(node.outputs[0]).shape
    if node.attrs.get("antialias", 0) or node.attrs.get("exclude_outside", 0):
        raise t.refused("resizing with filters is not known", "scale in steps, or before the network")
    stated = next(
        (t.constant(node, n, "the scales") for n in (2, 1)[node.op == "Upsample" :] if n < len(node.inputs)), None
    )
    ratios = [new / old for old, new in zip(source, target, strict=True)]
    if stated is not None and stated.size and where != "align_corners" and not np.allclose(stated, ratios, rtol=1e-6):
        raise t.refused("scales that are no ratio of the sizes are not known", "state the sizes")
    if len(source) != 4 or source[:2] != target[:2]:
        raise t.refused("only height and width of images are resized", "keep batch and channels as they are")
    attrs = {"size": target[2:], "bilinear": mode == "linear", "coordinates": where, "rounding": rounding}
    t.emit(node, "resize2d", [t.source(node.inputs[0])], **attrs)


@_translates("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(t: Translation, node: Node) -> None:
    """Emit an operator that changes the shape alone."""
    t.emit(node, "reshape", [t.source(node.inputs[0])], shape=t.graph.tensor(node.outputs[0]).shape)


@_translates("Pad")
def _pad(t: Translation, node: Node) -> None:
    if node.attrs.get("mode", "constant") != "constant":
        raise t.refused("only padding with a constant is known", "pad with zeros, or inside the convolution")
    stated = t.constant(node, 1, "the padding")
    pads = [int(p) for p in (stated if stated is not None else node.attrs["pads"])]
    axes, rank = t.constant(node, 3, "the axes"), t.rank(node.inputs[0])
    if axes is not None:
        sides, pads = pads, [0] * (2 * rank)
        for number, axis in enumerate(int(a) % rank for a in axes):
            pads[axis], pads[axis + rank] = sides[number], sides[number + len(axes)]
    value = t.constant(node, 2, "the padding's value")
    filler = scalar(value) if value is not None else float(node.attrs.get("value", 0.0))
    t.emit(node, "pad", [t.source(node.inputs[0])], pads=tuple(pads), value=filler)


MOST_JOINED = 2**24
"""Values of a tensor that is joined from constants and computed values, or of zeros that repeat a value."""


@_translates("Expand", "Tile")
def _repeat(t: Translation, node: Node) -> None:
    """Emit an Expand or a Tile of single rows as an addition of zeros; repeated places are only noted.

    GatherElements, which alone takes repeated places, needs them once.
    """
    before, after = (t.graph.tensor(name) for name in (node.inputs[0], node.outputs[0]))
    if before.shape == after.shape and node.inputs[0] not in t.repeated:
        t.values[node.outputs[0]] = t.source(node.inputs[0])
    elif after.dtype in ("int32", "int64") and len(before.shape) == len(after.shape):
        t.repeated[node.outputs[0]] = t.repeated.get(node.inputs[0], node.inputs[0])
    else:
        _repeat_rows(t, node, before.shape, after.shape)


def _repeat_rows(t: Translation, node: Node, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    aligned = (1,) * (len(after) - len(before)) + before
    if len(after) < len(before) or any(one not in (1, size) for one, size in zip(aligned, after, strict=True)):
        raise t.refused("only sides of 1 are repeated", "write it as Concat of the value with itself")
    x = t.source(node.inputs[0])
    if aligned != before:
        x = t.emit(node, "reshape", [x], shape=aligned)
    sides = [1 if one == size else size for one, size in zip(aligned, after, strict=True)]
    if prod(sides) > MOST_JOINED:
        raise t.refused(f"a value is repeated more than {MOST_JOINED} times", "operators broadcast by themselves")
    dtype = t.graph.tensor(node.inputs[0]).dtype
    if dtype in ("fp32", "fp16"):
        t.with_constant(node, "add", x, np.zeros(sides, np.float32))
    else:
        name = f"{node.name}/zeros"
        t.graph.constants[name] = np.zeros(sides, dtype)
        t.emit(node, "logical_or" if dtype == "bool" else "add", [x, t.stated(name)])


@_translates("GatherElements")
def _gather_elements(t: Translation, node: Node) -> None:
    """Emit GatherElements whose places are the same along every other axis: whole slices at computed places."""
    if node.inputs[1] in t.graph.constants:
        raise t.refused("constant places are not known", "write them as Gather, Slice or a 1x1 convolution")
    data, index = (t.graph.tensor(name).shape for name in node.inputs)
    axis = t.axis(node, 0)
    source = t.repeated.get(node.inputs[1], node.inputs[1])
    places = t.graph.tensor(source).shape
    whole = all(
        one == other and (one == 1 or source != node.inputs[1])
        for place, (one, other) in enumerate(zip(data, index, strict=True))
        if place != axis
    )
    if not whole or prod(places) != places[axis] or places[axis] != index[axis]:
        raise t.refused("only places that are the same along every other axis are known", "choose whole rows by Gather")
    flat = t.emit(node, "reshape", [t.source(source)], shape=(places[axis],))
    t.emit(node, "gather", [t.source(node.inputs[0]), flat], axis=axis)


@_translates("Concat")
def _concat(t: Translation, node: Node) -> None:
    """Emit Concat; constants among its operands are added to a result that has zeros in their places."""
    result = t.graph.tensor(node.outputs[0])
    rank = len(result.shape)
    axis = int(node.attrs.get("axis", 1)) % rank
    constants = t.graph.constants
    names = [name for name in node.inputs if name not in constants or constants[name].size]
    computed = [name for name in names if name not in constants]
    if len(computed) == len(names) or result.dtype not in ("fp32", "fp16") or not computed:
        sources = [t.source(name) for name in names]
        if len(sources) > 1:
            t.emit(node, "concat", sources, axis=axis)
        else:
            t.values[node.outputs[0]] = sources[0]
        return
    if prod(result.shape) > MOST_JOINED:
        raise t.refused(f"more than {MOST_JOINED} values are joined with a constant", "give the constant as an input")
    filled = np.broadcast_to(np.float32(0), result.shape) if t.hollow else np.zeros(result.shape, np.float32)
    pads = {name: [0] * (2 * rank) for name in computed}
    place, last = 0, ""
    for name in names:
        if name not in constants:
            last = name
            place += t.graph.tensor(name).shape[axis]
            continue
        size = constants[name].shape[axis]
        if not t.hollow:
            filled[(slice(None),) * axis + (slice(place, place + size),)] = constants[name]
        pads[last or computed[0]][axis + rank if last else axis] += size
        place += size
    if len(computed) != len(pads):
        raise t.refused("an operand that is joined twice", "copy it by Identity")
    parts = [
        t.emit(node, "pad", [t.source(name)], pads=tuple(pads[name]), value=0.0) if any(pads[name]) else t.source(name)
        for name in computed
    ]
    joined = parts[0] if len(parts) == 1 else t.emit(node, "concat", parts, axis=axis)
    t.with_constant(node, "add", joined, filled)


@_translates("DepthToSpace")
def _depth_to_space(t: Translation, node: Node) -> None:
    """Emit DepthToSpace, in either order of the channels."""
    batch, channels, height, width = t.graph.tensor(node.inputs[0]).shape
    size = int(node.attrs["blocksize"])
    kept, rest = divmod(channels, size * size)
    if rest or size < 0:
        raise t.invalid(f"{channels} channels are not blocks of {size} x {size} pixels")
    if node.attrs.get("mode", "DCR") == "CRD":
        split, order = (batch, kept, size, size, height, width), (0, 1, 4, 2, 5, 3)
    else:
        split, order = (batch, size, size, kept, height, width), (0, 3, 4, 1, 5, 2)
    _rearrange(t, node, split, order, (batch, kept, height * size, width * size))


@_translates("SpaceToDepth")
def _space_to_depth(t: Translation, node: Node) -> None:
    batch, channels, height, width = t.graph.tensor(node.inputs[0]).shape
    size = int(node.attrs["blocksize"])
    if node.attrs.get("mode", "DCR") != "DCR":
        raise t.refused("blocks in another order than DCR are not known")
    (high, low), (wide, side) = divmod(height, size), divmod(width, size)
    if low or side or size < 0:
        raise t.invalid(f"{height} x {width} pixels are not blocks of {size} x {size}")
    result = (batch, channels * size * size, high, wide)
    _rearrange(t, node, (batch, channels, high, size, wide, size), (0, 3, 5, 1, 2, 4), result)


def _rearrange(t: Translation, node: Node, split: Sequence[int], order: Sequence[int], result: Sequence[int]) -> None:
    x = t.emit(node, "reshape", [t.source(node.inputs[0])], shape=tuple(split))
    x = t.emit(node, "transpose", [x], order=tuple(order))
    t.emit(node, "reshape", [x], shape=tuple(result))


@_translates("PRelu")
def _prelu(t: Translation, node: Node) -> None:
    """Emit PRelu: max(x, 0) + slope min(x, 0)."""
    slope, x = t.graph.constants.get(node.inputs[1]), t.source(node.inputs[0])
    if slope is not None and slope.size == 1:
        t.emit(node, "leaky_relu", [x], alpha=float(slope.reshape(())))
        return
    positive = t.emit(node, "relu", [x])
    negative = t.emit(node, "subtract", [x, positive])
    if slope is None:
        scaled = t.emit(node, "multiply", [negative, t.source(node.inputs[1])])
    else:
        scaled = t.with_constant(node, "multiply", negative, slope)
    t.emit(node, "add", [positive, scaled])


@_translates("ReduceL2")
def _reduce_l2(t: Translation, node: Node) -> None:
    """Emit ReduceL2: the root of the sum of squares."""
    x = t.source(node.inputs[0])
    t.emit(node, "sqrt", [reduction(t, node, "reduce_sum", t.emit(node, "multiply", [x, x]))])


@_translates("LpNormalization")
def _lp_normalization(t: Translation, node: Node) -> None:
    """Emit LpNormalization with p = 2: x over its length."""
    if int(node.attrs.get("p", 2)) != 2:
        raise t.refused("only lengths by squares are known", "export with p = 2")
    x = t.source(node.inputs[0])
    squares = t.emit(node, "multiply", [x, x])
    total = t.emit(node, "reduce_sum", [squares], axis=(t.axis(node, -1),), keepdims=True)
    length = t.with_constant(node, "maximum", t.emit(node, "sqrt", [total]), _LEAST)  # 0 stays 0
    t.emit(node, "divide", [x, length])


@_translates("LRN")
def _lrn(t: Translation, node: Node) -> None:
    """Emit LRN across channels: x / (bias + alpha * mean of squares in a window)^(3/4)."""
    size, beta = int(node.attrs["size"]), float(node.attrs.get("beta", 0.75))
    if size % 2 == 0 or beta != 0.75:
        raise t.refused("only odd windows and a beta of 0.75 are known", "export with batch normalisation instead")
    x, (batch, channels, height, width) = t.source(node.inputs[0]), t.graph.tensor(node.inputs[0]).shape
    if not 0 < size < 2 * channels:
        raise t.refused(f"a window of {size} over {channels} channels is not known", "no wider than all channels")
    squares = t.emit(node, "multiply", [x, x])
    rows = t.emit(node, "reshape", [squares], shape=(batch, 1, channels, height * width))
    side = (size - 1) // 2
    mean = t.emit(node, "avg_pool", [rows], kernel=(size, 1), stride=1, padding=(side, 0, side, 0), count_padding=True)
    mean = t.emit(node, "reshape", [mean], shape=(batch, channels, height, width))
    alpha, bias = float(node.attrs.get("alpha", 1e-4)), float(node.attrs.get("bias", 1.0))
    scaled = t.with_constant(node, "multiply", mean, alpha)
    root = t.emit(node, "sqrt", [t.with_constant(node, "add", scaled, bias)])
    power = t.emit(node, "multiply", [root, t.emit(node, "sqrt", [root])])
    t.emit(node, "divide", [x, power])


@_translates("Einsum")
def _einsum(t: Translation, node: Node) -> None:
    """Emit Einsum of two computed values as one product of matrices between transposes."""
    terms, arrow, result = str(node.attrs["equation"]).replace(" ", "").partition("->")
    operands = terms.split(",")
    if len(operands) != 2 or not arrow or any(not term.isalpha() or len(set(term)) < len(term) for term in operands):
        raise t.refused(f"Einsum of {terms} is not known", "write it as several MatMul and Transpose")
    if not t.graph.constants.keys().isdisjoint(node.inputs):
        raise t.refused(f"Einsum of {terms} with a constant is not known", "write it as MatMul and Transpose")
    left, right = operands
    sides: dict[str, int] = {}
    for term, name in zip(operands, node.inputs, strict=True):
        for letter, side in zip(term, t.graph.tensor(name).shape, strict=True):
            if sides.setdefault(letter, side) != side:
                raise t.invalid(f"{letter} of {terms} is {sides[letter]} and {side}")
    both = [one for one in left if one in right]
    batch, inner = [one for one in both if one in result], [one for one in both if one not in result]
    rows = [one for one in left if one not in both]
    columns = [one for one in right if one not in both]
    if sorted(result) != sorted([*batch, *rows, *columns]):
        raise t.refused(f"Einsum of {terms} to {result} is not known", "write it as several MatMul and Transpose")
    outer = [sides[one] for one in batch]
    a = _matrices(t, node, 0, left, [*batch, *rows, *inner], [*outer, _size(rows, sides), _size(inner, sides)])
    b = _matrices(t, node, 1, right, [*batch, *inner, *columns], [*outer, _size(inner, sides), _size(columns, sides)])
    x = t.emit(node, "matmul", [a, b])
    letters = [*batch, *rows, *columns]
    x = t.emit(node, "reshape", [x], shape=tuple(sides[one] for one in letters))
    if list(result) != letters:
        t.emit(node, "transpose", [x], order=tuple(letters.index(one) for one in result))


def _matrices(t: Translation, node: Node, index: int, term: str, order: list[str], shape: list[int]) -> str:
    x = t.source(node.inputs[index])
    if list(term) != order:
        x = t.emit(node, "transpose", [x], order=tuple(term.index(one) for one in order))
    return t.emit(node, "reshape", [x], shape=tuple(shape))


def _size(letters: Sequence[str], sides: dict[str, int]) -> int:
    return prod(sides[one] for one in letters)


def over_rows(t: Translation, node: Node, op: str, weights: dict[str, Any], **attrs: Any) -> None:
    """Emit a one-dimensional convolution as one of images that are one row high."""
    batch, channels, length = t.graph.tensor(node.inputs[0]).shape
    x = t.emit(node, "reshape", [t.source(node.inputs[0])], shape=(batch, channels, 1, length))
    x = t.emit(node, op, [x], weights=weights, **attrs)
    t.emit(node, "reshape", [x], shape=t.graph.tensor(node.outputs[0]).shape)


UNARY = {
    "Relu": "relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "Exp": "exp", "Sqrt": "sqrt", "Erf": "erf",
    "HardSwish": "hard_swish", "Softplus": "softplus", "Log": "log", "Abs": "abs", "Sin": "sin", "Cos": "cos",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign", "Not": "logical_not", "IsNaN": "isnan",
}  # fmt: skip
BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Max": "maximum", "Min": "minimum",
    "Equal": "equal", "Less": "less", "LessOrEqual": "less_equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor",
}  # fmt: skip
REDUCTIONS = {
    "ReduceMean": "reduce_mean", "ReduceMax": "reduce_max", "ReduceSum": "reduce_sum",
}  # fmt: skip
HANDLERS |= {
    **{op: _unary(kind) for op, kind in UNARY.items()},
    **{op: _binary(kind) for op, kind in BINARY.items()},
    **{op: _reduce(kind) for op, kind in REDUCTIONS.items()},
    "Neg": lambda t, node: t.with_constant(node, "multiply", t.source(node.inputs[0]), -1),
    "Reciprocal": lambda t, node: t.with_constant(node, "divide", t.source(node.inputs[0]), 1, swapped=True),
    "Where": lambda t, node: t.emit(node, "where", [t.source(name) for name in node.inputs]),
    "Softmax": lambda t, node: t.emit(node, "softmax", [t.source(node.inputs[0])], axis=t.axis(node, -1)),
    "Transpose": lambda t, node: t.emit(
        node, "transpose", [t.source(node.inputs[0])],
        order=tuple(node.attrs.get("perm") or reversed(range(t.rank(node.inputs[0])))),
    ),
    "LeakyRelu": _unary("leaky_relu", alpha=0.01),
    "HardSigmoid": _unary("hard_sigmoid", alpha=0.2, beta=0.5),
    "Elu": _unary("elu", alpha=1.0),
}  # fmt: skip

_TYPED = frozenset(BINARY) - {"Div"} | {"Not", "Where", "Abs", "Sign", "Mod", "IsNaN", "IsInf", "ReduceSum"}
"""Operators whose layers compute in integers too; a quotient of integers is rounded in its own way."""
_ANY_TYPE = frozenset(
    ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Identity", "Dropout",
     "Gather", "GatherElements", "ScatterND", "Cast", "TopK", "ArgMax", "Expand", "Tile", "QuantizeLinear",
     "DequantizeLinear", "MaxPool")
)  # fmt: skip
"""Operators whose layers move or judge values of any type."""
_MARKS = ("QuantizeLinear", "DequantizeLinear")
"""Operators that are read as marks on values, or not at all: a scale that is passed over would change the precision."""
_UNKNOWN = "export with fixed shapes and ONNX's own operators, or cut the file there: onnx.utils.extract_model"


# Operators of a file that no layer computes: taken as they are, with the types of their results and their work.
#
# A layer `onnx` holds the operator with its attributes and constants, so that a runtime that reads ONNX computes it and
# plans know its cost; `reason` says why no kernel of socsched does.  One layer stands for each result that is in use.


_STORED = 4096
"""Values of a constant up to which it may lie in the attributes of a layer, where fp32 does not hold it exactly."""
_TRACE = "export by tracing, so that control flow is unrolled for the fixed shapes"
_FLOATS = (10, 16)
"""Codes of the data types of numbers that a file may state in place of fp32: the planner chooses the precision."""


def take_whole(t: Translation, node: Node, reason: str) -> None:
    """Emit a node as layers of its own, one a result; UnknownOperator for one that has no types or constants."""
    if node.graphs:
        raise t.refused("its body is computed turn by turn, which is read only where it can be written out", _TRACE)
    outputs = [place for place, name in enumerate(node.outputs) if name]
    results = {place: t.graph.tensor(node.outputs[place]) for place in outputs}
    inputs: list[str] = []
    operands: list[int | str] = []
    weights: dict[str, str] = {}
    types: dict[str, str] = {}
    stored: dict[str, tuple[Any, ...]] = {}
    for place, name in enumerate(node.inputs):
        if not name:
            operands.append("")
        elif name in t.graph.constants:
            role, array = f"c{place}", t.graph.constants[name]
            operands.append(role)
            _keep(t, role, array, weights, types, stored)
        else:
            operands.append(len(inputs))
            inputs.append(t.source(name))
    constants = t.graph.constants
    known = [constants[name].shape if name in constants else t.graph.tensor(name).shape for name in node.inputs if name]
    attributes = {name: _plain(node, name, value) for name, value in node.attrs.items()}
    attrs: dict[str, Any] = {
        "operator": "ScatterElements" if node.op == "Scatter" and not node.domain else node.op,  # its newer name
        "domain": node.domain,
        "opset": _since(node, t.graph.opsets.get(node.domain, 1)),
        "attributes": attributes,
        "operands": tuple(operands),
        "types": types,
        "stored": stored,
        "results": len(node.outputs),
        "reason": reason,
        "plugin": int(not _in_onnxruntime(node)),
        "rule": t.rule_name(node),
    }
    first = ""
    for place, kind in results.items():
        work = 0 if first else operations(node, known, [kind.shape for kind in results.values()])
        varies = node.outputs[place] in t.graph.varying and t.graph.varying.isdisjoint(node.inputs)
        more = {
            "varies": varies,
            "first": first,
            "result": place,
            "shape": kind.shape,
            "dtype": kind.dtype,
            "flops": work,
        }
        name = t.emit(node, "onnx", inputs, place, weights=weights, **attrs, **more)
        first = first or name


def _keep(
    t: Translation,
    role: str,
    array: Array,
    weights: dict[str, str],
    types: dict[str, str],
    stored: dict[str, tuple[Any, ...]],
) -> None:
    """Keep a constant as a weight, which is fp32, or among the attributes where fp32 is not exact."""
    dtype = DTYPES_OF.get(array.dtype)
    if dtype is None:
        raise t.refused(f"a constant of {array.dtype} is not read", "export it in fp32, or in integers")
    if exact(array):
        weights[role], types[role] = t.param(array), "fp32" if dtype == "fp16" else dtype
    elif array.size <= _STORED:
        stored[role] = (dtype, tuple(array.shape), tuple(array.reshape(-1).tolist()))
    else:
        raise t.refused(f"{array.size} constants of {array.dtype} do not fit fp32", "export them in fp32 or int32")


def _since(node: Node, opset: int) -> int:
    """Return the oldest opset in which an operator means what it means in the file's."""
    from onnx import defs

    if node.op == "Scatter" and not node.domain:
        return 11
    if node.domain or not defs.has(node.op, opset, ""):
        return opset
    return int(defs.get_schema(node.op, opset, "").since_version)


def _in_onnxruntime(node: Node) -> bool:
    """Return whether ONNX Runtime may know an operator: ONNX's own, and those of its own domain."""
    from onnx import defs

    return node.domain == "com.microsoft" or defs.has(node.op, node.domain)


def exact(array: Array) -> bool:
    """Return whether fp32 holds all values of a constant."""
    if array.dtype in (np.float32, np.float16):
        return True
    with np.errstate(invalid="ignore"):
        return np.array_equal(array, array.astype(np.float32).astype(array.dtype))


def _plain(node: Node, name: str, value: Any) -> Any:
    """Return an attribute as plain data; tensors as their encoding."""
    if node.op in ("Cast", "DequantizeLinear") and name in ("to", "output_dtype") and value in _FLOATS:
        return 1
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value
