"""Half-precision arithmetic on CPUs that have it (Armv8.2): summation of products, and choice of convolution method.

Half precision has a unit roundoff of u = 2^-11, so long sums lose too much accuracy: at most `TERMS` products are
summed in half precision, then added into an fp32 total.  A sum of n products whose every fused step rounds once is off
by at most n u / (1 - n u) times the sum of the products' magnitudes (Higham, "Accuracy and Stability of Numerical
Algorithms", 2nd ed., 2002, section 3.1), 3.6 % for 72; roundings of independent sign amount to about sqrt(n) u of the
spread of the sum (section 2.8), 0.4 %, and to a third of that relative to the largest output of a layer.  Winograd
multiplies this error by the amplification of its transforms: about two for F(2x2, 3x3), whose constants are 1 and 1/2,
but eight to twenty for F(3x3) and F(4x4), which therefore multiply in fp32.  Every partial sum must also stay below
65504; F(2x2) enlarges activations at most fourfold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from socsched.compiler.targets.llvm.fuse import activation
from socsched.compiler.targets.llvm.vector import Vector
from socsched.graph.fusion import Graph

TERMS = 72
"""Maximum number of products summed in half precision: one block of eight channels under a 3x3 kernel."""
_FEW = 8
"""The same for networks whose outputs are bounded functions: one block."""
_BOUNDED = ("sigmoid", "tanh", "softmax", "hard_sigmoid")
_MOVING = ("reshape", "transpose", "concat", "slice", "resize2d")
WINOGRAD = ((2, "float16"), (4, "float32"))
"""(m, type of products) of the Winograd convolutions that are as accurate as half-precision storage."""
_WIDENING = 4
"""Instructions that add a register of half-precision sums into fp32: two conversions and two additions."""
_INPUT = {2: 32, 4: 192}
"""Vector instructions that transform a tile's input, by m: 2 (m + 2) rows and columns of 4 or 16."""
_OUTPUT = {2: 24, 4: 100}
"""The same for a tile's output."""


@dataclass(frozen=True, slots=True)
class Method:
    """How a convolution is computed: by Winograd's F(m x m, 3x3), directly for m = 0; products in `dtype`."""

    m: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution's channels, kernel positions and (height, width) of its output."""

    inputs: int
    outputs: int
    kernel: int
    size: tuple[int, int]


def most(graph: Graph) -> int:
    """Return the number of products that may be summed in half precision.

    Errors relative to the largest output stay the same as relative to a layer's values, unless an output is squashed:
    tanh of values up to 12 turns an error of 1e-3 of these into 1e-2 of its own range.
    """
    makers = {group.output: group for group in graph.groups}
    open_, seen = list(graph.outputs), set()
    while open_:
        name = open_.pop()
        group = makers.get(name)
        if group is None or name in seen:
            continue
        seen.add(name)
        last = activation(group)
        if group.kind in _BOUNDED or (last and last[0] in _BOUNDED):
            return _FEW
        if group.kind in _MOVING:
            open_ += group.inputs
    return TERMS


def runs(steps: int, terms: int, most: int) -> tuple[int, int]:
    """Return (partial sums, steps of each) of `steps` steps that add `terms` products each; the last may be shorter."""
    each = max(most // terms, 1)
    count = -(-steps // each)
    return count, -(-steps // count)


def terms(inputs: int, kernel: int, block: int, most: int) -> int:
    """Return the number of products in a partial sum over `inputs` channels in blocks and `kernel` kernel positions."""
    block = min(block, inputs)
    return runs(-(-inputs // block) * kernel, block, most)[1] * block


def instructions(method: Method, layer: Layer, vector: Vector, most: int = TERMS) -> float:
    """Return the arithmetic vector instructions per output pixel, input channel and output channel of `layer`.

    `vector` computes in half precision.  Multiply-adds, additions into fp32 totals, Winograd's transforms and
    conversions are counted; loads and stores use other ports.  Multiply-adds, additions and conversions share the
    vector pipes at nearly one rate (Arm's software optimisation guides of Cortex-A76 and A78), and the product loops
    saturate them (tools/bench/mca_aarch64.py), so fewer instructions mean less time.
    """
    half, wide = method.dtype == vector.dtype, vector.lanes // 2
    lanes = vector.lanes if half else wide
    if not method.m:
        extra = half * _WIDENING / terms(layer.inputs, layer.kernel, vector.block, most)
        return layer.kernel / lanes * (1 + extra)
    m, positions = method.m, (method.m + 2) ** 2
    products = positions / lanes * (1 + half * _WIDENING / terms(layer.inputs, 1, vector.block, most))
    widened = 0 if half else 2 * positions / vector.lanes
    before = (_INPUT[m] / lanes + widened) / layer.outputs
    after = _OUTPUT[m] / wide / layer.inputs
    height, width = layer.size
    tiles = -(-height // m) * -(-width // m)
    return (products + before + after) * tiles / (height * width)


def best(choices: Iterable[Method], layer: Layer, vector: Vector, most: int = TERMS) -> Method:
    """Return the choice with the fewest vector instructions for a layer."""
    return min(choices, key=lambda method: instructions(method, layer, vector, most))
