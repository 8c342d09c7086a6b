"""Networks in plain PyTorch, for tools that compare with it or measure with it: needs no TVM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.graph.network import Network
from socsched.models.pointpillars.network import backbone_network, head_network


def pointpillars() -> Network:
    """Return backbone, neck and heads on the 496 x 432 grid as one network."""
    body, head = backbone_network(), head_network()
    params = {**body.params, **head.params}
    return Network("pointpillars", body.inputs, (*body.layers, *head.layers), head.outputs, params)


def random_weights(network: Network, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return weights of variance 2 / fan-in, halved where an addition follows so that values keep their size."""
    generator = np.random.default_rng(seed)
    transposed = {layer.weights["weight"] for layer in network.layers if layer.op == "conv2d_transpose"}
    found = {}
    for name, shape in network.params.items():
        if len(shape) == 1:
            found[name] = generator.normal(0, 0.1, shape).astype(np.float32)
            continue
        fan_in = shape[0] if name in transposed else int(np.prod(shape[1:]))
        gain = 0.5 if name.endswith(".c.weight") else 2.0
        array = generator.normal(0, (gain / fan_in) ** 0.5, shape)
        found[name] = array.astype(np.float16).astype(np.float32)  # both sides start from the same values
    return found


def torch_forward(network: Network, weights: Mapping[str, Any], torch: Any, dtype: Any, fused: bool = False) -> Any:
    """Return a function inputs -> outputs that runs a network in PyTorch, channels last, ReLU in place.

    With `fused` convolutions with ReLU, with or without an addition, are cuDNN's fused ones.
    """
    place = {"device": "cuda", "dtype": dtype}
    params = {}
    for name, array in weights.items():
        tensor = torch.tensor(array, **place)
        params[name] = tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor
    rectified = {layer.inputs[0] for layer in network.layers if layer.op == "relu"}

    def forward(*inputs: Any) -> tuple[Any, ...]:
        values, functional = dict(zip(network.inputs, inputs, strict=True)), torch.nn.functional
        for layer in network.layers:
            x = [values[name] for name in layer.inputs]
            a, w = layer.attrs, {role: params[name] for role, name in layer.weights.items()}
            if layer.op == "conv2d" and fused and layer.name in rectified:
                s, p = a.get("stride", 1), a.get("padding", 0)
                y = torch.cudnn_convolution_relu(x[0], w["weight"], w["bias"], [s, s], [p, p], [1, 1], 1)
            elif layer.op == "conv2d":
                y = functional.conv2d(x[0], w["weight"], w["bias"], a.get("stride", 1), a.get("padding", 0))
            elif layer.op == "conv2d_transpose":
                y = functional.conv_transpose2d(x[0], w["weight"], w["bias"], a["stride"])
            elif layer.op == "scatter":
                canvas = torch.zeros((a["ny"] * a["nx"], x[0].shape[1]), **place)
                canvas.index_copy_(0, (x[1][:, 1] * a["nx"] + x[1][:, 0]).long(), x[0])
                y = canvas.view(1, a["ny"], a["nx"], -1).permute(0, 3, 1, 2)
            elif layer.op == "relu":
                y = x[0] if fused and _made(network, layer.inputs[0]) == "conv2d" else functional.relu_(x[0])
            elif layer.op == "add":
                y = x[0].add_(x[1])
            elif layer.op == "concat":
                y = torch.cat(x, a["axis"])
            elif layer.op == "max_pool":
                y = functional.max_pool2d(x[0], a["kernel"], a["stride"], a["padding"])
            elif layer.op == "global_avg_pool":
                y = x[0].mean((2, 3), keepdim=True)
            elif layer.op == "reshape":
                y = x[0].reshape(a["shape"])
            else:
                y = functional.linear(x[0], w["weight"], w["bias"])
            values[layer.name] = y
        return tuple(values[name] for name in network.outputs)

    return forward


def _made(network: Network, name: str) -> str:
    return next(layer.op for layer in network.layers if layer.name == name)
