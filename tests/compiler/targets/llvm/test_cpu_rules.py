"""Rules of the CPU lowering against TVM's general schedules of the same network, operator by operator."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from cpu_networks import CASES, execute, inputs_of, weights_of

from socsched.compiler.environment import relax, tvm
from socsched.compiler.loading.aligned import from_tvm
from socsched.compiler.passes.relax_form import bind_weights, import_network
from socsched.compiler.targets.llvm.fuse import fuse
from socsched.compiler.targets.llvm.lower import lower
from socsched.compiler.targets.llvm.vector import AVX2, AVX512, NEON
from socsched.graph.enlargements import before_resizing
from socsched.graph.expand import fuse_network

Array = np.ndarray[Any, Any]


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
def test_which_operators_need_general_schedules(name: str) -> None:
    """Only operators without a rule, and never the convolutions in the same network."""
    net = CASES[name]
    lowered = lower(fuse_network(net), weights_of(net), AVX512)
    assert lowered.general == GENERAL.get(name, ())


def test_fusion_leaves_what_is_read_elsewhere() -> None:
    kinds = {
        name: [g.kind for g in fuse(fuse_network(net), weights_of(net)).groups]
        for name, net in CASES.items()
        if name in ("silu", "a gate that is also read", "both sides of a sum", "depthwise and residual")
    }
    assert kinds["silu"] == ["conv2d"]
    assert kinds["a gate that is also read"] == ["conv2d", "sigmoid", "multiply", "add"]
    assert kinds["both sides of a sum"] == ["conv2d", "conv2d"], "the sum joins one of them"
    assert kinds["depthwise and residual"] == ["conv2d"]


def test_products_move_before_enlargements_and_activations_before_moves() -> None:
    fused = {name: lower_graph(CASES[name]) for name in ("gelu of rows", "products behind enlargements")}
    assert fused["gelu of rows"] == ["conv2d", "image_to_rows", "rows_to_image", "conv2d"]
    assert fused["products behind enlargements"] == [*3 * ["conv2d"], "resize2d", "conv2d", "resize2d", "conv2d"]


def lower_graph(net: Any) -> list[str]:
    graph, weights = before_resizing(fuse_network(net), weights_of(net))
    return [group.kind for group in fuse(graph, weights).groups]
