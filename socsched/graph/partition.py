"""Cuts of a network, the tensors that cross them, and the resulting parts; fused tiles of its first layers.

A cut is a frontier of the DAG: a set of layers that contains everything its members depend on.  It is named by its last
layers, which no other layer before the cut follows ("blocks.1.5.relu+de.0.relu"); the empty name is the beginning or
the end.  Layers that compilers fuse (a convolution with what follows element by element) stay together unless a cut
names a layer between them.

Tiles: Zhao, Barijough, Gerstlauer, "DeepThings: Distributed Adaptive Deep Learning Inference on Resource-Constrained
IoT Edge Clusters", IEEE TCAD 37(11) 2018, "fused tile partitioning": the result of layer L is divided into a grid;
going backwards, a layer that produces rows [y0, y1) with kernel k, stride s, dilation d and padding p needs rows
[y0 s - p, (y1 - 1) s - p + d (k - 1) + 1) of its input, clipped to the image; the clipped rows are the remaining
padding.  Neighbouring tiles both compute their overlap.  A tile is a network like any other: a slice of the input, the
same layers with individual padding, the same weights.

Last layers name a cut because they are readable in a plan and survive reordering; positions in a layer list would miss
half of the cuts of a network with branches.  Cutting in a compiler's own form would make planning import the compiler.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network, pair, sides_of
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


def _params(network: Network, layers: Iterable[Layer]) -> dict[str, tuple[int, ...]]:
    used = {key for layer in layers for key in layer.weights.values()}
    return {key: shape for key, shape in network.params.items() if key in used}


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
    crossing = {layer.name: types[layer.name] for layer in network.layers if layer.name in before & read}
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
    layers = tuple(layer for layer in network.layers if layer.name in end - begin)
    inside = {layer.name for layer in layers}
    read = list(dict.fromkeys(value for layer in layers for value in layer.inputs if value not in inside))
    inputs = {value: tensor for value, tensor in network.inputs.items() if value in read}
    inputs |= {value: types[value] for value in read if value not in network.inputs}
    later = {value for layer in network.layers if layer.name not in end for value in layer.inputs}
    results = [value for value in network.outputs if value in inside]
    results += [layer.name for layer in layers if layer.name in later and layer.name not in results]
    params = _params(network, layers)
    return Network(name, inputs, layers, tuple(results), params)


WINDOWED = ("conv2d", "max_pool")
POINTWISE = ("relu", "leaky_relu", "sigmoid", "tanh", "clip", "hard_swish", "batch_norm")


Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Region:
    """Rows [top, bottom) and columns [left, right) of an image."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return self.bottom - self.top, self.right - self.left


@dataclass(frozen=True, slots=True)
class Image:
    """Channels, rows and columns of a layer's result."""

    channels: int
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Tiling of a network: its first `depth` layers, in `rows` x `columns` tiles of (nearly) equal size."""

    depth: int
    rows: int
    columns: int

    def places(self) -> list[tuple[int, int]]:
        """Return (row, column) of every tile, row by row."""
        return [(row, column) for row in range(self.rows) for column in range(self.columns)]


def fusable(network: Network) -> int:
    """Return the number of first layers that form a tileable chain, 0 for a network without a single input image."""
    if len(network.inputs) != 1:
        return 0
    name, tensor = next(iter(network.inputs.items()))
    if len(tensor.shape) != 4 or min(tensor.shape) < 1:
        return 0
    uses = [source for layer in network.layers for source in layer.inputs]
    count, before = 0, name
    for layer in network.layers:
        chained = layer.inputs == (before,) and (count == 0 or uses.count(before) == 1)
        if not chained or before in network.outputs or not _tileable(network, layer):
            break
        count, before = count + 1, layer.name
    return count if uses.count(name) == 1 else 0


def _tileable(network: Network, layer: Layer) -> bool:
    if layer.op not in WINDOWED:
        return layer.op in POINTWISE
    # With padding as wide as a window some results do not depend on the image: a tile of these would have no input.
    kernel, _, dilation, sides = window(network, layer)
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return not layer.attrs.get("ceil", False) and all(pad <= reach[n % 2] for n, pad in enumerate(sides))


def images(network: Network, depth: int) -> list[Image]:
    """Return the input and the results of the first `depth` layers."""
    (_, channels, rows, columns), *_ = (tensor.shape for tensor in network.inputs.values())
    sizes = [Image(channels, rows, columns)]
    for layer in network.layers[:depth]:
        last = sizes[-1]
        if layer.op not in WINDOWED:
            sizes.append(last)
            continue
        (kh, kw), (sh, sw), (dh, dw), (top, left, bottom, right) = window(network, layer)
        high = (last.rows + top + bottom - dh * (kh - 1) - 1) // sh + 1
        wide = (last.columns + left + right - dw * (kw - 1) - 1) // sw + 1
        channels_out = network.params[layer.weights["weight"]][0] if layer.op == "conv2d" else last.channels
        sizes.append(Image(channels_out, high, wide))
    return sizes


def window(network: Network, layer: Layer) -> tuple[Pair, Pair, Pair, tuple[int, int, int, int]]:
    """Return kernel, stride, dilation (height, width) and padding (top, left, bottom, right) of a windowed layer."""
    if layer.op == "conv2d":
        shape = network.params[layer.weights["weight"]]
        kernel: Pair = (shape[2], shape[3])
    else:
        kernel = pair(layer.attrs["kernel"])
    padding = sides_of(layer.attrs.get("padding", 0))
    return kernel, pair(layer.attrs.get("stride", 1)), pair(layer.attrs.get("dilation", 1)), padding


def tile_region(image: Image, grid: Grid, row: int, column: int) -> Region:
    """Return the part of the last fused layer's result that a tile produces."""
    return Region(
        image.rows * row // grid.rows,
        image.columns * column // grid.columns,
        image.rows * (row + 1) // grid.rows,
        image.columns * (column + 1) // grid.columns,
    )


