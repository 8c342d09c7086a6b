"""Content of a hand-over, independent of the toolchain's own formats."""

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
    """A stage (or part of one) accepted by an engine's rules.

    `inputs` and `outputs` are the border tensors by name, in the engine's dtype and layout; `scales` holds one per
    tensor in INT8 and is empty otherwise; `promoted` lists precisions other than `precision` in which some operators
    run.
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
        """Return the toolchain version for which the engine's rules hold."""
        return self.engine.operators.version
