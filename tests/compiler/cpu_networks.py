"""Networks that take every rule of the CPU lowering, and its results for plain arrays as plain arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import NUMPY_DTYPES, convert, physical_shape
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.targets.llvm.general import built, legalised
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import native_target
from socsched.compiler.targets.llvm.vector import Vector
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.weights import draw_weights

Array = np.ndarray[Any, Any]


def image(*shape: int) -> TensorType:
    return TensorType((1, *shape), "fp32", "NCHW")


def weights_of(network: Network) -> dict[str, Array]:
    """Seeded weights with biases that are not zero, so that a forgotten bias shows."""
    generator = np.random.default_rng(1)
    weights = draw_weights(network, 3)
    return {n: generator.normal(size=a.shape).astype(np.float32) if a.ndim == 1 else a for n, a in weights.items()}


def inputs_of(network: Network, seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {n: generator.normal(size=t.shape).astype(np.float32) for n, t in network.inputs.items()}


def execute(network: Network, inputs: dict[str, Array], vector: Vector, poison: bool = True) -> tuple[Array, ...]:
    """Run the CPU form of `network` on plain inputs, twice, so that stale memory from the first run would show."""
    lowered = lower(fuse_network(network), weights_of(network), vector)
    target = tvm.target.Target(dict(native_target()))
    function = relax.VirtualMachine(built(legalised(lowered.module, target), target), tvm.cpu())["main"]
    for scale in (1e6, 1.0) if poison else (1.0,):
        operands = []
        for name, kind in zip(network.inputs, lowered.inputs, strict=True):
            given = inputs[name]
            if kind.dtype in ("fp32", "fp16"):
                given = (given * np.float32(scale)).astype(NUMPY_DTYPES[kind.dtype])
            operands.append(
                to_tvm(
                    convert(given, TensorType(given.shape, kind.dtype, "NCHW" * (given.ndim == 4)), kind), kind, name
                )
            )
        results = function(*operands)
    arrays = []
    for result, kind in zip(results, lowered.outputs, strict=True):
        array = from_tvm(result)
        assert all(a in (b, -1) or b == -1 for a, b in zip(array.shape, physical_shape(kind), strict=True))
        check_border(array, kind)
        plain = TensorType(tuple(array.shape) if len(kind.shape) != 4 else kind.shape, kind.dtype, "NCHW")
        arrays.append(convert(array, kind, plain) if len(kind.shape) == 4 else array)
    return tuple(arrays)


def check_border(array: Array, kind: TensorType) -> None:
    if kind.layout.endswith("+1"):
        assert not array[:, :, [0, -1]].any() and not array[:, :, :, [0, -1]].any()


CHANNELS, HEIGHT, WIDTH = 48, 11, 13


def conv(name: str, source: str, outputs: int = CHANNELS, kernel: int = 3, groups: int = 1, **attrs: Any) -> Any:
    attrs = {"stride": 1, "padding": kernel // 2, "groups": groups, **attrs}
    layer = Layer(name, "conv2d", (source,), {"weight": f"{name}.w", "bias": f"{name}.b"}, attrs)
    return layer, {f"{name}.w": (outputs, CHANNELS // groups, kernel, kernel), f"{name}.b": (outputs,)}


def network(*made: Any, channels: int = CHANNELS) -> Network:
    """A network of layers, with or without their parameters; the last one's result leaves it."""
    layers = [m[0] if isinstance(m, tuple) else m for m in made]
    params = {name: shape for m in made if isinstance(m, tuple) for name, shape in m[1].items()}
    return Network("net", {"x": image(channels, HEIGHT, WIDTH)}, tuple(layers), (layers[-1].name,), params)


def op(kind: str, *inputs: str, name: str = "y", **attrs: Any) -> Layer:
    return Layer(name, kind, inputs or ("x",), attrs=attrs)


def scaled(kind: str, source: str, name: str) -> Any:
    return Layer(name, kind, (source,), {"constant": f"{name}.c"}), {f"{name}.c": (1,)}


def pointwise(name: str, source: str, inputs: int, outputs: int) -> Any:
    layer, params = conv(name, source, outputs, 1)
    return layer, params | {f"{name}.w": (outputs, inputs, 1, 1)}


