"""Models of stages: a network or a host function, with named ports."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from socsched.graph.network import Network
from socsched.graph.operators import Operator, TensorType


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output; the type has nominal sizes (such as the params' nominal pillar count).

    `least`: the sizes that a frame has at least, where these are bounds; it is filled up with 0.
    """

    name: str
    type: TensorType
    least: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantisation:
    """The int8 scales that a file states: of values by layer or input, (step, zero); of weights, steps by channel.

    `zero`: the byte of 0..255 that stands for zero, 128 for a symmetric value, 0 for one that is never negative.
    """

    values: Mapping[str, tuple[float, int]]
    weights: Mapping[str, tuple[float, ...]]

    @property
    def asymmetric(self) -> bool:
        """Return whether a value has another zero than 0 or 128."""
        return any(zero not in (0, 128) for _, zero in self.values.values())


@dataclass(frozen=True, slots=True)
class Model:
    """A built-in model for given params.

    Exactly one of `network` (a factory, so that listing models costs nothing) and `function` (numpy arrays in port
    order in, tuple of arrays out) is set.  `operators` estimates the work of a function; a network's is read from the
    compiler's IR. `classes` names the labels a detector's last stage gives.  `weights` returns the weights contained in
    the network's file, None for a network without; `trained` those socsched ships for a built-in network, used where
    the user names no weights file, and `scales` the file of int8 scales that belongs to them.  `compiled`: the function
    accepts compiled stages under that name (`models.host`).  `whole` is the network this one is a part of, if any:
    seeded weights are drawn for it, so that the parts compute the same as the whole.  `device` names the device
    implementation of a function (voxelise, anchor-decode, ...): engines other than CPUs take it if they declare it.
    `quantised` returns the scales stated in the network's own file, None for a network without.  `open_batch` names
    the inputs whose batch that file leaves open, which is taken to be 1.  `original` returns that file's ONNX model,
    its weights inside and the inputs' sizes fixed; inputs and outputs are in the order of the ports.  `rounds`: it
    rounds values to whole numbers at run time, so that fp32 alone computes it.
    """

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    network: Callable[[], Network] | None = None
    function: Callable[..., tuple[Any, ...]] | None = None
    operators: tuple[Operator, ...] = ()
    classes: tuple[str, ...] = ()
    weights: Callable[[], dict[str, Any]] | None = None
    compiled: bool = False
    whole: Callable[[], Network] | None = None
    trained: Callable[[], dict[str, Any]] | None = None
    scales: str = ""
    device: str = ""
    quantised: Callable[[], Quantisation] | None = None
    open_batch: tuple[str, ...] = ()
    original: Callable[[], Any] | None = None
    rounds: bool = False

    @property
    def ready(self) -> bool:
        """Return whether no training is needed: no network, or one that comes with weights."""
        given = self.network is None or self.weights is not None or self.trained is not None
        return given or not (self.network and self.network().params)


def host_function(
    model: Model, name: str, flops: int, read_bytes: int, attrs: Mapping[str, float], function: Callable[..., Any]
) -> Model:
    """Return a model with a function in fp32 that has a compiled form, and its work; all outputs are written."""
    inputs, outputs = (tuple(port.type for port in ports) for ports in (model.inputs, model.outputs))
    written = sum(4 * math.prod(kind.shape) for kind in outputs)
    work = Operator(name, "function", "fp32", inputs, outputs, flops, read_bytes, written, attrs=attrs)
    return replace(model, function=function, operators=(work,), compiled=True)


def detections(most: int, width: int, prefix: str = "") -> tuple[Port, Port, Port]:
    """Return the outputs of a detector: at most so many boxes of `width` numbers, their scores and labels."""
    kinds = {"boxes": TensorType((most, width), "fp32"), "scores": TensorType((most,), "fp32")}
    boxes, scores = (Port(prefix + name, kind) for name, kind in kinds.items())
    return boxes, scores, Port(f"{prefix}labels", TensorType((most,), "int32"))


def told(detect: Callable[..., Any], what: str, /, *given: Any, **options: Any) -> tuple[Any, ...]:
    """Return the fields of what `detect` finds but `dropped`; warn if a network's output was not finite everywhere."""
    result = detect(*given, **options)
    if result.dropped:
        warnings.warn(f"decode: {result.dropped} {what} with non-finite values dropped", RuntimeWarning, stacklevel=2)
    return tuple(getattr(result, one.name) for one in fields(result) if one.name != "dropped")
