# mypy: ignore-errors
"""Element-wise functions of half-precision values on GPUs, computed in fp32 and rounded once.

An activation is plain data as in `llvm.fuse`: () for none, ("relu",), ("clip", low, high), ("leaky_relu", alpha),
("sigmoid",), ("tanh",), ("silu",), ("hard_sigmoid", alpha, beta), ("hard_swish",), ("erf",),
("by_number", kind, number) or ("gelu", inner, add, outer) for x (erf(inner x) + add) outer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from socsched.compiler.environment import T, tirx
from socsched.compiler.targets.llvm.fuse import functions

Activation = tuple[Any, ...]


def function(activation: Activation) -> Callable[[Any], Any]:
    """Return an activation as a function of a float16 expression; KeyError for one not listed above."""
    if not activation:
        return lambda value: value
    name, *parameters = activation
    if name == "relu":  # without a detour: comparisons commute with rounding
        return lambda value: tirx.max(value, tirx.const(0, "float16"))
    return lambda value: T.Cast("float16", _FUNCTIONS[name](T.Cast("float32", value), *parameters))


def beyond_relu(activation: Activation) -> Activation:
    """Return an activation that `Convolution.relu` does not state."""
    return () if activation == ("relu",) else activation


def _by_number(x: Any, kind: str, number: float) -> Any:
    value = T.float32(number)
    if kind in ("maximum", "minimum"):
        return (T.max if kind == "maximum" else T.min)(x, value)
    return {"add": x + value, "subtract": x - value, "multiply": x * value, "divide": x / value}[kind]


_FUNCTIONS = {**functions(lambda x: T.exp(x), lambda x: T.tanh(x), lambda x: T.erf(x)), "by_number": _by_number}
