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


def is_known(activation: Activation) -> bool:
    """Return whether `function` has this activation."""
    return not activation or activation[0] == "relu" or activation[0] in _FUNCTIONS


def _clip(x: Any, low: float, high: float) -> Any:
    return T.min(T.max(x, T.float32(low)), T.float32(high))


def _sigmoid(x: Any) -> Any:
    return T.float32(1) / (T.float32(1) + T.exp(T.float32(0) - x))


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return _clip(x * T.float32(alpha) + T.float32(beta), 0.0, 1.0)


def _by_number(x: Any, kind: str, number: float) -> Any:
    value = T.float32(number)
    if kind in ("maximum", "minimum"):
        return (T.max if kind == "maximum" else T.min)(x, value)
    return {"add": x + value, "subtract": x - value, "multiply": x * value, "divide": x / value}[kind]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "clip": _clip,
    "leaky_relu": lambda x, alpha: T.max(x, T.float32(0)) + T.min(x, T.float32(0)) * T.float32(alpha),
    "sigmoid": _sigmoid,
    "tanh": lambda x: T.tanh(x),
    "silu": lambda x: x * _sigmoid(x),
    "hard_sigmoid": _hard_sigmoid,
    "erf": lambda x: T.erf(x),
    "gelu": lambda x, inner, add, outer: x * (T.erf(x * T.float32(inner)) + T.float32(add)) * T.float32(outer),
    "by_number": _by_number,
    "hard_swish": lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
}
