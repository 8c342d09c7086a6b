"""Layers of an ONNX export of PointPillars in the order they run: weight, bias (batch norm folded), and kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.errors import MachineError, extra
from socsched.models.onnx_file import OnnxFile
from socsched.models.pointpillars.batch_norm import fold

Entry = tuple[npt.NDArray[Any], npt.NDArray[Any], str]


def layers_of(path: str) -> list[Entry]:
    """Return (weight, bias, kind) of every layer with weights; kinds are pfn, conv and deconv.

    A product with a matrix of 9 or 10 rows, or a convolution of kernel 1 with that many inputs, belongs to the pillar
    feature net and is returned as [channels, features].
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MachineError(f"{path}: reading ONNX files needs the package onnx", extra("onnx")) from None
    file = OnnxFile(Path(path))
    graph = file.model.graph
    constants = {name: array.astype(np.float64) for name, array in file.constants.items()}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None and value.data_type in (1, 10, 11):
                constants[node.output[0]] = file.array(value).astype(np.float64)
        elif node.op_type == "Transpose" and node.input[0] in constants and constants[node.input[0]].ndim == 2:
            constants[node.output[0]] = constants[node.input[0]].T
    return _walk(graph.node, constants)


def _walk(nodes: Any, constants: dict[str, npt.NDArray[Any]]) -> list[Entry]:
    found: list[Entry] = []
    made: dict[str, int] = {}
    for node in nodes:
        given = [constants[name] for name in node.input if name in constants]
        if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm") and given and given[0].ndim >= 2:
            weight, kind = given[0], "deconv" if node.op_type == "ConvTranspose" else "conv"
            if node.op_type in ("MatMul", "Gemm"):
                weight = weight if weight.shape[1] in (9, 10) else weight.T
            if weight.ndim <= 3 or (kind == "conv" and weight.shape[1] in (9, 10)):
                weight, kind = weight.reshape(len(weight), -1), "pfn"
            width = weight.shape[1] if kind == "deconv" else weight.shape[0]
            bias = given[1] if len(given) > 1 and given[1].shape == (width,) else np.zeros(width)
            made[node.output[0]] = len(found)
            found.append((weight, bias, kind))
        elif node.op_type == "BatchNormalization" and node.input[0] in made and len(given) == 4:
            number = made[node.output[0]] = made[node.input[0]]
            weight, bias, kind = found[number]
            gain, shift, mean, var = given
            epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            # `fold` adds the epsilon of these projects; the node's own may differ
            norm = (gain, shift, mean, var + epsilon - 1e-3)
            found[number] = (*fold(weight, bias, norm, transposed=kind == "deconv"), kind)
        elif node.op_type in ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Add") and node.input:
            source = next((name for name in node.input if name in made), None)
            if source is None:
                continue
            made[node.output[0]] = made[source]
            weight, bias, kind = found[made[source]]
            if node.op_type == "Add" and given and given[0].size == len(bias):
                found[made[source]] = (weight, bias + given[0].reshape(-1), kind)
    return found
