# mypy: ignore-errors
# ruff: noqa: B007
# (The bodies are TVMScript: parsed by TVM, not run by Python.)
"""Recurrent layers (ONNX's GRU and LSTM): the products of all inputs as a dense layer, then one kernel for all steps.

The kernel calls the device function in recurrent.cuh, which `attention.completed` adds to the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from socsched.compiler.environment import T
from socsched.compiler.targets.cuda.tiles import EDGE, LANES
from socsched.graph.counting import Steps, roles, steps_of, unread
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]


def spelt_out(graph: Graph) -> Graph:
    """Return `graph` with the recurrent layers that have a kernel as a dense layer and what follows its steps."""
    values, groups = dict(graph.values), []
    for group in graph.groups:
        size = steps_of(graph, group)
        if size is None:
            groups.append(group)
        elif not unread(graph, group):
            groups += _layers(graph, group, size, values)
    return replace(graph, groups=tuple(groups), values=values)


def _layers(graph: Graph, group: Group, size: Steps, values: dict[str, TensorType]) -> list[Group]:
    """Return a recurrent operator's result as groups."""
    result, (steps, batch, width) = group.options["result"], graph.values[group.inputs[0]].shape
    rows, weights = size.gates * size.hidden, roles(group)
    products, states = f"{group.name}.products.{result}", f"{group.name}.states.{result}"
    values[products] = TensorType((steps, batch, rows), "fp32", "")
    values[states] = TensorType((steps, 1, batch, size.hidden), "fp32", "")
    dense = Group(
        *(products, "dense", group.inputs, products, {"weight": weights.pop("weight")}),
        {"in_channels": width, "out_channels": rows},
    )
    whole = group.output if result == 0 else states
    own = Group(group.name, "recurrent", (products,), whole, weights, {}, {"size": size})
    if result == 0:
        return [dense, own]
    cut, last = f"{states}.last", 0 if size.reversed else steps - 1
    values[cut] = TensorType((1, 1, batch, size.hidden), "fp32", "")
    where = {"axes": (0,), "begin": (last,), "end": (last + 1,), "step": (1,)}
    shape = {"shape": graph.values[group.output].shape}
    return [
        *(dense, own, Group(cut, "slice", (states,), cut, options=where)),
        Group(group.output, "reshape", (cut,), group.output, options=shape),
    ]


