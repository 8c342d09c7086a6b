"""Fusion beyond bias and ReLU for GPUs: gates and activations merged into the operator that feeds only them.

The activation is kept in `Group.options["activation"]` (`cuda.activation`).
"""

from __future__ import annotations

from dataclasses import replace

from socsched.compiler.targets.cuda.recurrent import spelt_out
from socsched.compiler.targets.llvm.fuse import fuse_activations, gelus, hard_gates
from socsched.graph.batches import one_by_one
from socsched.graph.fusion import Graph


def fuse(graph: Graph) -> Graph:
    """Return `graph` with activations inside the operators that feed only them, recurrent layers spelt out, batches of
    images one by one.
    """
    return _gelus(gelus(fuse_activations(hard_gates(spelt_out(one_by_one(graph, stacks=True))))))


def _gelus(graph: Graph) -> Graph:
    """Merge a GELU into the dense layer that it follows."""
    for gelu in graph.groups:
        dense = graph.maker(gelu.inputs[0]) if gelu.kind == "gelu" else None
        if dense is None or dense.kind != "dense" or dense.relu or "activation" in dense.options:
            continue
        if graph.used_once(dense.output):
            fused = replace(dense, output=gelu.output, options={**dense.options, **gelu.options})
            kept = (fused if group is gelu else group for group in graph.groups if group is not dense)
            graph = replace(graph, groups=tuple(kept))
    return graph