GELU = (
    *(scaled("divide", "r", "i"), op("erf", "i", name="e"), scaled("add", "e", "s")),
    op("multiply", "r", "s", name="m"),
)
LINEAR = {"size": (2 * HEIGHT + 3, 3 * WIDTH), "bilinear": True, "rounding": "round"}
BACK = {"size": (HEIGHT, WIDTH), "bilinear": True, "coordinates": "half_pixel", "rounding": "round"}
POOL = {"kernel": 3, "stride": 2, "padding": 1}
NEAREST = {"size": (2 * HEIGHT, 3 * WIDTH), "bilinear": False}
CASES = {
    "slice of whole blocks": network(op("slice", axes=(1,), begin=(16,), end=(48,), step=(1,))),
    "nearest, asymmetric": network(op("resize2d", **NEAREST, coordinates="asymmetric", rounding="floor")),
    "nearest, half pixel": network(op("resize2d", **NEAREST, coordinates="half_pixel", rounding="round_prefer_floor")),
    "mean of what is inside": network(op("avg_pool", **POOL, count_padding=False)),
    "mean with the padding": network(op("avg_pool", **POOL, count_padding=True)),
    "mean of the image": network(op("global_avg_pool")),
    "depthwise": network(conv("a", "x", groups=CHANNELS), op("clip", "a", low=0.0, high=6.0)),
    "depthwise, stride 2": network(conv("a", "x", kernel=5, groups=CHANNELS, stride=2), op("relu", "a")),
    "depthwise and residual": network(conv("a", "x", groups=CHANNELS), op("add", "a", "x")),
    "groups": network(conv("a", "x", groups=3)),
    "dilation": network(conv("a", "x", dilation=2, padding=2)),
    "uneven padding and stride": network(conv("a", "x", padding=(0, 2, 1, 0), stride=(2, 1))),
    "residual before winograd": network(
        conv("a", "x"), conv("b", "a"), op("add", "b", "a", name="s"), op("relu", "s"), op("add", "y", "x", name="z")
    ),
    "both sides of a sum": network(
        conv("a", "x"), conv("b", "x", kernel=1), op("add", "a", "b"), op("relu", "y", name="z")
    ),
    "an unusual convolution joined by a usual one": network(
        conv("a", "x"), conv("b", "x", padding=(0, 2, 2, 0), dilation=(1, 1)), op("add", "b", "a")
    ),
    "a dilated convolution joined by a usual one": network(
        conv("a", "x"), conv("b", "x", padding=2, dilation=2), op("add", "b", "a")
    ),
    "silu": network(conv("a", "x"), op("sigmoid", "a", name="g"), op("multiply", "a", "g")),
    "a gate that is also read": network(
        conv("a", "x"), op("sigmoid", "a", name="g"), op("multiply", "a", "g"), op("add", "y", "g", name="z")
    ),
    "squeeze and excitation": network(
        op("global_avg_pool", name="m"),
        conv("a", "m", kernel=1),
        op("sigmoid", "a", name="g"),
        op("multiply", "x", "g"),
    ),
    **{
        kind: network(conv("a", "x"), op(kind, "a", **attrs))
        for kind, attrs in (
            ("leaky_relu", {"alpha": 0.1}),
            ("tanh", {}),
            ("hard_swish", {}),
            ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
            ("clip", {"low": 0.5, "high": 1.0}),
        )
    },
    **{kind: network(conv("a", "x"), op(kind, "a", "x")) for kind in ("subtract", "maximum", "minimum", "divide")},
    "softmax between convolutions": network(conv("a", "x"), op("softmax", "a", axis=1), conv("b", "y")),
    "concatenation of odd channels": network(
        conv("a", "x", outputs=20), conv("b", "x", outputs=28), op("concat", "a", "b", axis=1), conv("z", "y")
    ),
    **{
        f"linear, {mode}": network(op("resize2d", **LINEAR, coordinates=mode))
        for mode in ("half_pixel", "align_corners", "asymmetric")
    },
    "a wide dilation": network(conv("a", "x", dilation=(9, 12), padding=(9, 12, 9, 12))),
    "gelu of rows": network(
        *(conv("a", "x"), op("reshape", "a", name="f", shape=(1, CHANNELS, HEIGHT * WIDTH))),
        *(op("transpose", "f", name="r", order=(0, 2, 1)), *GELU, scaled("multiply", "m", "g")),
        *(op("transpose", "g", name="t", order=(0, 2, 1)),),
        *(op("reshape", "t", name="u", shape=(1, CHANNELS, HEIGHT, WIDTH)), conv("y", "u")),
    ),
    "products behind enlargements": network(
        *(conv("a", "x", outputs=64, stride=2), conv("b", "x", outputs=80, stride=3)),
        *(op("resize2d", "a", name="c", **BACK), op("resize2d", "b", name="d", **BACK)),
        *(op("concat", "c", "x", "d", axis=1), pointwise("z", "y", 64 + CHANNELS + 80, 32), op("relu", "z", name="o")),
    ),
    "weights of several levels": network(
        *(conv("a", "x"), conv("c", "a", stride=2), replace(conv("a", "x")[0], name="b", inputs=("c",))),
    ),
    "few channels": network(op("max_pool", kernel=2, stride=2, padding=0, name="p"), op("tanh", "p"), channels=5),
}
