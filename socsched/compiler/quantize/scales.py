"""The scales of a network's values as data: produced by calibration, stored in artefacts, or written by users.

The file is JSON: `source` as text, for every value `step` (the value of one unit), `signed` and, if it is asymmetric,
`zero`, and optionally `means`: a channel's mean before and after rounding to eight bits.  Scales that a network's file
states have `weights`, the steps of weights, and `partial`: values without a scale stay fp32.  Values have the names of
the compiler's graph: a layer's name with dots as underscores; for fused layers, the last one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from socsched.bounded import read_bytes
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.store import digest, write_json
from socsched.descriptor.json_file import MAX_BYTES, JsonFile
from socsched.descriptor.limits import Byte, Line, Real, Rows, Step
from socsched.descriptor.pipeline import Stage
from socsched.graph.network import Network
from socsched.models.parts import part_of

_ANEW = "calibrate the network again"
FILE = "scales.json"
"""Name of the scales' file in an artefact's folder."""
UNCALIBRATED = "seeded normal inputs"
"""Source of scales for which no data were given."""


@dataclass(frozen=True, slots=True)
class Means:
    """Mean of each channel of a value over the calibration data: before and after rounding to eight bits."""

    real: tuple[float, ...]
    stored: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    step: Step
    signed: bool
    zero: Byte = 0


@dataclass(frozen=True, slots=True)
class _Means:
    real: Annotated[tuple[Real, ...], Rows]
    stored: Annotated[tuple[Real, ...], Rows]


@dataclass(frozen=True, slots=True)
class _File:
    source: Line
    values: Mapping[Line, _Value]
    means: Mapping[Line, _Means] = field(default_factory=dict)
    weights: Mapping[Line, Annotated[tuple[Step, ...], Rows]] = field(default_factory=dict)
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Scales:
    """The scale of every value of one network, and means where known; `source` describes their origin.

    `weights` gives the steps of weights by output channel where a file states them.  With `partial`, operators on
    values without a scale are computed in fp32, as a file with QuantizeLinear and DequantizeLinear means it.
    """

    values: Mapping[str, Scale]
    source: str = "given"
    means: Mapping[str, Means] = field(default_factory=dict)
    weights: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    partial: bool = False

    @property
    def digest(self) -> str:
        """Return the sha256 of the scales, independent of their source."""
        scales = sorted((name, s.step, s.signed, *([s.zero] if s.zero else [])) for name, s in self.values.items())
        means = sorted((name, means.real, means.stored) for name, means in self.means.items())
        return digest(scales, means, *([sorted(self.weights.items())] if self.partial else []))


def write_scales(path: Path, scales: Scales) -> None:
    """Write the scales of one network as JSON."""
    write_json(path, _document(scales))


def read_scales(path: Path) -> Scales:
    """Return the scales in a JSON file; InputError or DescriptorError if it is invalid or a step is not positive."""
    return _scales(_opened(path).load(_File))


def write_pipeline_scales(path: Path, scales: Mapping[str, Scales]) -> None:
    """Write the scales of a pipeline's stages, by stage name, as one JSON file."""
    write_json(path, {stage: _document(found) for stage, found in scales.items()})


def read_pipeline_scales(path: Path) -> dict[str, Scales]:
    """Return the scales of stages in a JSON file written by `write_pipeline_scales`, or {stage: {tensor: number}}.

    A number is the step of a tensor in -127..127.  Raises InputError or DescriptorError for anything else.
    """
    source = _opened(path)
    if not isinstance(source.data, dict) or not source.data:
        source.check([((), "not a file of scales: expected {stage: {tensor: step}}, or what calibration wrote")])
    if any(isinstance(found, dict) and "values" in found for found in source.data.values()):
        written: Mapping[str, _File] = source.load(Mapping[Line, _File])
        return {stage: _scales(found) for stage, found in written.items()}
    steps: Mapping[str, Mapping[str, float]] = source.load(Mapping[Line, Mapping[Line, Step]])
    return {s: Scales({key_of(name): Scale(step, True) for name, step in found.items()}) for s, found in steps.items()}


def _opened(path: Path) -> JsonFile:
    return JsonFile(read_bytes(path, "file of scales", _ANEW, MAX_BYTES), str(path), _ANEW)


def _scales(file: _File) -> Scales:
    values = {name: Scale(value.step, value.signed, value.zero) for name, value in file.values.items()}
    means = {name: Means(m.real, m.stored) for name, m in file.means.items()}
    return Scales(values, file.source, means, file.weights, file.partial)


def of_stage(scales: Mapping[str, Scales], stage: Stage) -> Scales | None:
    """Return the scales of a stage, None if absent; parts of a network have those of the whole stage."""
    part = part_of(stage.params)
    names = (stage.name, *([part.stage] if part else []))
    return next((scales[name] for name in names if name in scales), None)


def per_tensor(network: Network, scales: Scales) -> dict[str, float]:
    """Return the step of every input and layer in -127..127, as required by vendors' tools, by the layer's own name.

    An unsigned value's step grows with its range; a layer without a scale, because it is fused with the following one,
    has the latter's.
    """
    layers = per_layer(network, scales).items()
    return {name: scale.step * max(-scale.low - 1, scale.low + 255) / 127 for name, scale in layers}


def per_layer(network: Network, scales: Scales) -> dict[str, Scale]:
    """Return the scale of every input and layer by the layer's own name, fused layers as in `per_tensor`."""
    readers = {name: layer.name for layer in network.layers for name in layer.inputs}
    layers: dict[str, Scale] = {}
    for name in (*network.inputs, *(layer.name for layer in network.layers)):
        at = name
        while key_of(at) not in scales.values and at in readers:
            at = readers[at]
        scale = scales.values.get(key_of(at))
        if scale is not None:
            layers[name] = scale
    return layers


def key_of(name: str) -> str:
    """Return the name in `Scales.values` of a layer's or input's value."""
    return name.replace(".", "_")


def _document(scales: Scales) -> dict[str, Any]:
    values = {
        name: {"step": scale.step, "signed": scale.signed, **({"zero": scale.zero} if scale.zero else {})}
        for name, scale in scales.values.items()
    }
    means = {name: {"real": list(m.real), "stored": list(m.stored)} for name, m in scales.means.items()}
    stated = {"weights": {name: list(steps) for name, steps in scales.weights.items()}, "partial": True}
    return {"source": scales.source, "values": values, "means": means} | (stated if scales.partial else {})
