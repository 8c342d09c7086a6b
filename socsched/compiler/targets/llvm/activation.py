# mypy: ignore-errors
"""Element-wise functions as TIR expressions that LLVM turns into vector code, and the epilogue of a kernel before its
stores.

An activation is plain data, so that equal kernels compare equal: () for none, ("relu",), ("clip", low, high),
("leaky_relu", alpha), ("sigmoid",), ("tanh",), ("silu",), ("hard_sigmoid", alpha, beta), ("hard_swish",), ("exp",) or
("sqrt",).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from socsched.compiler.environment import T, tirx

Activation = tuple[Any, ...]

_LOG2E, _LN2_HIGH, _LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def function(activation: Activation) -> Callable[[Any], Any]:
    """Return an activation as a function of a float32 expression; KeyError for one not listed above."""
    if not activation:
        return lambda value: value
    name, *parameters = activation
    return lambda value: _FUNCTIONS[name](value, *parameters)


def apply_activation(activation: Activation, dtype: str) -> Callable[[Any], Any]:
    """Return an activation as a function of a `dtype` expression, in half precision if the result is identical.

    Comparisons commute with rounding; everything else is computed in float32 and rounded once.
    """
    if dtype == "float32" or not activation:
        return function(activation)
    if activation[0] in ("relu", "clip"):
        low, high = (0.0, None) if activation[0] == "relu" else activation[1:]

        def bounded(x: Any) -> Any:
            x = T.max(x, tirx.const(low, dtype))
            return x if high is None else T.min(x, tirx.const(high, dtype))

        return bounded
    act = function(activation)
    return lambda x: act(x.astype("float32")).astype(dtype)


def is_known(activation: Activation) -> bool:
    """Return whether `function` has this activation."""
    return not activation or activation[0] in _FUNCTIONS


def keeps_zero(activation: Activation) -> bool:
    """Return whether zero maps to zero, so that borders and missing channels may pass through."""
    name = activation[0] if activation else ""
    within = name != "clip" or activation[1] <= 0 <= activation[2]
    return within and name not in ("sigmoid", "exp", "hard_sigmoid")


def finish(activation: Activation, residual: bool) -> Callable[..., Any]:
    """Return f(value, R, *indices): the value with the residual added if there is one, activated."""
    act = function(activation)
    if residual:
        return lambda value, buffer, *at: act(value + buffer[at].astype("float32"))
    return lambda value, buffer, *at: act(value)


def exponential(x: Any) -> Any:
    """Return e^x by Cephes' expf (range reduction and a polynomial of degree 5), 2 ulp, in vector instructions only.

    LLVM would instead call the C library once per lane.
    """
    bounded = T.max(T.min(x, T.float32(88.3762626647949)), T.float32(-87.3365478515625))
    whole = T.floor(bounded * T.float32(_LOG2E) + T.float32(0.5))
    rest = bounded - whole * T.float32(_LN2_HIGH) - whole * T.float32(_LN2_LOW)
    total = T.float32(_EXP[0])
    for factor in _EXP[1:]:
        total = total * rest + T.float32(factor)
    mantissa = total * rest * rest + rest + T.float32(1)
    return mantissa * T.reinterpret(T.shift_left(T.Cast("int32", whole) + 127, 23), dtype="float32")


def _sigmoid(x: Any) -> Any:
    return T.float32(1) / (T.float32(1) + exponential(T.float32(0) - x))


def _tanh(x: Any) -> Any:
    return T.float32(2) * _sigmoid(T.float32(2) * x) - T.float32(1)


def _clip(x: Any, low: float, high: float) -> Any:
    return T.min(T.max(x, T.float32(low)), T.float32(high))


def _hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
    return _clip(x * T.float32(alpha) + T.float32(beta), 0.0, 1.0)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda x: T.max(x, T.float32(0)),
    "clip": _clip,
    "leaky_relu": lambda x, alpha: T.max(x, T.float32(0)) + T.min(x, T.float32(0)) * T.float32(alpha),
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": lambda x: x * _sigmoid(x),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": lambda x: x * _hard_sigmoid(x, 1 / 6, 0.5),
    "exp": exponential,
    "sqrt": lambda x: T.sqrt(x),
}
