"""Half-precision arithmetic on CPUs that have it (Armv8.2): how products are summed, and which convolution pays.

Half precision has a unit roundoff of u = 2^-11, so that long sums lose too much: at most `TERMS` products are summed in
half precision, then added into an fp32 total.  A sum of n products whose every fused step rounds once is off by at most
n u / (1 - n u) times the sum of the products' magnitudes (Higham, "Accuracy and Stability of Numerical Algorithms",
2nd ed., 2002, eq. 3.5), 3.6 % for 72; roundings of independent sign come to about sqrt(n) u of the sum's own spread
instead (ibid., section 2.8), 0.4 %, of which a tenth to a third shows against the largest output, as the totals of
many partial sums are larger than one of them.  Winograd multiplies that by what its transforms amplify: 2.5 for
F(2x2, 3x3), whose constants are 1 and 1/2, but 20 to 40 for F(3x3) and F(4x4), so that these stay in fp32.
Every partial sum must also stay below 65504: F(2x2) makes activations at most four times larger.
"""

from __future__ import annotations

from dataclasses import dataclass

from socsched.compile.cpu.vector import Vector

TERMS = 72
"""Most products summed in half precision: one block of eight channels under a 3x3 kernel."""
WINOGRAD = ((2, "float16"), (4, "float32"))
"""(m, type of products) of the Winograd convolutions that keep the accuracy of half-precision storage."""
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


def runs(steps: int, terms: int, most: int = TERMS) -> tuple[int, int]:
    """Return (partial sums, steps of each) of `steps` steps that add `terms` products; the last may have fewer steps."""
    each = max(most // terms, 1)
    count = -(-steps // each)
    return count, -(-steps // count)


def terms(inputs: int, kernel: int, block: int) -> int:
    """Return how many products a partial sum has, of `inputs` channels in blocks under `kernel` kernel positions."""
    _, each = runs(-(-inputs // block) * kernel, min(block, inputs))
    return each * min(block, inputs)


def instructions(method: Method, inputs: int, outputs: int, kernel: int, size: tuple[int, int], vector: Vector) -> float:
    """Return the arithmetic vector instructions an output pixel, input and output channel takes.

    `vector` computes in half precision, `size` is the output's.  Multiply-adds, additions into fp32 totals, Winograd's
    transforms and conversions are counted; loads and stores go through other ports.  Fused multiply-adds, additions and
    conversions share the vector pipes at the same rate on the processors at hand (Arm's software optimisation guides of
    the Cortex-A76 and A78), so the least count is the shortest time of a loop that fills them.
    """
    half = method.dtype == "float16"
    wide = vector.lanes // 2
    lanes = vector.lanes if half else wide
    if not method.m:
        return kernel / lanes * (1 + half * _WIDENING / terms(inputs, kernel, vector.block))
    m, positions = method.m, (method.m + 2) ** 2
    products = positions / lanes * (1 + half * _WIDENING / terms(inputs, 1, vector.block))
    widened = 0 if half else 2 * positions / vector.lanes
    before = (_INPUT[m] / lanes + widened) / outputs
    after = _OUTPUT[m] / wide / inputs
    waste = (-(-size[0] // m) * m) * (-(-size[1] // m) * m) / (size[0] * size[1])
    return (products + before + after) / m**2 * waste


def best(choices: tuple[Method, ...], *layer: object) -> Method:
    """Return the choice of fewest instructions for a layer, described as for `instructions`."""
    return min(choices, key=lambda method: instructions(method, *layer))  # type: ignore[arg-type]
