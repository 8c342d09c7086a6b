"""Stages for engines whose code is built by a vendor's toolchain: all its inputs, in one folder.

model.onnx      the network with its weights, static shapes
build.sh        the toolchain's exact lines; for TensorRT build.py does the same through its Python interface
calibration.cache, encodings.json   quantisation scales, in INT8
handover.json   engine, versions, border tensors with dtype and layout, conditions that could not be checked
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.compiler.builder import network_of, port_names, weights_for
from socsched.compiler.layouts import parse_layout
from socsched.compiler.vendor_packages.check import require_all
from socsched.compiler.vendor_packages.onnx_model import to_onnx
from socsched.compiler.vendor_packages.package import GROUP, MODEL, Package, Toolchain
from socsched.compiler.vendor_packages.scales import check_scales
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import MachineError, UsageError
from socsched.graph.expand import layer_types
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part, take
from socsched.models.work import stage_work

Array = np.ndarray[Any, Any]
DESCRIPTION = "handover.json"
PRECISIONS = ("fp16", "int8")


def has_toolchain(engine: Engine) -> bool:
    """Return whether stages for `engine` are handed over to a vendor's toolchain."""
    return engine.operators.runtime in plugins.names(GROUP)


def hand_over(
    stage: Stage,
    engine: Engine,
    precision: str,
    folder: Path,
    weights: Mapping[str, Array] | None = None,
    part: Part | None = None,
    scales: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Write `stage` (or a part of it) for `engine`'s toolchain into `folder` and return the content of handover.json.

    `scales` are those of every network input and layer, needed in int8.  Nothing is written unless the engine accepts
    every operator: UsageError names each that would fall back, with reason and source.  Raises InputError for weights
    or scales that do not fit, CompileError for a layer without ONNX operator, and MachineError when the folder cannot
    be written.
    """
    if not has_toolchain(engine):
        raise UsageError(
            f"{engine.id}: no vendor toolchain is known for it", f"known: {', '.join(plugins.names(GROUP))}"
        )
    if precision not in PRECISIONS:
        raise UsageError(f"{engine.id} takes fp16 or int8, not {precision}")
    model, whole = network_of(stage)
    verdict = require_all(stage_work(stage, precision, part), engine)
    chosen, provenance = weights_for(model, whole, weights)
    types, names = layer_types(whole), port_names(model, whole)
    network = take(whole, part, types) if part else whole
    package = Package(
        stage.name,
        engine,
        precision,
        network,
        chosen,
        _border(network.inputs, engine, precision, "in"),
        _border({name: types[name] for name in network.outputs}, engine, precision, "out"),
        check_scales(network, scales or {}) if precision == "int8" else {},
        tuple(sorted({dtype for _, dtype in verdict.promoted})),
    )
    toolchain: Toolchain = plugins.load(GROUP, engine.operators.runtime, Toolchain)
    texts = toolchain.scripts(package)
    document = {
        "stage": stage.name,
        "model": model.name,
        "part": str(part) if part else "",
        "engine": engine.id,
        "engine_kind": engine.kind,
        "precision": precision,
        "toolchain": engine.operators.runtime,
        "version": engine.operators.version,
        "rules": engine.operators.name,
        "weights": provenance,
        "inputs": _tensors(package.inputs, names),
        "outputs": _tensors(package.outputs, names),
        "promoted": [list(entry) for entry in verdict.promoted],
        "conditions": [list(entry) for entry in verdict.conditions],
        "files": [MODEL, *sorted(texts)],
    }
    _write(folder, to_onnx(network, chosen, types).SerializeToString(), texts, document)
    return document


def _border(tensors: Mapping[str, TensorType], engine: Engine, precision: str, use: str) -> dict[str, TensorType]:
    """Return the border tensors in the engine's dtype and its first accepted layout known to socsched."""
    offered = [f.layout for f in engine.operators.formats.get(precision, ()) if f.use in (use, "both")]
    layout = next((name for name in offered if _known(name)), engine.precisions[precision].layout)
    return {
        name: TensorType(tensor.shape, precision, layout if len(tensor.shape) == 4 else "")
        if tensor.dtype == "fp32"
        else tensor
        for name, tensor in tensors.items()
    }


def _known(layout: str) -> bool:
    try:
        parse_layout(layout)
    except UsageError:
        return False
    return True


def _tensors(tensors: Mapping[str, TensorType], names: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "port": names.get(name, name), "shape": list(t.shape), "dtype": t.dtype, "layout": t.layout}
        for name, t in tensors.items()
    ]


def _write(folder: Path, model: bytes, texts: Mapping[str, str], document: Mapping[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL).write_bytes(model)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
            if name.startswith("build."):
                (folder / name).chmod(0o755)
        (folder / DESCRIPTION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise MachineError(
            f"{folder}: cannot write: {error.strerror or error}", "free space or name another folder"
        ) from error
