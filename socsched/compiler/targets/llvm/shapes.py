"""Parameters of CPU kernels: layout of a blocked image, sliding window, and task order."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.graph.fusion import Group


@dataclass(frozen=True, slots=True)
class Lying:
    """Blocks from `first` on of a blocked image [total, height + 2 border, width + 2 border, block] of `dtype`."""

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
        """Return the shape of the whole tensor."""
        total = self.total or self.blocks
        return (total, self.height + 2 * self.border, self.width + 2 * self.border, self.block)


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window, (height, width) each; `pad` is the padding above and to the left of the image."""

    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)


def window_of(group: Group) -> Window:
    """Return the window of a convolution or a pooling."""
    a = {key: int(value) for key, value in group.attrs.items()}
    pad, dilation = a["pad"], a["dilation"]
    return Window(
        kernel=(a["kernel_h"], a["kernel_w"]),
        stride=(a["stride_h"], a["stride_w"]),
        pad=(a.get("pad_top", pad), a.get("pad_left", pad)),
        dilation=(a.get("dilation_h", dilation), a.get("dilation_w", dilation)),
    )


@dataclass(frozen=True, slots=True)
class Order:
    """Division of a convolution into tasks.

    A row of output is cut into `parts`; With `rows_first` all channel groups are computed before the next part, which
    keeps the activations in the cache; otherwise all parts of one channel group come first, which keeps its weights.
    """

    parts: int = 1
    rows_first: bool = False