def constants(group: Group, weights: Mapping[str, Any], size: Steps) -> tuple[Array, Array, Array]:
    """Return the weights in fragments, the biases [4, hidden], and the first states and cells [2, batch, hidden]."""
    hidden, gates = size.hidden, size.gates
    matrix = np.asarray(weights[group.weights["recurrent"]], np.float32)
    parts = matrix.reshape(gates, hidden // EDGE, 2, 8, hidden // EDGE, 2, 4, 2)
    # gate, warp, tile, unit; step of 16 inputs, its half, pair, element
    packed = parts.transpose(1, 0, 2, 4, 3, 6, 5, 7).astype(np.float16).reshape(-1)
    bias = np.zeros((4, hidden), np.float32)
    if "shift" in group.weights:
        given, own = np.asarray(weights[group.weights["shift"]], np.float32).reshape(2, gates, hidden)
        bias[:gates] = given
        bias[: gates - (gates == 3)] += own[: gates - (gates == 3)]
        if gates == 3:
            bias[3] = own[2]
    first = np.zeros((2, size.batch, hidden), np.float32)
    for index, role in enumerate(("state", "cell")):
        if role in group.weights:
            first[index] = np.asarray(weights[group.weights[role]], np.float32).reshape(size.batch, hidden)
    return np.ascontiguousarray(packed), bias, first


def recurrent_kernel(size: Steps) -> Any:
    """Return recurrent(P, R, B, F, Y), bound to threads."""
    steps, batch, hidden, gates = size.steps, size.batch, size.hidden, size.gates
    blocks, warps = -(-batch // EDGE), hidden // EDGE
    name = f"socsched_recurrent<{hidden}, {gates}, {str(size.kept).lower()}>"
    p, r, y = steps * batch * gates * hidden, gates * hidden * hidden, steps * batch * hidden
    backwards = int(size.reversed)

    @T.prim_func(s_tir=True, private=True)
    def recurrent(
        P: T.Buffer((p,), "float16"),
        R: T.Buffer((r,), "float16"),
        B: T.Buffer((4, hidden), "float32"),
        F: T.Buffer((2, batch, hidden), "float32"),
        Y: T.Buffer((y,), "float16"),
    ):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for x in T.thread_binding(blocks, "blockIdx.x"):
            for w in T.thread_binding(warps, "threadIdx.y"):
                for t in T.thread_binding(LANES, "threadIdx.x"):
                    with T.sblock("recurrent"):
                        T.reads(P[0:p], R[0:r], B[0:4, 0:hidden], F[0:2, 0:batch, 0:hidden])
                        T.writes(Y[0:y])
                        T.evaluate(
                            T.call_extern(
                                *("int32", name, P.data, R.data, B.data, F.data, Y.data, steps, batch, backwards)
                            )
                        )

    return recurrent


def loops(size: Steps) -> Any:
    """Return the same as plain loops, which a CPU runs."""
    steps, batch, hidden, gates = size.steps, size.batch, size.hidden, size.gates
    p, r, y, depth = steps * batch * gates * hidden, gates * hidden * hidden, steps * batch * hidden, hidden // EDGE
    backwards, is_gru = int(size.reversed), gates == 3

    def place(gate, u, k):
        tile = ((u // 16 * gates + gate) * 2 + u % 16 // 8) * depth + k // 16
        return (tile * 32 + u % 8 * 4 + k % 8 // 2) * 4 + k % 16 // 8 * 2 + k % 2

    def gate_of(value):
        return T.float32(1) / (T.float32(1) + T.exp(-value))

    def after_gru(a, b, B, u, before):
        update, reset = gate_of(a[0] + b[0] + B[0, u]), gate_of(a[1] + b[1] + B[1, u])
        candidate = T.tanh(a[2] + B[2, u] + reset * (b[2] + B[3, u]))
        return candidate + update * (before - candidate)

    def inner(a, b, B, u, cell):
        i, f = gate_of(a[0] + b[0] + B[0, u]), gate_of(a[2] + b[2] + B[2, u])
        return f * cell + i * T.tanh(a[3] + b[3] + B[3, u])

    def outer(a, b, B, u, cell):
        return gate_of(a[1] + b[1] + B[1, u]) * T.tanh(cell)

    @T.prim_func(s_tir=True, private=True)
    def recurrent(
        P: T.Buffer((p,), "float16"),
        R: T.Buffer((r,), "float16"),
        B: T.Buffer((4, hidden), "float32"),
        F: T.Buffer((2, batch, hidden), "float32"),
        Y: T.Buffer((y,), "float16"),
    ):
        T.func_attr({"tirx.noalias": True})
        S = T.sblock_alloc_buffer((2, batch, hidden), "float32")
        N = T.sblock_alloc_buffer((batch, hidden), "float32")
        A = T.sblock_alloc_buffer((gates,), "float32")
        G = T.sblock_alloc_buffer((gates,), "float32")
        with T.sblock("recurrent"):
            T.reads(P[0:p], R[0:r], B[0:4, 0:hidden], F[0:2, 0:batch, 0:hidden])
            T.writes(Y[0:y])
            for c, b, u in T.grid(2, batch, hidden):
                S[c, b, u] = F[c, b, u]
            for s in T.serial(steps):
                for b, u in T.grid(batch, hidden):
                    for g in T.serial(gates):
                        A[g] = T.Cast(
                            "float32",
                            P[
                                (T.if_then_else(backwards == 1, steps - 1 - s, s) * batch + b) * gates * hidden
                                + g * hidden
                                + u
                            ],
                        )
                        G[g] = T.float32(0)
                        for k in T.serial(hidden):
                            G[g] = G[g] + T.Cast("float32", T.Cast("float16", S[0, b, k])) * T.Cast(
                                "float32", R[place(g, u, k)]
                            )
                    if is_gru:
                        N[b, u] = after_gru(A, G, B, u, S[0, b, u])
                    else:
                        S[1, b, u] = inner(A, G, B, u, S[1, b, u])
                        N[b, u] = outer(A, G, B, u, S[1, b, u])
                for b, u in T.grid(batch, hidden):
                    S[0, b, u] = N[b, u]
                    Y[(T.if_then_else(backwards == 1, steps - 1 - s, s) * batch + b) * hidden + u] = T.Cast(
                        "float16", N[b, u]
                    )

    return recurrent
