"""Rules of the CPU lowering against TVM's general schedules of the same network, operator by operator."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from test_lowering import execute, image, inputs_of, weights_of

from socsched.compiler.environment import relax, tvm
from socsched.compiler.loading.aligned import from_tvm
from socsched.compiler.passes.fusion import read
from socsched.compiler.passes.relax_import import bind_weights, import_network
from socsched.compiler.targets.llvm.fuse import fused
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON
from socsched.graph.network import Layer, Network

Array = np.ndarray[Any, Any]
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
    "few channels": network(op("max_pool", kernel=2, stride=2, padding=0, name="p"), op("tanh", "p"), channels=5),
}


@lru_cache
def by_general_schedules(name: str) -> Any:
    net = CASES[name]
    module = bind_weights(import_network(net), net, weights_of(net))
    machine = relax.VirtualMachine(relax.build(module, tvm.target.Target("llvm")), tvm.cpu())
    return from_tvm(machine["main"](tvm.runtime.tensor(inputs_of(net)["x"]))[0])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vector", [AVX512, AVX2, NEON], ids=lambda v: v.name)
@pytest.mark.sampled(18)
def test_equals_general_schedules(name: str, vector: Any) -> None:
    net = CASES[name]
    expected = by_general_schedules(name)
    (found,) = execute(net, inputs_of(net), vector)
    scale = np.abs(expected).max()
    assert np.abs(found.reshape(expected.shape) - expected).max() <= 2e-5 * scale


GENERAL = {"softmax between convolutions": ("softmax",), "divide": ("divide",)}


@pytest.mark.parametrize(
    "name", [n for n in CASES if n not in ("hard_swish", "hard_sigmoid", "concatenation of odd channels")]
)
@pytest.mark.slow
def test_who_needs_general_schedules(name: str) -> None:
    """Only what has no rule, and never the convolutions beside it."""
    net = CASES[name]
    lowered = lower(read(import_network(net), net), weights_of(net), AVX512)
    assert lowered.general == GENERAL.get(name, ())


def test_fusion_leaves_what_is_read_elsewhere() -> None:
    kinds = {
        name: [g.kind for g in fused(read(import_network(net), net)).groups]
        for name, net in CASES.items()
        if name in ("silu", "a gate that is also read", "both sides of a sum", "depthwise and residual")
    }
    assert kinds["silu"] == ["conv2d"]
    assert kinds["a gate that is also read"] == ["conv2d", "sigmoid", "multiply", "add"]
    assert kinds["both sides of a sum"] == ["conv2d", "conv2d"], "the sum joins one of them"
    assert kinds["depthwise and residual"] == ["conv2d"]
