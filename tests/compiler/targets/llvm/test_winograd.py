"""Winograd's convolution: the algebra in float64, the kernel against a direct convolution, and when it is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import references
from winograd_network import network

from socsched.compiler.environment import relax, tvm
from socsched.compiler.layouts import convert
from socsched.compiler.loading.aligned import from_tvm, to_tvm
from socsched.compiler.targets.llvm import winograd
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.processor import native_target
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON, SSE, Vector
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.weights import draw_weights

VECTORS = [AVX512, AVX2, NEON, SSE]


def lowered(net: Network, vector: Vector) -> Any:
    return lower(fuse_network(net), draw_weights(net, 3), vector)


def kernels(net: Network, vector: Vector) -> set[str]:
    return {variable.name_hint for variable in lowered(net, vector).module.get_global_vars()}


B4 = ("4 0 -5 0 1 0", "0 -4 -4 1 1 0", "0 4 -4 -1 1 0", "0 -2 -1 2 1 0", "0 2 -1 -2 1 0", "0 4 0 -5 0 1")
A4 = ("1 1 1 1 1 0", "0 1 -1 2 -2 0", "0 1 1 4 4 0", "0 1 -1 8 -8 1")
PUBLISHED = {2: (("1 0 -1 0", "0 1 1 0", "0 -1 1 0", "0 1 0 -1"), ("1 1 1 0", "0 1 -1 -1")), 4: (B4, A4)}


@pytest.mark.parametrize("m", PUBLISHED)
def test_the_algebra_in_double_precision(m: int) -> None:
    """A^T [(G g G^T) * (B^T d B)] A of one tile is its convolution; A and B as in Lavin & Gray, 2016."""
    generator = np.random.default_rng(0)
    patch, weight = generator.normal(size=(m + 2, m + 2)), generator.normal(size=(1, 1, 3, 3))
    b, a = (np.array([row.split() for row in rows], float) for rows in PUBLISHED[m])
    found = a @ (winograd.transform_weight(weight, m)[0, 0].astype(np.float64) * (b @ patch @ b.T)) @ a.T
    wanted = [[(patch[y : y + 3, x : x + 3] * weight[0, 0]).sum() for x in range(m)] for y in range(m)]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    for row in range(m + 2):  # what the kernels compute are these matrices
        column = generator.normal(size=m + 2)
        np.testing.assert_allclose(winograd._patch_row(m, row, column.__getitem__), b[row] @ column, atol=1e-12)
        if row < m:
            np.testing.assert_allclose(winograd._output_row(m, row, column.__getitem__), a[row] @ column, atol=1e-12)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
@pytest.mark.parametrize(
    ("channels", "outputs", "height", "width"),
    [(16, 16, 24, 24), (32, 48, 21, 26), (48, 24, 14, 14), (16, 16, 9, 64), (32, 16, 13, 11)],
)
@pytest.mark.sampled(10)
def test_kernel_equals_float64(vector: Vector, height: int, width: int, channels: int, outputs: int) -> None:
    net = network(channels, outputs, height, width)
    source = np.random.default_rng(height * width).normal(size=(1, 3, height, width)).astype(np.float32)
    form = lowered(net, vector)
    assert "conv2d_winograd" in {variable.name_hint for variable in form.module.get_global_vars()}
    target = tvm.target.Target(dict(native_target()))
    function = relax.VirtualMachine(relax.build(form.module, target=target), tvm.cpu())["main"]
    for scale in (1e6, 1.0):  # what the first run leaves in memory must not show in the second
        operand = convert(source * np.float32(scale), TensorType(source.shape, "fp32", "NCHW"), form.inputs[0])
        result = from_tvm(function(to_tvm(operand, form.inputs[0], "x"))[0])
    plain = convert(result, form.outputs[0], TensorType((1, outputs, height, width), "fp32", "NCHW"))
    (wanted,) = references.run(net, draw_weights(net, 3), {"x": source})
    assert np.abs(plain - wanted).max() <= 2e-5 * np.abs(wanted).max()


def test_it_is_taken_where_it_pays() -> None:
    assert "conv2d_winograd" in kernels(network(32, 32, 24, 24), AVX512)
    for attrs in ({"stride": 2}, {"padding": 2}):
        assert "conv2d_winograd" not in kernels(network(32, 32, 24, 24, **attrs), AVX512), attrs
    assert "conv2d_winograd" not in kernels(network(32, 32, 8, 8), AVX512), "too few tiles to share the weights"


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: v.name)
def test_groups_fit_registers_and_cover_all_tiles(vector: Vector) -> None:
    for count, blocks in ((32, 1), (49, 16), (224, 15), (837, 8), (3348, 4)):
        together, held, pair = winograd.group(count, blocks, vector)
        assert blocks % pair == 0 and (held + 1) * pair * vector.per_block < vector.registers
        assert together % held == 0 and held * vector.per_block < vector.registers
        assert -(-count // together) * together >= count
