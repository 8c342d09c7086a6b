"""Tensors, operators and passes for planning; counted by `graph.counting` and `graph.accelerator_kernels`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

DTYPE_BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "int8": 1, "w8a16": 2, "fp8": 1, "fp4": 1, "uint8": 1, "int16": 2, "uint16": 2,
    "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "bool": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorType:
    """Logical shape (dimension -1 where it varies per frame), dtype name of `DTYPE_BYTES`, physical layout.

    The logical shape of an image tensor is always (N, C, H, W); `layout` is its memory layout: "NCHW", "NHWC",
    "NCHW16c" = (N, C/16, H, W, 16), or any of these with a zero border as "NCHW16c+1" (one pixel on every side).
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str = ""


_BLOCK = re.compile(r"([0-9]+)([chw])")


def tensor_bytes(tensor: TensorType) -> int:
    """Return the size of a tensor in bytes as its layout stores it; a varying dimension counts as 1.

    Blocked layouts round dimensions up: three channels in NCHW32c occupy as much as 32, and NHWC8h8w32c rounds height
    and width up to eight as well.
    """
    shape = [abs(d) for d in tensor.shape]
    if len(shape) == 4:
        for block, axis in _BLOCK.findall(tensor.layout):
            index = "nchw".index(axis)
            shape[index] = -(-shape[index] // int(block)) * int(block)
    return math.prod(shape) * DTYPE_BYTES.get(tensor.dtype, 4)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of a stage after fusion of its element-wise epilogue.

    `kind` is the operator's field name (conv2d, conv2d_transpose, dense, relu, concat, reduce_max, scatter, function,
    ...); `attrs` the numbers used by operator rules; `flops` arithmetic operations (a multiply-add is two);
    `read_bytes`/`write_bytes` activation traffic to and from DRAM at the dtype of `dtype`; `weight_bytes` constants.
    For an operator whose size varies per frame the figures hold for the nominal size of the stage's params.  `device`
    names the device implementation of a function, whose `attrs` count its work (points, anchors, input_pixels, ...).
    `whole` names the layer this operator is a part of, where runtimes take that layer as one operator (hard_swish): an
    engine's rules are those of the layer.  `node` names the operator of the user's file that this is, or is a part of:
    rules that list it decide on it (a Pow that is computed as a product is a power to the runtime).  `unlayered` is why
    no kernel of socsched computes an operator of a file (kind onnx), which runtimes that read ONNX may; `tensor_cores`
    whether there is one for these all the same.  `moves`: tensors that get another form for its sake, with the kernel's
    name (`graph.integers.in_kernels`).
    """

    name: str
    kind: str
    dtype: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    flops: int
    read_bytes: int
    write_bytes: int
    weight_bytes: int = 0
    attrs: Mapping[str, float] = field(default_factory=dict)
    device: str = ""
    whole: str = ""
    node: str = ""
    unlayered: str = ""
    tensor_cores: bool = False
    moves: tuple[tuple[str, TensorType], ...] = ()

    @property
    def bytes(self) -> int:
        """Return all DRAM traffic of the operator in bytes."""
        return self.read_bytes + self.write_bytes + self.weight_bytes


@dataclass(frozen=True, slots=True)
class Pass:
    """One kernel: its class, multiply-adds, elements read, written and of weights, and the shape of the convolution.

    `kind`: conv, winograd, depthwise, grouped, gemm, matmul (two computed operands), pool, eltwise, copy (concat,
    slice), transpose, softmax, resize, pillars (features of their points), scatter.  `rows` is the number of output
    positions (pixels, tokens); `cin` and `cout` the channels of one group; `cheap` and `costly` the elements that
    element-wise operators inside compute; `live` the elements of all activations that exist while it runs; `copies` the
    kernels that a copy takes where tensors have one place in memory: one for each operand of a concatenation that
    something else reads too, one for a slice.
    """

    kind: str
    macs: int
    read: int
    written: int
    weights: int
    rows: int
    cin: int
    cout: int
    groups: int = 1
    kernel: int = 1
    stride: int = 1
    cheap: int = 0
    costly: int = 0
    live: int = 0
    copies: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Integers:
    """How a network is computed in int8 by socsched's kernels: `floats`: operators in fp32 with reasons, of `count`.

    `asymmetric`: a value has another zero point than 0 or 128.  `any`: an operator is worth computing in int8, or the
    file says so.
    """

    count: int
    floats: Mapping[str, str]
    asymmetric: bool
    any: bool

    def __str__(self) -> str:
        """Return the operators in fp32 with reasons, empty for none."""
        if not self.floats:
            return ""
        reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(Counter(self.floats.values()).items()))
        return f"{len(self.floats)} of {self.count} operators in fp32: {reasons}"


Place = tuple[tuple[str, float], ...]
"""Share of a network's work by class of passes, and the logarithm of the work as `size`, in alphabetical order."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """Computation and data movement of one job of a stage, in one precision.

    `inputs` and `outputs` are the tensors that cross the stage border, logical shapes at nominal size.  `passes` are
    the kernels of an accelerator's runtime (`graph.accelerator_kernels`), empty where they are not known.  `integers`
    say how much of a network in int8 is computed in integers by socsched's kernels; `kernels` are the operators as
    those of CPUs compute them, where these are others (`graph.enlargements`, `graph.integers.in_kernels`).
    `place`: that of the whole network, of which the stage may be a part (`graph.accelerator_kernels.place`).
    """

    stage: str
    precision: str
    operators: tuple[Operator, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    passes: tuple[Pass, ...] = ()
    integers: Integers | None = None
    kernels: tuple[Operator, ...] = ()
    place: Place = ()

    @property
    def host_code(self) -> bool:
        """Return whether the stage is a host function, which reads and writes plain tensors."""
        return any(op.kind == "function" for op in self.operators)

    @property
    def flops(self) -> int:
        """Return the arithmetic operations of one job."""
        return sum(op.flops for op in self.operators)

    @property
    def bytes(self) -> int:
        """Return the DRAM traffic of one job in bytes, per operator (nothing kept on chip between operators)."""
        return sum(op.bytes for op in self.operators)
