"""Applicability of the GPU rules and grouping of operators into kernels: decisions only, no code generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.targets.cuda import sequence_rules
from socsched.compiler.targets.cuda.kernels import BINARY
from socsched.compiler.targets.cuda.tiles import EDGE, VECTOR, round_up
from socsched.graph import index_maps, weighted_sums
from socsched.graph.fusion import Graph, Group
from socsched.graph.index_maps import Moves


def lying(channels: int) -> int:
    """Return the number of channels that an image of `channels` occupies in memory inside a network."""
    return round_up(channels, VECTOR if channels <= VECTOR else EDGE)


def unruled(graph: Graph) -> dict[str, str]:
    """Return the reason for every operator that these rules do not take, by its output.

    The other operators keep their rules.  An image is a tensor of one image that a rule has made or takes as input.
    """
    return judged(graph).unruled


@dataclass(frozen=True, slots=True)
class Judgement:
    """What becomes of each operator, by its output; the others have a rule on images.

    `unruled`: the reason for which there is no rule; `plain`: rules on plain tensors; `moves`: results that only move
    elements; `attentions`: the last product of each attention, `pools`: each sum of samples or gathered products, and
    `inside` what is computed within these; `images`: values whose channels follow each other in memory.
    """

    moves: Moves
    unruled: dict[str, str] = field(default_factory=dict)
    plain: set[str] = field(default_factory=set)
    attentions: dict[str, sequence_rules.Attention] = field(default_factory=dict)
    pools: dict[str, weighted_sums.Pooled] = field(default_factory=dict)
    inside: set[str] = field(default_factory=set)
    images: set[str] = field(default_factory=set)

    @property
    def elsewhere(self) -> set[str]:
        """Return the outputs that no rule on images makes."""
        return {*self.unruled, *self.plain, *self.moves.found, *self.attentions, *self.pools, *self.inside}


def judged(graph: Graph, weights: Mapping[str, Any] | None = None) -> Judgement:
    """Return what becomes of each operator; `weights` where the numbers in it are needed."""
    floats = (name for name in graph.inputs if graph.values[name].dtype == "fp32")  # bytes stay as they are
    images = {name for name in floats if _is_image(graph.values[name].shape)}
    made = Judgement(Moves(graph, weights), images=images)
    for group in graph.groups:
        if _moves(graph, group, images) and made.moves.add(group):
            if _by_pixels(graph, made.moves.found[group.output], images):
                images.add(group.output)
            continue
        reason = _RULES[group.kind](graph, group) if group.kind in _RULES else f"no rule for {group.kind}"
        if not reason and group.kind in _EITHER and images.isdisjoint(group.inputs):
            reason = f"no rule for {group.kind} of anything but images"
        plain = group.kind not in _RULES or images.isdisjoint(group.inputs)
        if reason and plain and not sequence_rules.plain_reason(graph, group):
            made.plain.add(group.output)
        elif reason:
            made.unruled[group.output] = reason
        elif group.kind not in ("reshape", "dense") and _is_image(graph.values[group.output].shape):
            images.add(group.output)
    for found in sequence_rules.attentions(graph, made.moves):
        made.attentions[found.output] = found
    made.pools.update(weighted_sums.pools(graph, made.moves))
    wholes: list[sequence_rules.Attention | weighted_sums.Pooled] = [*made.attentions.values(), *made.pools.values()]
    for whole in wholes:
        made.inside.update(whole.inside)
        for name in (whole.output, *whole.inside):
            made.unruled.pop(name, None)
            made.plain.discard(name)
    return made


def _moves(graph: Graph, group: Group, images: set[str]) -> bool:
    """Return whether an operator is best left to its readers: not a concatenation that images are written into."""
    if group.kind == "concat":
        return bool(_concat(graph, group)) or images.isdisjoint(group.inputs)
    return group.kind in (*index_maps.KINDS, "multiply", "divide")


def _by_pixels(graph: Graph, moved: index_maps.Moved, images: Collection[str]) -> bool:
    """Return whether the channels of a moved value of an image's shape follow each other in memory."""
    index = moved.index
    if not _is_image(index.shape):
        return False
    root = moved.roots[0]
    if index.shape[1] == 1:
        return root in images and index.shape[3] == 1
    _, channels, *size = graph.values[root].shape if root in images else (1, 1)
    one, other = (int(place) for place in index[0, :2, 0, 0])
    if root in images:
        if max(one, other) >= channels * prod(size):
            return True  # in another root
        one, other = (place // prod(size) + place % prod(size) * channels for place in (one, other))
    return other - one == 1


def unsupported_reason(graph: Graph) -> str:
    """Return the reason a network has no operator that these rules speed up, empty if it has one."""
    made = judged(graph)
    idle = {*made.unruled, *made.moves.found}
    if any(group.output not in idle for group in graph.groups):
        return ""
    return next(iter(made.unruled.values()), "no rule for operators that move elements alone")


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and shape[0] == 1 and min(shape) > 0


def _shapes(graph: Graph, group: Group) -> list[tuple[int, ...]]:
    return [graph.values[name].shape for name in (*group.inputs, group.output)]


def _images(graph: Graph, group: Group) -> str:
    """Return the reason if a tensor of an operator is not an image."""
    shapes = _shapes(graph, group)
    if any(len(shape) == 4 and shape[0] != 1 for shape in shapes):
        return "no rule for batches"
    return "" if all(map(_is_image, shapes)) else f"no rule for {group.kind} of anything but images"


def is_depthwise(group: Group) -> bool:
    """Return whether a convolution computes each channel by itself."""
    a = group.attrs
    return group.kind == "conv2d" and 1 < a.get("groups", 1) == a["in_channels"] == a["out_channels"]


def merged(group: Group) -> tuple[int, ...]:
    """Return numbers of groups of a grouped convolution that can be one product, weights between them being zero.

    A product has whole tiles of outputs and whole copies of channels; images may hold further groups, of zeros.
    """
    a = group.attrs
    count = int(a["groups"])
    own, outputs = int(a["in_channels"]) // count, int(a["out_channels"]) // count
    given, made = lying(int(a["in_channels"])), lying(int(a["out_channels"]))
    if given % own or made % outputs or given // own != made // outputs or made % EDGE:
        return ()
    whole = given // own
    return tuple(
        number
        for number in range(1, whole + 1)
        if whole % number == 0 and number * own % VECTOR == 0 and number * outputs % EDGE == 0
        if number * outputs <= _MERGED or number * outputs == EDGE
    )


_MERGED = 128
"""Outputs of one product of merged groups."""


def _convolution(graph: Graph, group: Group) -> str:
    a = group.attrs
    if "weight" not in group.weights:
        return f"no rule for {group.kind} with computed weights"
    if a.get("groups", 1) != 1 and not is_depthwise(group) and not merged(group):
        return f"no rule for {group.kind} in groups of channels that do not fill {EDGE}"
    if not is_depthwise(group) and a.get("dilation_h", 1) != a.get("dilation_w", 1):
        return f"no rule for {group.kind} with different dilations"
    return _images(graph, group)


def _transposed(graph: Graph, group: Group) -> str:
    a = group.attrs
    if a.get("uneven") or a.get("groups", 1) != 1 or a.get("dilation", 1) != 1:
        return f"no rule for {group.kind} with groups, dilation or uneven padding"
    if not (a["kernel_h"] == a["kernel_w"] == a["stride_h"] == a["stride_w"] and not a["pad"]):
        return "no rule for transposed convolutions whose kernel is not their stride"
    _, _, height, width = graph.values[group.inputs[0]].shape
    if graph.values[group.output].shape[2:] != (height * a["stride_h"], width * a["stride_w"]):
        return f"no rule for {group.kind} with output padding"
    return _images(graph, group)


def _pool(graph: Graph, group: Group) -> str:
    if group.kind == "avg_pool" and group.options.get("ceil", False):
        return "no rule for avg_pool rounded up"
    return _images(graph, group)


def _reduced(graph: Graph, group: Group) -> str:
    if not group.attrs.get("spatial"):
        return f"no rule for {group.kind} of anything but height and width"
    return "" if _is_image(graph.values[group.inputs[0]].shape) else f"no rule for {group.kind} of anything but images"


def _combined(graph: Graph, group: Group) -> str:
    if reason := _images(graph, group):
        return reason
    *given, (_, channels, *size) = _shapes(graph, group)
    if len(given) == 1 and len(group.weights) == 1:
        return ""
    sizes = ([1, 1], size)
    if len(given) != 2 or any(shape[1] != channels or list(shape[2:]) not in sizes for shape in given):
        return f"no rule for {group.kind} that broadcasts other than by channel"
    return ""


def _mapped(graph: Graph, group: Group) -> str:
    return _images(graph, group) if len(group.inputs) == 1 else f"no rule for {group.kind} of several tensors"


def _concat(graph: Graph, group: Group) -> str:
    if reason := _images(graph, group):
        return reason
    if group.attrs["axis"] != 1 or graph.values[group.output].shape[1] % EDGE:
        return f"no rule for concatenations of anything but channels, to a multiple of {EDGE}"
    return ""


def _reshape(graph: Graph, group: Group) -> str:
    given, made = _shapes(graph, group)
    return "" if min((*given, *made), default=1) > 0 else "no rule for reshape of sizes that vary"


def _dense(graph: Graph, group: Group) -> str:
    given, made = _shapes(graph, group)[0], _shapes(graph, group)[-1]
    if len(group.inputs) != 1 or "weight" not in group.weights:
        return "no rule for products of computed tensors"
    if len(given) < 2 or min(given) < 1 or len(given) != len(made):
        return "no rule for dense layers of anything but rows of a fixed number"
    return "no rule for products of images with a constant" if "untransposed" in group.options else ""


def _resize(graph: Graph, group: Group) -> str:
    if reason := _images(graph, group):
        return reason
    if not is_known(group.options):
        method = "linear" if group.options["bilinear"] else "nearest_neighbor"
        return f"no rule for resize2d by {method}, {group.options['coordinates']}"
    return ""


def _scatter(graph: Graph, group: Group) -> str:
    if graph.values[group.output].shape[1] % VECTOR:
        return f"no rule for a scatter of other than multiples of {VECTOR} channels"
    return ""


GATES = ("silu", "hard_sigmoid", "hard_swish", "gelu")
"""Operators that fusion makes (`cuda.lower`)."""
MAPPED = ("relu", "clip", "leaky_relu", "sigmoid", "tanh", *GATES)
_EITHER = (*BINARY, *MAPPED, "concat", "reduce_mean")
"""Operators that plain tensors of four dimensions take too, as attention's: images only where one is an input."""
_RULES: dict[str, Callable[[Graph, Group], str]] = {
    "conv2d": _convolution,
    "conv2d_transpose": _transposed,
    "dense": _dense,
    "concat": _concat,
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
    "global_avg_pool": _images,
    "reduce_mean": _reduced,
    **dict.fromkeys(BINARY, _combined),
    **dict.fromkeys(MAPPED, _mapped),
    "resize2d": _resize,
    "reshape": _reshape,
    "pillar_features": lambda graph, group: "",
    "scatter": _scatter,
}
_PRODUCTS = ("conv2d", "conv2d_transpose")
_ALL = (*_RULES, *sequence_rules.KINDS, *index_maps.KINDS)
KINDS = tuple(dict.fromkeys(kind for kind in _ALL if kind not in GATES))
"""Operators of networks with a rule."""


def slices(graph: Graph, gone: Collection[str]) -> dict[str, tuple[Group, int]]:
    """Return, per value written directly into a concatenation, that concatenation and the value's first channel.

    Only products write so: not depthwise convolutions, nor the operators without a rule, whose outputs are `gone`.
    """
    found: dict[str, tuple[Group, int]] = {}
    products = {g.output for g in graph.groups if g.kind in _PRODUCTS and g.output not in gone and not is_depthwise(g)}
    for group in graph.groups:
        first, in_place = 0, group.output not in gone and graph.in_place(group)
        whole = all(graph.values[value].shape[1] % EDGE == 0 for value in group.inputs) if in_place else False
        for value in group.inputs if whole and products.issuperset(group.inputs) else ():
            found[value] = (group, first)
            first += graph.values[value].shape[1]
    return found


def siblings(graph: Graph, gone: Collection[str]) -> dict[str, list[Group]]:
    """Return, by its first member's output, each set of 1x1 convolutions that are one product (detection heads).

    They share their input and activation, and all their results leave the network.
    """
    heads: dict[tuple[str, bool, Any], list[Group]] = {}
    for group in graph.groups:
        a = group.attrs
        if group.kind != "conv2d" or group.output in gone or is_depthwise(group):
            continue
        pointwise = a["kernel_h"] == a["kernel_w"] == a["stride_h"] == a["stride_w"] == 1 and not a["pad"]
        if (
            pointwise
            and a.get("groups", 1) == 1
            and group.output in graph.outputs
            and not graph.consumers(group.output)
        ):
            heads.setdefault((group.inputs[0], group.relu, group.options.get("activation")), []).append(group)
    return {members[0].output: members for members in heads.values() if len(members) > 1}


def sums(graph: Graph, taken: dict[str, tuple[Group, int]], gone: Collection[str]) -> dict[str, Group]:
    """Return the additions merged into a convolution, by its output: the later operand, if nothing else reads it.

    Values in `taken` are written into a concatenation and are not merged.
    """
    order = {group.output: index for index, group in enumerate(graph.groups)}
    found: dict[str, Group] = {}
    for group in graph.groups:
        if group.kind != "add" or group.output in gone or group.inputs[0] == group.inputs[1]:
            continue
        if len({graph.values[value].shape for value in group.inputs}) > 1:
            continue
        last = max(group.inputs, key=lambda value: order.get(value, -1))
        if last not in order or not graph.used_once(last) or last in taken:
            continue
        producer = graph.groups[order[last]]
        if producer.kind == "conv2d" and producer.output not in gone and not is_depthwise(producer):
            found[last] = group
    return found


def dense_sums(graph: Graph, made: Judgement) -> dict[str, Group]:
    """Return the additions merged into a dense layer, by its output: it is the later operand, lies as the sum does, and
    nothing else reads it.
    """
    order = {group.output: index for index, group in enumerate(graph.groups)}
    found: dict[str, Group] = {}
    for group in graph.groups:
        if group.kind != "add" or len(set(group.inputs)) != 2 or group.output in (made.elsewhere - made.plain):
            continue
        if len({graph.values[value].shape for value in (*group.inputs, group.output)}) > 1:
            continue
        for value, other in (group.inputs, group.inputs[::-1]):
            moved, rest = made.moves.of(value), made.moves.of(other)
            dense = made.moves.makers.get(moved.roots[0])
            if dense is None or dense.kind != "dense" or dense.output in made.elsewhere or len(moved.roots) > 1:
                continue
            late = max((order.get(root, -1) for root in rest.roots), default=-1) >= order[dense.output]
            if late or dense.relu or "activation" in dense.options or moved.factor != 1.0 or dense.output in found:
                continue
            columns = graph.values[dense.output].shape[-1]
            index = moved.index.transpose(0, 2, 3, 1) if group.output in made.images else moved.index
            if (
                columns % (2 * EDGE)
                or index_maps.piece(index) != 0
                or index.size != prod(graph.values[dense.output].shape)
            ):
                continue
            if made.moves.alone(value, dense.output):
                found[dense.output] = group
                break
    return found


Array = np.ndarray[Any, Any]

_SLACK = 1e-5
"""Added before rounding down and taken off before rounding up, as by the reference, against errors of fp32."""


def is_known(options: Mapping[str, Any]) -> bool:
    """Return whether `axis_table` has the coordinates and the rounding of a resize2d."""
    return options["coordinates"] in _PLACES and (options["bilinear"] or options["rounding"] in _ROUNDING)


def axis_table(size: int, result: int, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the source indices [2, result] of each place along an axis, and the share [result] of the second one."""
    places = np.arange(result, dtype=np.float64)
    source = _PLACES[options["coordinates"]](places, size, result)
    if not options["bilinear"]:
        first = _ROUNDING[options["rounding"]](source)
        second, share = first, np.zeros(result)
    else:
        first = np.floor(source)
        second, share = first + 1, source - first
    indices = np.clip(np.stack([first, second]), 0, size - 1)
    return indices.astype(np.int32), share.astype(np.float32)


_PLACES: dict[str, Any] = {
    # one rounding each, so that places halfway between two pixels are exact
    "half_pixel": lambda x, size, result: (2 * x + 1) * size / (2 * result) - 0.5,
    "align_corners": lambda x, size, result: x * (size - 1) / max(result - 1, 1),
    "asymmetric": lambda x, size, result: x * size / result,
}
_ROUNDING: dict[str, Any] = {
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + _SLACK),
    "ceil": lambda x: np.ceil(x - _SLACK),
}
