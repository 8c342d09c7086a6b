"""Int8 networks with weights and scales of their own, for tests of files with QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from int8_networks import conv, residual_block, scales_of, transposed, weights_of

from socsched.compiler.builder import shipped_scales
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.network import QuantisedGraph, quantise
from socsched.compiler.quantize.scales import Scales
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.models.onnx_import import load
from socsched.models.registry import get_model
from tests.models.onnx_files import resnet, trunk, yolo

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """A network with its weights, the scales of its values, and whether its outputs leave as fp32 sums."""

    network: Network
    weights: Arrays
    scales: Scales
    floats: bool = True

    def quantised(self) -> QuantisedGraph:
        """Return the network in integers."""
        return quantise(fuse_network(self.network), self.weights, self.scales, self.floats)


def _of_file(make: Callable[[Path], Path]) -> Callable[[Path], Source]:
    def source(folder: Path) -> Source:
        network, weights = load(make(folder / "float.onnx"))
        return Source(network, weights, calibrate(network, weights, seeded_samples(network)))

    return source


def _given(network: Network) -> Callable[[Path], Source]:
    scales = Scales(scales_of(fuse_network(network), {}))
    return lambda folder: Source(network, weights_of(network), scales, False)


def _trained(folder: Path) -> Source:
    """Return the backbone of PointPillars-S with its shipped weights and scales."""
    model = get_model("pointpillars-s.backbone", {})
    assert model.network is not None and model.trained is not None
    scales = shipped_scales(model)
    assert scales is not None
    return Source(model.network(), model.trained(), scales)


SOURCES = {
    "trunk": _of_file(trunk),
    "resnet": _of_file(resnet),
    "yolo": _of_file(yolo),
    "conv": _given(conv(16, 24, 20, 22, 3, 2, 1, True)),
    "transposed": _given(transposed(16, 8, 9, 7, (2, 2, 0))),
    "residual": _given(residual_block()),
    "pointpillars-s": _trained,
}
