"""A network whose second convolution is eligible for Winograd's method."""

from __future__ import annotations

from typing import Any

from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType


def network(channels: int, outputs: int, height: int, width: int, **attrs: Any) -> Network:
    """A convolution after another, so that its input is blocked regardless of the channels of the image."""
    shape = TensorType((1, 3, height, width), "fp32", "NCHW")
    first = Layer("a", "conv2d", ("x",), {"weight": "a.w", "bias": "a.b"}, {"stride": 1, "padding": 1})
    second = Layer("c", "conv2d", ("a",), {"weight": "c.w", "bias": "c.b"}, {"stride": 1, "padding": 1, **attrs})
    kernel = 5 if attrs.get("padding") == 2 else 3
    params = {
        "a.w": (channels, 3, 3, 3),
        "a.b": (channels,),
        "c.w": (outputs, channels, kernel, kernel),
        "c.b": (outputs,),
    }
    return Network("net", {"x": shape}, (first, second, Layer("r", "relu", ("c",))), ("r",), params)
