"""Pointwise convolutions of enlarged images, moved before the enlargement, where there are fewer pixels.

An interpolation's weights sum to one and are the same for all channels, so both orders compute the same sums.  Heads of
segmentation networks and necks of detectors join images of several sizes before such a convolution: it becomes the sum
of one for each size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from socsched.graph.fusion import Graph, Group, Operation
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]

_ENLARGING = (("asymmetric", "floor"), ("half_pixel", "round"), ("half_pixel", "round_prefer_floor"))
"""For whole factors these map every new pixel to the old one that contains it."""
_FEWEST = 64
"""Channels of an enlarged image below which a product with them takes less time than adding another image."""


def resizes(graph: Graph, group: Group) -> bool:
    """Return whether an operator is an interpolation, or repeats pixels, that has a rule."""
    if group.kind != "resize2d" or not graph.is_image(group.inputs[0], group.output):
        return False
    options = group.options
    if options["bilinear"]:
        return options["coordinates"] in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    scales = (group.attrs["scale_h"], group.attrs["scale_w"])
    whole = all(scale == int(scale) and scale >= 1 for scale in scales)
    return whole and (options["coordinates"], options["rounding"]) in _ENLARGING


def before_resizing(graph: Graph, weights: Mapping[str, Array] | None = None) -> tuple[Graph, Mapping[str, Array]]:
    """Return the graph with such convolutions moved, and the weights, if they are known, with those of their parts."""
    weights = weights or {}
    for conv in graph.groups:
        joined = _joined(graph, conv)
        if joined is not None:
            graph, weights = _spread(graph, weights, conv, joined)
    return graph, weights


def _joined(graph: Graph, conv: Group) -> Group | None:
    """Return the concatenation before a pointwise convolution, if it holds an image that was enlarged."""
    a = conv.attrs
    if conv.kind != "conv2d" or len(conv.inputs) != 1 or a["pad"] or not graph.is_image(conv.output):
        return None
    if not a["kernel_h"] == a["kernel_w"] == a["stride_h"] == a["stride_w"] == a["groups"] == 1:
        return None
    concat = graph.maker(conv.inputs[0])
    if concat is None or concat.kind != "concat" or concat.attrs["axis"] != 1 or len(concat.inputs) < 2:
        return None
    if not graph.used_once(concat.output):
        return None
    fits = graph.is_image(*concat.inputs) and any(_enlarged(graph, name) for name in concat.inputs)
    return concat if fits else None


def _enlarged(graph: Graph, name: str) -> Group | None:
    """Return the operator that enlarged an image which nothing else reads."""
    maker = graph.maker(name)
    if maker is None or not resizes(graph, maker) or not graph.used_once(name):
        return None
    (_, channels, *small), large = graph.values[maker.inputs[0]].shape, graph.values[name].shape[2:]
    return maker if channels >= _FEWEST and 2 * prod(small) <= prod(large) else None


def _spread(
    graph: Graph, weights: Mapping[str, Array], conv: Group, concat: Group
) -> tuple[Graph, Mapping[str, Array]]:
    channels = [graph.values[name].shape[1] for name in concat.inputs]
    starts, values, operations = [0, *accumulate(channels)], dict(graph.values), dict(graph.operations)
    params = dict(graph.network.params)
    key, weights, made = conv.weights["weight"], dict(weights), list[Group]()
    enlarged = {n: group for n, name in enumerate(concat.inputs) if (group := _enlarged(graph, name)) is not None}
    rest = [n for n in range(len(channels)) if n not in enlarged]

    def value(suffix: str, channels: int, size: Sequence[int]) -> str:
        name = f"{conv.output}.{suffix}"
        values[name] = TensorType((1, channels, *size), "fp32")
        return name

    def part(suffix: str, source: str, chosen: Sequence[int], bias: bool) -> str:
        """Add the convolution of some of the images, which `source` holds."""
        columns = [c for n in chosen for c in range(starts[n], starts[n + 1])]
        params[f"{key}.{suffix}"] = (params[key][0], len(columns), *params[key][2:])
        if key in weights:
            weights[f"{key}.{suffix}"] = weights[key][:, columns]
        roles = {role: name if role == "bias" else f"{key}.{suffix}" for role, name in conv.weights.items()}
        if not bias:
            roles.pop("bias", None)
        (_, count, *size), attrs = values[source].shape, dict(conv.attrs)
        output = value(suffix, values[conv.output].shape[1], size)
        attrs["in_channels"] = count
        made.append(replace(conv, inputs=(source,), output=output, weights=roles, attrs=attrs, relu=False))
        return output

    total, size = "", values[conv.output].shape[2:]
    for number, (n, resize) in enumerate(enlarged.items()):
        small = part(f"small{n}", resize.inputs[0], [n], not rest and not number)
        large = value(f"large{n}", values[conv.output].shape[1], size)
        made.append(replace(resize, inputs=(small,), output=large))
        if total:
            both = value(f"sum{n}", values[conv.output].shape[1], size)
            made.append(Group(both, "add", (large, total), both, layer=conv.layer))
            large = both
        total = large
    if rest:
        source = concat.inputs[rest[0]]
        if len(rest) > 1:
            source = value("rest", sum(channels[n] for n in rest), size)
            operations[source] = Operation(
                source, "concat", tuple(concat.inputs[n] for n in rest), values[source], options={"axis": 1}
            )
            made.append(replace(concat, inputs=operations[source].inputs, output=source))
        own = part("own", source, rest, True)
        made.append(Group(conv.name, "add", (own, total), conv.output, relu=conv.relu, layer=conv.layer))
    else:
        made[-1] = replace(made[-1], output=conv.output, relu=conv.relu and made[-1].kind == "add")
    gone = [concat, *enlarged.values()]
    groups = [one for group in graph.groups if group not in gone for one in (made if group is conv else [group])]
    network = replace(graph.network, params=params)
    return replace(graph, network=network, groups=tuple(groups), values=values, operations=operations), weights
