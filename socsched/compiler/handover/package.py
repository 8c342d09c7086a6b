"""What a hand-over consists of, before a toolchain puts its own words around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.descriptor.platform import Engine
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

MODEL = "model.onnx"


@dataclass(frozen=True, slots=True)
class Package:
    """A (part of a) stage that an engine's rules have passed.

    `inputs` and `outputs` are the border tensors by name, in the engine's dtype and layout; `scales` one per tensor in
    INT8, empty otherwise; `promoted` the precisions some operators run in besides `precision`.
    """

    stage: str
    engine: Engine
    precision: str
    network: Network
    weights: Mapping[str, np.ndarray[Any, Any]]
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    scales: Mapping[str, float]
    promoted: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version of the toolchain the engine's rules hold for."""
        return self.engine.operators.version
