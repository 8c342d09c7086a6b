"""Content of a hand-over, independent of the toolchain's own formats, and the vendors' toolchains.

A toolchain is registered under the entry-point group ``socsched.toolchains`` by the runtime that an engine's operator
rules name; the built-in ones have a folder each in `compiler.targets`.

Quantisation scales for vendors' tools.

A scale is symmetric and per tensor: real value = scale x integer, integers in -127..127.  Names are those of layers and
network inputs, as in the exported ONNX file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import Scale
from socsched.descriptor.platform import Engine
from socsched.errors import InputError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

GROUP = "socsched.toolchains"
MODEL, QUANTISED = "model.onnx", "quantised.onnx"


@dataclass(frozen=True, slots=True)
class Package:
    """A stage (or part of one) accepted by an engine's rules.

    `inputs` and `outputs` are the border tensors by name, in the engine's dtype and layout; `scales` holds one per
    tensor in INT8 and is empty otherwise, `exact` the same scales with signed and unsigned values distinguished;
    `promoted` lists precisions other than `precision` in which some operators run.  `runtime`: the toolchain, where the
    engine also has code of its own (`Engine.runtimes`), else empty.
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
    exact: Mapping[str, Scale] = field(default_factory=dict)
    runtime: str = ""

    @property
    def version(self) -> str:
        """Return the toolchain version for which the engine's rules hold, or that its runtime states."""
        stated = (runtime.version for runtime in self.engine.runtimes if runtime.name == self.runtime)
        return next(stated, self.engine.operators.version)


@dataclass(frozen=True, slots=True)
class Compiler:
    """A vendor's compiler that runs on this machine, in the environment of that name (`environments`).

    `target` returns its settings for an engine, and raises UsageError for a chip that it does not compile for;
    `unsigned`: bytes of quantised models are uint8.  `simulates` is the file that its simulator loads, empty: the model
    that was compiled.  `cycles`: it states the cycles that it expects of each layer on the device.  `whole_gelu`: it
    takes a written-out GELU as one operator, quantised at its ends alone.
    """

    environment: str
    target: Callable[[Engine], Mapping[str, Any]]
    unsigned: bool
    simulates: str = ""
    cycles: bool = False
    whole_gelu: bool = False


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A vendor's toolchain: `scripts` returns the text of each file that it needs besides the model, by file name.

    `compiler` is the part of it that runs here, None if there is none.  `convert` makes the model that the toolchain
    reads from the one in fp32, where the two differ.  `layout` returns the layout of a border tensor on an engine whose
    rules state no formats, given its own.  `verbatim`: it reads a network's own ONNX file where there is one.  `needs`
    returns what a board must have to run the artefact.  `steps`: the scale of every tensor in int8, as it is told.
    """

    scripts: Callable[[Package], dict[str, str]]
    compiler: Compiler | None = None
    convert: Callable[[Package, Any], Any] | None = None
    layout: Callable[[TensorType, str, str], str] | None = None
    verbatim: bool = False
    needs: Callable[[Package], Mapping[str, Any]] | None = None
    steps: Callable[[Package], Mapping[str, float]] = lambda package: package.scales


LARGEST = 127


def check_scales(network: Network, scales: Mapping[str, float]) -> dict[str, float]:
    """Return the scale of every input and layer of `network`; InputError naming those missing or invalid."""
    names = [*network.inputs, *(layer.name for layer in network.layers)]
    missing = [name for name in names if name not in scales]
    if missing:
        listed = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{network.name}: no scale for {len(missing)} of {len(names)} tensors: {listed}",
            "`socsched calibrate PIPELINE --input FRAMES -o scales.json`, then --scales scales.json; or choose fp16",
        )
    bad = [name for name in names if not (np.isfinite(scales[name]) and scales[name] > 0)]
    if bad:
        raise InputError(f"{network.name}: scale of {bad[0]!r} is {scales[bad[0]]}", "scales are positive numbers")
    return {name: float(scales[name]) for name in names}
