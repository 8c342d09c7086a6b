"""The GPU rules' indices, run unbound on the CPU; test_gpu_code.py inspects the device code."""

from __future__ import annotations

from typing import Any

import gpu_networks
import numpy as np
import pytest
import references

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.targets.cuda.lower import lower
from socsched.compiler.targets.cuda.rules import unsupported_reason
from socsched.compiler.targets.llvm.processor import native_target
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.network import pillar_network, scatter_network
from socsched.models.weights import draw_weights

ROUNDING = 4e-3
"""Relative to the largest output: fp16 activations between some ten layers, each rounded to 2^-11."""


def weights_of(net: Network) -> dict[str, Any]:
    generator = np.random.default_rng(5)
    found = draw_weights(net, 5)
    return {n: generator.normal(size=a.shape).astype(np.float32) if a.ndim == 1 else a for n, a in found.items()}


def on_cpu(net: Network, weights: dict[str, Any], x: np.ndarray[Any, Any], arch: str = "sm_87") -> list[Any]:
    graph = fuse_network(net)
    assert not unsupported_reason(graph)
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


def pillars_on_cpu(net: Network, weights: dict[str, Any], *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    form = lower(fuse_network(net), weights, "sm_87", bound=False)
    executable = relax.build(form.module, target=tvm.target.Target(dict(native_target())))
    given = [to_tvm(a, TensorType(a.shape, t.dtype), "x") for a, t in zip(arrays, form.inputs, strict=True)]
    return from_tvm(relax.VirtualMachine(executable, tvm.cpu())["main"](*given)[0])


@pytest.mark.parametrize("pillars", [0, 1, 37])
def test_pillars_equal_float64(pillars: int) -> None:
    net, generator = pillar_network("net", 8, 24, KITTI), np.random.default_rng(pillars)
    counts = generator.integers(1, 9, pillars).astype(np.int32)
    voxels = generator.normal(size=(pillars, 8, 4)).astype(np.float16)
    voxels[np.arange(8)[None] >= counts[:, None]] = 0
    coords = generator.integers(0, 400, (pillars, 2)).astype(np.int32)
    weights = weights_of(net)
    found = pillars_on_cpu(net, weights, voxels, counts, coords)
    (wanted,) = references.run(net, weights, {"voxels": voxels.astype(np.float32), "counts": counts, "coords": coords})
    assert found.shape == wanted.shape == (pillars, 24)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("pillars", [0, 1, 50])
def test_scatter_leaves_out_what_is_outside(pillars: int) -> None:
    net, generator = scatter_network(9, 13, 16), np.random.default_rng(pillars)
    cells = generator.choice(9 * 13, pillars, replace=False)
    coords = np.stack([cells % 13, cells // 13], 1).astype(np.int32)
    coords[::5] = [[-1, 3]]
    coords[1::5] = [[4, 9]]
    features = generator.normal(size=(pillars, 16)).astype(np.float16)
    found = pillars_on_cpu(net, {}, features, coords)
    (wanted,) = references.run(net, {}, {"features": features.astype(np.float32), "coords": coords})
    assert np.array_equal(found.transpose(0, 3, 1, 2), wanted)


@pytest.mark.parametrize("arch", ["sm_87", "sm_90"])
@pytest.mark.parametrize("name", ["residual", "pyramid", "loose"])
@pytest.mark.slow
def test_network_equals_float64(name: str, arch: str) -> None:
    net = getattr(gpu_networks, name)()
    weights = weights_of(net)
    x = np.random.default_rng(1).normal(size=net.inputs["x"].shape).astype(np.float32)
    wanted = gpu_networks.run(net, weights, x)
    for found, expected in zip(on_cpu(net, weights, x, arch), wanted, strict=True):
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= ROUNDING * np.abs(expected).max()
