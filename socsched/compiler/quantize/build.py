"""Stages in int8 as artefacts: choice of scales, integer network, kernels for the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.compiler.passes.link import write_library
from socsched.compiler.quantize.fixed_point import Array
from socsched.compiler.quantize.scales import FILE, Scales, write_scales
from socsched.compiler.target import TargetSpec
from socsched.compiler.targets.llvm.int8_dot import dot_for, int8_options
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

if TYPE_CHECKING:
    from socsched.compiler.passes.fusion import Graph

FLOAT_KINDS = ("pillar_features", "scatter")
"""Operators whose stages stay fp32 in an int8 plan: eight bits cannot resolve centimetres in metre coordinates."""
DEFAULT = "seeded normal inputs"

Built = tuple[tuple[TensorType, ...], tuple[TensorType, ...], tuple[str, ...], tuple[str, ...]]


def key_part(precision: str, scales: Scales | None, spec: TargetSpec) -> tuple[object, ...]:
    """Return the int8 part of an artefact's key: the scales, and the instructions used beyond the target's level."""
    if precision != "int8":
        return ()
    return (scales.digest if scales else DEFAULT, int8_options(spec))


def stays_float(graph: Graph) -> bool:
    """Return whether a stage is computed in fp32 although int8 was asked for."""
    return all(group.kind in FLOAT_KINDS for group in graph.groups)


def build_int8(
    folder: Path, network: Network, weights: Mapping[str, Array], spec: TargetSpec, scales: Scales | None
) -> Built:
    """Write the int8 code of `network` and its scales into `folder`; return (inputs, outputs, files, notes).

    Tensors at the stage's border are fp32.  Without scales the network is calibrated on seeded normal inputs, which do
    not represent real ones, and a note says so.  Raises CompileError for operators without int8 form.
    """
    from socsched.compiler.environment import relax, tvm
    from socsched.compiler.passes.fusion import read
    from socsched.compiler.passes.relax_import import import_network
    from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
    from socsched.compiler.quantize.network import quantised, require, unruled
    from socsched.compiler.targets.llvm.int8_lower import lower_int8
    from socsched.compiler.targets.llvm.lower import lower

    graph = read(import_network(network), network)
    vector, dot = dot_for(spec)
    if stays_float(graph):
        lowered = lower(graph, weights, vector)
        executable = relax.build(lowered.module, target=tvm.target.Target(dict(spec.tvm)))
        files, notes = write_library(executable, folder, spec)
        return lowered.inputs, lowered.outputs, files, (*notes, "int8: computed in fp32, as 8 bits hold no coordinates")
    if scales is None:
        require(graph)  # fail before any work
        scales = calibrate(network, weights, seeded_samples(network))
        scales = replace(scales, source=f"{DEFAULT}: no calibration data were given")
    integers = quantised(graph, weights, scales)
    lowered = lower_int8(integers, weights, vector, dot)
    executable = relax.build(lowered.module, target=tvm.target.Target(int8_options(spec)))
    files, notes = write_library(executable, folder, spec)
    write_scales(folder / FILE, scales)
    notes += (f"int8: {dot.name} products, border tensors fp32, activations by {scales.source}",)
    exact = sorted({unruled(graph, step.group) for step in integers.steps if step.exact})
    notes += tuple(f"int8: computed in fp32: {reason}" for reason in exact)
    return lowered.inputs, lowered.outputs, (*files, FILE), notes
