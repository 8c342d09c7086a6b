"""Cuts of a network, the tensors that cross them, and the resulting parts.

A cut is a frontier of the DAG: a set of layers that contains everything its members depend on.  It is named by its last
layers, which no other layer before the cut follows ("blocks.1.5.relu+de.0.relu"); the empty name is the beginning or
the end.  Layers that compilers fuse (a convolution with what follows element by element) stay together unless a cut
names a layer between them.

Last layers name a cut because they are readable in a plan and survive reordering; positions in a layer list would miss
half of the cuts of a network with branches.  Cutting in a compiler's own form would make planning import the compiler.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import DTYPE_BYTES, TensorType

ANCHORS = ("conv2d", "conv2d_transpose", "dense", "matmul", "add")
"""Layers that take element-wise followers in."""
EPILOGUES = (
    ("batch_norm", "relu", "leaky_relu", "clip", "sigmoid", "tanh", "hard_sigmoid", "hard_swish"),
    ("add",),  # a residual joins the convolution before it
)
PILLARS = ("pillar_features", "dense", "relu", "reduce_max")
"""The Pillar Feature Net, whose [pillars, slots, channels] tensors must not reach memory."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A frontier: `after` names its last layers, `before` all layers before it.

    `crossing` are the tensors computed before and read after it, `bytes` their size; network inputs read by both sides
    and network outputs with no later reader are not among them.
    """

    after: tuple[str, ...]
    before: frozenset[str]
    crossing: Mapping[str, TensorType]
    bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """The layers between two cuts, each named by its last layers; () is the network's beginning or end."""

    begin: tuple[str, ...] = ()
    end: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{'+'.join(self.begin)}:{'+'.join(self.end)}"


def parse_part(text: str) -> Part:
    """Return the part written "BEGIN:END", each a cut's layer names joined by "+", empty for the network's own end."""
    begin, colon, end = text.partition(":")
    if not colon:
        raise UsageError(
            f"{text!r} is not a part of a network", "write BEGIN:END, such as blocks.0.3.relu:neck, or :neck"
        )
    return Part(*(tuple(name for name in side.split("+") if name) for side in (begin, end)))


def units(network: Network, torn: bool = False) -> tuple[tuple[str, ...], ...]:
    """Return the groups of layers a cut keeps together, with `torn` single layers, in topological order.

    A group follows one that it reads wherever that is possible, so that branches are listed one after another.
    """
    if torn:
        return tuple((layer.name,) for layer in network.layers)
    by_name = {layer.name: layer for layer in network.layers}
    place = {name: index for index, name in enumerate(by_name)}
    uses = Counter(name for layer in network.layers for name in layer.inputs)
    groups: dict[str, list[str]] = {}
    for layer in network.layers:
        alone = [name for name in layer.inputs if name in by_name and uses[name] == 1 and name not in network.outputs]
        # The latest producer first: the residual's other branch is complete before it.
        latest = sorted(alone, key=place.__getitem__, reverse=True)
        home = next((groups[name] for name in latest if _joins(layer, groups[name], by_name)), None)
        groups[layer.name] = home if home is not None else []
        groups[layer.name].append(layer.name)
    # Only the last layer of a group is read from outside, so ordering groups by last layer is topological.
    return _branch_by_branch([tuple(group) for name, group in groups.items() if name == group[-1]], by_name)


def _branch_by_branch(groups: Sequence[tuple[str, ...]], layers: Mapping[str, Layer]) -> tuple[tuple[str, ...], ...]:
    """Return groups in topological order, each after one that it reads if that can be, else the first that is ready."""
    home = {name: number for number, group in enumerate(groups) for name in group}
    needs = [
        {home[source] for name in group for source in layers[name].inputs if source in home} - {number}
        for number, group in enumerate(groups)
    ]
    readers: list[list[int]] = [[] for _ in groups]
    for number, need in enumerate(needs):
        for other in need:
            readers[other].append(number)
    missing = [len(need) for need in needs]
    ready = [number for number, count in enumerate(missing) if not count]
    heapq.heapify(ready)
    order, follow = list[int](), list[int]()
    while ready or follow:
        number = min(follow) if follow else heapq.heappop(ready)
        order.append(number)
        for other in follow:
            if other != number:
                heapq.heappush(ready, other)
        follow = []
        for other in readers[number]:
            missing[other] -= 1
            if not missing[other]:
                follow.append(other)
    return tuple(groups[number] for number in order)


