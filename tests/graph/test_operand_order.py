"""The order in which an export writes the operands of a sum says nothing about its kernel."""

from __future__ import annotations

import pytest

from socsched.compiler.targets.llvm.fuse import fuse, fuse_activations
from socsched.graph.expand import fuse_network
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType


def _network(kind: str, shape: tuple[int, ...], swapped: bool) -> Network:
    order = {"swapped": True} if swapped else {}
    layers = (
        Layer("fc", "dense", ("x",), {"weight": "w"}),
        Layer("sum", kind, ("fc",), {"constant": "b"}, order),
        Layer("act", "relu", ("sum",)),
    )
    return Network("net", {"x": TensorType((*shape, 8), "fp32")}, layers, ("act",), {"w": (16, 8), "b": (16,)})


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 3, 5)])
@pytest.mark.parametrize("kind", ["add", "multiply", "maximum", "minimum", "subtract", "divide"])
def test_only_differences_and_quotients_have_a_first_operand(kind: str, shape: tuple[int, ...]) -> None:
    graphs = [fuse_network(_network(kind, shape, swapped)) for swapped in (False, True)]
    first = [graph.operations["sum"].weight_first for graph in graphs]
    assert first == ([False, True] if kind in ("subtract", "divide") else [False, False])
    for fused in (lambda graph: fuse(graph, {}), fuse_activations):
        kinds = [[group.kind for group in fused(graph).groups] for graph in graphs]
        assert kinds[0] == kinds[1]
        assert (kinds[0] == ["dense"]) == (kind == "add")
