"""Local functions and decided branches of ONNX files, written out where they are used.

Functions are expanded by onnx's own inliner, after their expansion is known to stay small: functions that call each
other grow exponentially with their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Key = tuple[str, str, str]


def expanded_nodes(model: Any, most: int) -> int:
    """Return the nodes of a model with its functions written out, `most` + 1 if there are more.

    Raises ValueError for functions that call themselves.
    """
    functions: dict[Key, Any] = {_key(item.domain, item.name, item): item for item in model.functions}
    counts: dict[Key, int] = {}
    active: list[Key] = []

    def count(nodes: Iterable[Any]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(count(graph.node) for graph in subgraphs(node))
            key = _key(node.domain, node.op_type, node)
            if key in functions:
                total += of(key)
            if total > most:
                return most + 1
        return total

    def of(key: Key) -> int:
        if key in active:
            raise ValueError(f"function {key[1]!r} calls itself")
        if key not in counts:
            active.append(key)
            counts[key] = count(functions[key].node)
            active.pop()
        return counts[key]

    return count(model.graph.node)


def inlined(model: Any) -> Any:
    """Return a model without local functions: each is written out in place of the nodes that call it."""
    from onnx import inliner

    return inliner.inline_local_functions(model) if model.functions else model


def subgraphs(node: Any) -> list[Any]:
    """Return the graphs that a node holds as attributes: the branches of an If, the body of a Loop."""
    found = [item.g for item in node.attribute if item.type == item.GRAPH]
    return found + [graph for item in node.attribute if item.type == item.GRAPHS for graph in item.graphs]


def branch(node: Any, taken: bool, prefix: str) -> tuple[list[Any], list[Any]]:
    """Return the nodes and initialisers of a branch of an If, with its results under the names of the If's outputs.

    Names that the branch defines get a prefix, since the other nodes of the file may use them too.
    """
    wanted = "then_branch" if taken else "else_branch"
    graph = next(item.g for item in node.attribute if item.name == wanted)
    own = [*(item.name for item in graph.initializer), *(name for one in graph.node for name in one.output if name)]
    names = {name: prefix + name for name in own}
    results = [item.name for item in graph.output]
    if len(results) != len(node.output):
        raise ValueError(f"a branch of {len(results)} results for {len(node.output)} outputs")
    nodes, tensors = [], []
    for tensor in graph.initializer:
        tensors.append(type(tensor).FromString(tensor.SerializeToString()))
        tensors[-1].name = names[tensor.name]
    for one in graph.node:
        nodes.append(type(one).FromString(one.SerializeToString()))
        _rename(nodes[-1], names)
        nodes[-1].name = f"{node.name or 'If'}/{one.name or one.op_type}"
    for result, output in zip(results, node.output, strict=True):
        if output:
            nodes.append(type(node)(op_type="Identity", input=[names.get(result, result)], output=[output]))
    return nodes, tensors


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Replace the names of values in a node and in the graphs that it holds, but for those defined in there."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for index, name in enumerate(node.output):
        node.output[index] = names.get(name, name)
    for graph in subgraphs(node):
        own = {item.name for item in (*graph.input, *graph.initializer)} | {n for one in graph.node for n in one.output}
        outside = {name: new for name, new in names.items() if name not in own}
        for one in graph.node:
            _rename(one, outside)
        for item in graph.output:
            item.name = outside.get(item.name, item.name)


def _key(domain: str, name: str, item: Any) -> Key:
    return ("" if domain == "ai.onnx" else domain, name, getattr(item, "overload", ""))