def required_region(
    network: Network, layer: Layer, region: Region, image: Image
) -> tuple[Region, tuple[int, int, int, int] | None]:
    """Return the input region a layer needs for `region`, and the remaining padding (None: no window)."""
    if layer.op not in WINDOWED:
        return region, None
    kernel, stride, dilation, padding = window(network, layer)
    top, missing_top, bottom, missing_bottom = _span(
        region.top, region.bottom, kernel[0], stride[0], dilation[0], padding[0], image.rows
    )
    left, missing_left, right, missing_right = _span(
        region.left, region.right, kernel[1], stride[1], dilation[1], padding[1], image.columns
    )
    return Region(top, left, bottom, right), (missing_top, missing_left, missing_bottom, missing_right)


def _span(first: int, end: int, kernel: int, stride: int, dilation: int, pad: int, size: int) -> tuple[int, ...]:
    begin, stop = first * stride - pad, (end - 1) * stride - pad + dilation * (kernel - 1) + 1
    return max(begin, 0), max(-begin, 0), min(stop, size), max(stop - size, 0)


def regions(network: Network, grid: Grid, row: int, column: int) -> list[Region]:
    """Return a tile's region of the input and of every fused layer's result."""
    sizes = images(network, grid.depth)
    regions_of_layers = [tile_region(sizes[-1], grid, row, column)]
    for number in reversed(range(grid.depth)):
        regions_of_layers.insert(
            0, required_region(network, network.layers[number], regions_of_layers[0], sizes[number])[0]
        )
    return regions_of_layers


def tile_network(network: Network, grid: Grid, row: int, column: int) -> Network:
    """Return the network of one tile; UsageError if the first layers cannot be tiled so."""
    _check_tiles(network, grid)
    sizes, parts = images(network, grid.depth), regions(network, grid, row, column)
    source = next(iter(network.inputs))
    begin = parts[0]
    mark = f"tile{row}_{column}"
    attrs: dict[str, Any] = {
        "axes": (2, 3),
        "begin": (begin.top, begin.left),
        "end": (begin.bottom, begin.right),
        "step": (1, 1),
    }
    layers = [Layer(f"{mark}.input", "slice", (source,), attrs=attrs)]
    for number, layer in enumerate(network.layers[: grid.depth]):
        padding = required_region(network, layer, parts[number + 1], sizes[number])[1]
        own = dict(layer.attrs) if padding is None else {**layer.attrs, "padding": padding}
        layers.append(Layer(f"{mark}.{layer.name}", layer.op, (layers[-1].name,), layer.weights, own))
    params = _params(network, layers)
    return Network(f"{network.name}[{mark}]", dict(network.inputs), tuple(layers), (layers[-1].name,), params)


def tile_types(network: Network, grid: Grid) -> dict[str, TensorType]:
    """Return the fp32 type of every tile's result by name, row by row."""
    last = images(network, grid.depth)[-1]
    types = {}
    for row, column in grid.places():
        high, wide = tile_region(last, grid, row, column).size
        name = f"tile{row}_{column}.{network.layers[grid.depth - 1].name}"
        types[name] = TensorType((1, last.channels, high, wide), "fp32", "NCHW")
    return types


def gather_network(network: Network, grid: Grid) -> Network:
    """Return the network after the tiles: their results combined, and the rest of the network."""
    _check_tiles(network, grid)
    last, types = network.layers[grid.depth - 1].name, tile_types(network, grid)
    names = list(types)
    layers: list[Layer] = []
    whole: list[str] = []
    for row in range(grid.rows):
        own = names[row * grid.columns : (row + 1) * grid.columns]
        if grid.columns == 1:
            whole += own
            continue
        name = last if grid.rows == 1 else f"{last}.row{row}"
        layers.append(Layer(name, "concat", tuple(own), attrs={"axis": 3}))
        whole.append(name)
    if grid.rows > 1:
        layers.append(Layer(last, "concat", tuple(whole), attrs={"axis": 2}))
    layers += network.layers[grid.depth :]
    params = _params(network, layers)
    return Network(f"{network.name}[gather]", dict(types), tuple(layers), network.outputs, params)


def _check_tiles(network: Network, grid: Grid) -> None:
    """Raise UsageError if a network's first layers cannot be tiled by `grid`."""
    most = fusable(network)
    if not 1 <= grid.depth <= most:
        raise UsageError(
            f"{network.name}: {grid.depth} layers cannot be tiled, the first {most} can",
            "convolutions, pooling and element-wise layers, in a chain that starts at the only input",
        )
    last = images(network, grid.depth)[-1]
    if not (1 <= grid.rows <= last.rows and 1 <= grid.columns <= last.columns) or grid.rows * grid.columns < 2:
        raise UsageError(
            f"{network.name}: no {grid.rows} x {grid.columns} tiles of {last.rows} x {last.columns} results",
            "two tiles at least, of a row and a column each",
        )


def largest_bytes(network: Network, found: Sequence[Region], depth: int) -> int:
    """Return the peak bytes (fp32) of a layer's input and result held by a tile with these regions."""
    shapes = images(network, depth)
    sizes = [4 * image.channels * r.size[0] * r.size[1] for image, r in zip(shapes, found, strict=True)]
    return max(a + b for a, b in pairwise(sizes))
