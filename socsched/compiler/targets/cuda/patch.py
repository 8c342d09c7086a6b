"""Patches of products for compute capability 9.0a (`hopper.py`): plain numbers, no TVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as combinations

from socsched.compiler.targets.cuda.shapes import Convolution

DEPTH = 64
"""Channels of a step: a row of 128 bytes; half as many if the channels are no multiple of it."""

ROWS = 64
"""Rows of one product of a warpgroup."""

_LIMIT = 227 << 10  # shared memory of a block


def depth_of(shape: Convolution) -> int:
    """Return the channels of a step."""
    return DEPTH // 2 if shape.channels % DEPTH else DEPTH


@dataclass(frozen=True, slots=True)
class Patch:
    """A block computes `height` x `width` pixels by `columns` channels, with `stages` operand tiles in its ring."""

    height: int
    width: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        """Return the pixels of a block."""
        return self.height * self.width

    def shared_bytes(self, shape: Convolution) -> int:
        """Return the shared memory of a block (bytes), for results of four bytes at most."""
        operands = (self.rows + self.columns) * depth_of(shape) * 2 * self.stages
        return max(operands, self.rows * (self.columns + 8) * 4) + 1024

    def fits(self, shape: Convolution) -> bool:
        """Return whether the shape has a rule here and this patch supports it."""
        return (
            shape.channels % (DEPTH // 2) == 0
            and (not shape.planes or self.columns == shape.n <= 256)
            and not shape.residual
            and shape.dilation == 1
            and shape.strides[0] == shape.strides[1]
            and shape.n % self.columns == 0
            and shape.outputs % self.columns == 0
            and self.rows % ROWS == 0
            and self.rows * self.columns <= 128 * 192
            and self.width * shape.stride <= 256
            and self.height * shape.stride <= 256
            and shape.k // depth_of(shape) >= self.stages - 1
            and self.shared_bytes(shape) <= _LIMIT
        )


def patches(shape: Convolution) -> Iterator[Patch]:
    """Yield every patch worth trying for a shape."""
    flat = [(1, 64), (1, 128), (1, 256)]
    square = [(8, 16), (16, 8), (8, 8), (4, 16), (16, 4), (4, 32), (8, 32), (2, 64), (4, 18), (8, 24), (16, 16)]
    pointwise = shape.kernel_h == shape.kernel_w == shape.stride == 1
    for (height, width), columns, stages in combinations(
        flat if pointwise else square,
        (shape.n,) if shape.planes else (64, 96, 128, 192, 256),
        (2, 3, 4, 5, 6, 8),
    ):
        patch = Patch(height, width, columns, stages)
        if patch.fits(shape):
            yield patch
