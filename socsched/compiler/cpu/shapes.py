"""What CPU kernels are made from: how a blocked image lies, and how a window slides over it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lying:
    """Blocks `first` onwards of a blocked image [total, height + 2 border, width + 2 border, block] of `dtype`."""

    blocks: int
    block: int
    height: int
    width: int
    border: int
    total: int = 0
    first: int = 0
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the whole tensor."""
        total = self.total or self.blocks
        return (total, self.height + 2 * self.border, self.width + 2 * self.border, self.block)


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window, (height, width) each; `pad` is what lies above and to the left of the image."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Order:
    """How a convolution is cut into tasks.

    A row of output is cut into `parts`; `rows_first` runs through all channel groups before the next part, which keeps
    the activations in the cache, else all parts of one channel group are done first, which keeps its weights.
    """

    parts: int = 1
    rows_first: bool = False
