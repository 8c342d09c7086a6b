"""The GPU rules' indices, run unbound on the CPU; the device code is looked at in test_gpu_code.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import gpu_networks

from socsched.compile.aligned import from_tvm, to_tvm
from socsched.compile.environment import relax, tvm
from socsched.compile.fusion import read
from socsched.compile.gpu.lower import lower, unruled
from socsched.compile.layouts import convert
from socsched.compile.relax_import import import_network
from socsched.compile.targets import native_target
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.weights import seeded_weights

ROUNDING = 4e-3
"""Relative to the largest output: fp16 activations between some ten layers, each rounded to 2^-11."""


def weights_of(net: Network) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    found = seeded_weights(net, 5)
    return {n: generator.normal(size=a.shape).astype(np.float32) if a.ndim == 1 else a for n, a in found.items()}


def on_cpu(net: Network, weights: dict[str, Any], x: np.ndarray[Any, Any], arch: str = "sm_87") -> list[Any]:
    graph = read(import_network(net), net)
    assert not unruled(graph)
    form = lower(graph, weights, arch, bound=False)
    executable = relax.build(form.module, target=tvm.target.Target(dict(native_target())))
    kind = TensorType(x.shape, "fp32", "NCHW")
    results = relax.VirtualMachine(executable, tvm.cpu())["main"](
        to_tvm(convert(x, kind, form.inputs[0]), form.inputs[0], "x")
    )
    return [
        convert(from_tvm(found), t, TensorType(t.shape, "fp32", "NCHW" if len(t.shape) == 4 else ""))
        for found, t in zip(results, form.outputs, strict=True)
    ]


@pytest.mark.parametrize("arch", ["sm_87", "sm_90"])
@pytest.mark.parametrize("name", ["residual", "pyramid", "loose"])
def test_network_equals_float64(name: str, arch: str) -> None:
    net = getattr(gpu_networks, name)()
    weights = weights_of(net)
    x = np.random.default_rng(1).normal(size=net.inputs["x"].shape).astype(np.float32)
    wanted = gpu_networks.run(net, weights, x)
    for found, expected in zip(on_cpu(net, weights, x, arch), wanted, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= ROUNDING * np.abs(expected).max()
