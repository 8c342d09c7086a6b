"""Networks in JAX, compiled by XLA, for tools that compare with it: channels last, needs no TVM."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from socsched.graph.network import Network

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def jax_forward(network: Network, weights: Mapping[str, Any], jax: Any, dtype: Any) -> Any:
    """Return a jitted function image (NHWC) -> outputs that runs a network in JAX."""
    lax, numpy = jax.lax, jax.numpy
    deconvolutions = {layer.weights["weight"] for layer in network.layers if layer.op == "conv2d_transpose"}

    def placed(name: str, array: Any) -> Any:
        if array.ndim == 4 and name in deconvolutions:  # [in, out, h, w], with its taps in the other order in JAX
            array = array[:, :, ::-1, ::-1].transpose(2, 3, 0, 1)
        elif array.ndim == 4:  # [out, in, h, w]
            array = array.transpose(2, 3, 1, 0)
        return numpy.asarray(array, dtype)

    params = {name: placed(name, array) for name, array in weights.items()}

    def forward(params: Mapping[str, Any], image: Any) -> tuple[Any, ...]:
        values = {next(iter(network.inputs)): image}
        for layer in network.layers:
            x = [values[name] for name in layer.inputs]
            a, w = layer.attrs, {role: params[name] for role, name in layer.weights.items()}
            if layer.op == "conv2d":
                stride, pad = a.get("stride", 1), a.get("padding", 0)
                sides = ((pad, pad), (pad, pad))
                y = lax.conv_general_dilated(x[0], w["weight"], (stride, stride), sides, dimension_numbers=_LAYOUT)
                y += w["bias"]
            elif layer.op == "conv2d_transpose":
                stride = a["stride"]
                y = lax.conv_transpose(x[0], w["weight"], (stride, stride), "VALID", dimension_numbers=_LAYOUT)
                y += w["bias"]
            elif layer.op == "relu":
                y = numpy.maximum(x[0], 0)
            elif layer.op == "add":
                y = x[0] + x[1]
            elif layer.op == "concat":
                y = numpy.concatenate(x, 3)
            elif layer.op == "max_pool":
                edge, step, side = ((1, n, n, 1) for n in (a["kernel"], a["stride"], a["padding"]))
                around = tuple((n if 0 < axis < 3 else 0,) * 2 for axis, n in enumerate(side))
                y = lax.reduce_window(x[0], numpy.array(-numpy.inf, dtype), lax.max, edge, step, around)
            elif layer.op == "global_avg_pool":
                y = x[0].mean((1, 2), keepdims=True)
            elif layer.op == "reshape":
                y = x[0].reshape(a["shape"])
            else:
                y = x[0] @ w["weight"].T + w["bias"]
            values[layer.name] = y
        return tuple(values[name] for name in network.outputs)

    jitted = jax.jit(forward)
    return lambda image: jitted(params, image)


def xla_milliseconds(network: Network, weights: Mapping[str, Any], image: Any, repeats: int = 40) -> tuple[float, Any]:
    """Return the median time of a call among twenty queued in a row, and the outputs in fp32; image [1, h, w, c]."""
    import jax

    forward = jax_forward(network, weights, jax, jax.numpy.float16)
    given = jax.numpy.asarray(image, jax.numpy.float16)
    for _ in range(5):
        outputs = jax.block_until_ready(forward(given))
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(20):
            last = forward(given)
        jax.block_until_ready(last)
        found.append((time.perf_counter() - start) / 20 * 1e3)
    return statistics.median(found), [jax.numpy.asarray(o, jax.numpy.float32) for o in outputs]
