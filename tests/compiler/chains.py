"""Compiled stages one after the other, as an executor runs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]


def chain(artifacts: list[Any], given: Mapping[str, Array]) -> dict[str, Array]:
    """Run artefacts one after the other as an executor does, converting between their border layouts."""
    values = {name: (array, None) for name, array in given.items()}
    for artifact in artifacts:
        arrays = []
        for name, tensor in zip(artifact.input_names, artifact.inputs, strict=True):
            array, lies = values[name]
            plain = TensorType(tensor.shape, "fp32", "NCHW")
            arrays.append(convert(array, lies or plain, tensor))
        results = load(artifact)(*arrays)
        values |= {n: (r, t) for n, r, t in zip(artifact.output_names, results, artifact.outputs, strict=True)}
    plain_types = {n: TensorType(t.shape, "fp32", "NCHW") for n, (_, t) in values.items() if t}
    return {n: convert(array, t, plain_types[n]) for n, (array, t) in values.items() if t}
