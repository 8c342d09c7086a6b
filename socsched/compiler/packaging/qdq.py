"""An int8 stage of a bundle as an ONNX file with Q/DQ: the integers of the compiled code, for other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.builder import network_of, weights_for
from socsched.compiler.quantize.network import quantise
from socsched.compiler.quantize.qdq_export import to_qdq
from socsched.compiler.quantize.scales import FILE, read_scales
from socsched.compiler.toolchains.package import QUANTISED
from socsched.descriptor.pipeline import Stage
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.partition import Part, take


def write_qdq(
    folder: Path,
    stage: Stage,
    artifact: Artifact,
    weights: Mapping[str, np.ndarray[Any, Any]] | None,
    part: Part | None,
) -> str:
    """Write an int8 artefact's network as quantised.onnx into `folder` and return the file's name.

    Weights, biases and scales are those of the code; inputs and outputs are fp32 and have the network's names.  Bytes
    are int8: with uint8, ONNX Runtime adds pairs of products in 16 bits on x86 processors without VNNI, which saturate.
    CompileError for a layer without ONNX operator, MachineError when the package onnx is missing.
    """
    model, network = network_of(stage)
    if part:
        network = take(network, part, layer_types(network))
    chosen, _ = weights_for(model, network, weights)
    integers = quantise(fuse_network(network), chosen, read_scales(artifact.folder / FILE))
    found: bytes = to_qdq(integers, chosen, signed=True).SerializeToString()
    (folder / QUANTISED).write_bytes(found)
    return QUANTISED
