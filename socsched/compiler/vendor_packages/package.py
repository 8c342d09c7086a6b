"""Content of a hand-over, independent of the toolchain's own formats, and the vendors' toolchains.

A toolchain is registered under the entry-point group ``socsched.toolchains`` by the runtime that an engine's operator
rules name; the built-in ones have a folder each in `compiler.targets`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.descriptor.platform import Engine
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

GROUP = "socsched.toolchains"
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


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A vendor's compiler: `scripts` returns the text of each file that it needs besides the model, by file name."""

    scripts: Callable[[Package], dict[str, str]]
