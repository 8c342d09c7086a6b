"""Fused tiles: the first layers of a network, computed independently for each tile of the last layer's result.

Zhao, Barijough, Gerstlauer, "DeepThings: Distributed Adaptive Deep Learning Inference on Resource-Constrained IoT Edge
Clusters", IEEE TCAD 37(11) 2018, "fused tile partitioning": the result of layer L is divided into a grid; going
backwards, a layer that produces rows [y0, y1) with kernel k, stride s, dilation d and padding p needs rows [y0 s - p,
(y1 - 1) s - p + d (k - 1) + 1) of its input, clipped to the image; the clipped rows are the remaining padding.
Neighbouring tiles both compute their overlap.

A tile is a network like any other: a slice of the input, the same layers with individual padding, the same weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

WINDOWED = ("conv2d", "max_pool")
POINTWISE = ("relu", "leaky_relu", "sigmoid", "tanh", "clip", "hard_swish", "batch_norm")


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


Pair = tuple[int, int]


def window(network: Network, layer: Layer) -> tuple[Pair, Pair, Pair, tuple[int, int, int, int]]:
    """Return kernel, stride, dilation (height, width) and padding (top, left, bottom, right) of a windowed layer."""
    if layer.op == "conv2d":
        shape = network.params[layer.weights["weight"]]
        kernel: Pair = (shape[2], shape[3])
    else:
        kernel = _pair(layer.attrs["kernel"])
    padding = layer.attrs.get("padding", 0)
    sides = _sides(padding)
    return kernel, _pair(layer.attrs.get("stride", 1)), _pair(layer.attrs.get("dilation", 1)), sides


def _pair(value: Any) -> Pair:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _sides(padding: Any) -> tuple[int, int, int, int]:
    if isinstance(padding, int):
        return padding, padding, padding, padding
    values = [int(value) for value in padding]
    return (values[0], values[1], *(values[2:] or values[:2]))  # type: ignore[return-value]


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
    seen = images(network, grid.depth)
    regions_of_layers = [tile_region(seen[-1], grid, row, column)]
    for number in reversed(range(grid.depth)):
        regions_of_layers.insert(
            0, required_region(network, network.layers[number], regions_of_layers[0], seen[number])[0]
        )
    return regions_of_layers


def tile_network(network: Network, grid: Grid, row: int, column: int) -> Network:
    """Return the network of one tile; UsageError if the first layers cannot be tiled so."""
    check(network, grid)
    seen, parts = images(network, grid.depth), regions(network, grid, row, column)
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
        padding = required_region(network, layer, parts[number + 1], seen[number])[1]
        own = dict(layer.attrs) if padding is None else {**layer.attrs, "padding": padding}
        layers.append(Layer(f"{mark}.{layer.name}", layer.op, (layers[-1].name,), layer.weights, own))
    used = {key for layer in layers for key in layer.weights.values()}
    params = {key: shape for key, shape in network.params.items() if key in used}
    return Network(f"{network.name}[{mark}]", dict(network.inputs), tuple(layers), (layers[-1].name,), params)


def tile_types(network: Network, grid: Grid) -> dict[str, TensorType]:
    """Return the fp32 type of every tile's result by name, row by row."""
    last = images(network, grid.depth)[-1]
    found = {}
    for row, column in grid.places():
        high, wide = tile_region(last, grid, row, column).size
        name = f"tile{row}_{column}.{network.layers[grid.depth - 1].name}"
        found[name] = TensorType((1, last.channels, high, wide), "fp32", "NCHW")
    return found


def gather_network(network: Network, grid: Grid) -> Network:
    """Return the network after the tiles: their results combined, and the rest of the network."""
    check(network, grid)
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
    used = {key for layer in layers for key in layer.weights.values()}
    params = {key: shape for key, shape in network.params.items() if key in used}
    return Network(f"{network.name}[gather]", dict(types), tuple(layers), network.outputs, params)


def check(network: Network, grid: Grid) -> None:
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
    seen = images(network, depth)
    sizes = [4 * image.channels * r.size[0] * r.size[1] for image, r in zip(seen, found, strict=True)]
    return max(a + b for a, b in pairwise(sizes))
