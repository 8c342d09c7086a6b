"""A neural network as a DAG of layers, independent of any compiler; `compile.relax_import` turns it into Relax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from socsched.graph.operators import TensorType


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: `op` with named `inputs` (earlier layers or network inputs), `weights` by role, and attributes.

    Ops and attributes: conv2d (stride, padding; weight OIHW, bias), conv2d_transpose (stride = kernel, padding 0;
    weight IOHW, bias), dense (weight [out, in], bias), relu, reduce_max (axis), concat (axis), max_pool (kernel,
    stride, padding), add, pillar_features, scatter (see models.pointpillars.network).
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    weights: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Network:
    """Layers in topological order; `params` gives every weight's shape, `outputs` names layers."""

    name: str
    inputs: Mapping[str, TensorType]
    layers: tuple[Layer, ...]
    outputs: tuple[str, ...]
    params: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
