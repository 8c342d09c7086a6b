"""Operators without a rule: their Relax expressions on plain tensors, left to TVM's general schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from socsched.compiler.environment import relax
from socsched.errors import CompileError
from socsched.graph.fusion import Graph, Group


class Images(Protocol):
    """A lowering in progress that can return any value in plain fp32 form."""

    graph: Graph
    weights: Mapping[str, np.ndarray[Any, Any]]
    builder: Any
    dtype: str

    def plain_of(self, name: str) -> Any: ...


def emit(images: Images, group: Group) -> Any:
    """Return the plain result of `group`, from the plain values of its inputs; computed in fp32."""
    known = {name: images.plain_of(name) for name in group.inputs}
    if images.dtype == "float32" or group.kind in ("reshape", "transpose"):
        return _value(images, group.output, known)
    for name in group.inputs:
        if images.graph.values[name].dtype == "fp32":
            known[name] = images.builder.emit(relax.op.astype(known[name], "float32"))
    value = _value(images, group.output, known)
    exact = images.graph.values[group.output].dtype != "fp32"
    return value if exact else images.builder.emit(relax.op.astype(value, images.dtype))


def _value(images: Images, name: str, known: dict[str, Any]) -> Any:
    """Emit the expressions between `name` and the known values, with weights as constants."""
    if name in known:
        return known[name]
    graph = images.graph
    if name not in graph.calls:
        known[name] = relax.const(np.ascontiguousarray(images.weights[graph.params[name]], np.float32), "float32")
        return known[name]
    call = graph.calls[name]
    if str(call.op.name) == "relax.call_tir":
        raise CompileError(f"{graph.network.name}: {name}: this kernel has a CPU form only where a dense layer follows")
    args = [_argument(images, argument, known) for argument in call.args]
    known[name] = images.builder.emit(relax.Call(call.op, args, call.attrs, call.ty_args))
    return known[name]


def _argument(images: Images, argument: Any, known: dict[str, Any]) -> Any:
    if isinstance(argument, relax.Var):
        return _value(images, str(argument.name), known)
    if isinstance(argument, relax.Tuple):
        return relax.Tuple([_argument(images, item, known) for item in argument.fields])
    return argument