def _joins(layer: Layer, group: list[str], by_name: Mapping[str, Layer]) -> bool:
    ops = [by_name[name].op for name in group]
    if ops[0] == PILLARS[0]:
        return layer.op in PILLARS[1:] and (*ops, layer.op) == PILLARS[: len(ops) + 1]
    if ops[0] not in ANCHORS:
        return False
    return layer.op in EPILOGUES[0] or (layer.op in EPILOGUES[1] and "add" not in ops)


def prefixes(network: Network, types: Mapping[str, TensorType], nominal: int = 0, torn: bool = False) -> Iterator[Cut]:
    """Yield the cuts between consecutive units in the order of the network.

    `types` gives the type of every layer's result, `nominal` the size of a varying dimension (for `Cut.bytes`).
    """
    before: frozenset[str] = frozenset()
    for unit in units(network, torn)[:-1]:
        before |= set(unit)
        yield cut_after(network, before, types, nominal)


def cut_after(network: Network, before: frozenset[str], types: Mapping[str, TensorType], nominal: int) -> Cut:
    followed = {name for layer in network.layers if layer.name in before for name in layer.inputs}
    after = tuple(layer.name for layer in network.layers if layer.name in before and layer.name not in followed)
    read = {name for layer in network.layers if layer.name not in before for name in layer.inputs}
    read &= before
    crossing = {layer.name: types[layer.name] for layer in network.layers if layer.name in read}
    sizes = (
        prod(nominal if side < 0 else side for side in tensor.shape) * DTYPE_BYTES[tensor.dtype]
        for tensor in crossing.values()
    )
    return Cut(after, before, crossing, sum(sizes))


def take(network: Network, part: Part, types: Mapping[str, TensorType]) -> Network:
    """Return one part of `network`: its inputs come from earlier layers, its outputs are read later or leave the
    network.

    Network inputs come first among the inputs and network outputs among the outputs, in their order; tensors keep their
    names.  Raises UsageError for unknown layers or a part without any.
    """
    begin = _closure(network, part.begin)
    end = _closure(network, part.end) if part.end else frozenset(layer.name for layer in network.layers)
    if not begin < end:
        raise UsageError(f"{network.name}: no layer in the part {part}", "its end must lie after its beginning")
    return _between(network, begin, end, types, f"{network.name}[{part}]")


def cut(network: Network, points: Sequence[Cut | Iterable[str]], types: Mapping[str, TensorType]) -> list[Network]:
    """Return the parts between consecutive cuts (a `Cut`, or the names of its last layers), which compose to `network`.

    Raises UsageError unless every cut lies after the one before it.
    """
    names = [tuple(p.after) if isinstance(p, Cut) else tuple(p) for p in points]
    return [take(network, Part(a, b), types) for a, b in zip([(), *names], [*names, ()], strict=True)]


def _closure(network: Network, names: Iterable[str]) -> frozenset[str]:
    """Return the layers `names` and all they depend on."""
    layers = {layer.name: layer for layer in network.layers}
    queue, closure = list(names), set[str]()
    while queue:
        name = queue.pop()
        if name not in layers and name not in network.inputs:
            raise UsageError(f"{network.name} has no layer {name!r}", f"its layers: {', '.join(layers)}")
        if name in layers and name not in closure:
            closure.add(name)
            queue += layers[name].inputs
    return frozenset(closure)


def _between(
    network: Network, begin: frozenset[str], end: frozenset[str], types: Mapping[str, TensorType], name: str
) -> Network:
    inside = end - begin
    layers = tuple(layer for layer in network.layers if layer.name in inside)
    read = list(dict.fromkeys(value for layer in layers for value in layer.inputs if value not in inside))
    inputs = {value: tensor for value, tensor in network.inputs.items() if value in read}
    inputs |= {value: types[value] for value in read if value not in network.inputs}
    later = {value for layer in network.layers if layer.name not in end for value in layer.inputs}
    results = [value for value in network.outputs if value in inside]
    results += [layer.name for layer in layers if layer.name in later and layer.name not in results]
    used = {key for layer in layers for key in layer.weights.values()}
    params = {key: shape for key, shape in network.params.items() if key in used}
    return Network(name, inputs, layers, tuple(results), params)
