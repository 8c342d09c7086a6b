"""Networks in int8 for CUDA targets: choice of scales, integer network, tensor-core kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from socsched.compiler.passes.fusion import read
from socsched.compiler.passes.relax_import import import_network
from socsched.compiler.quantize.build import DEFAULT
from socsched.compiler.quantize.calibrate import calibrate, seeded_samples
from socsched.compiler.quantize.fixed_point import Array
from socsched.compiler.quantize.network import quantised, require, unruled
from socsched.compiler.quantize.scales import Scales
from socsched.compiler.targets.cuda.codegen import build
from socsched.compiler.targets.cuda.int8_lower import lower_int8
from socsched.compiler.targets.cuda.tiles import OLDEST, capability
from socsched.errors import CompileError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType


@dataclass(frozen=True, slots=True)
class BuiltInt8:
    """A Relax executable, its tensor layouts (fp32, images NHWC), and the scales it was built with."""

    executable: Any
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    scales: Scales
    notes: tuple[str, ...]


def build_int8_executable(
    network: Network, weights: Mapping[str, Array], target: Mapping[str, Any], scales: Scales | None
) -> BuiltInt8:
    """Return the int8 executable of a network that profits from int8 (`quantize.build.stays_float` is false).

    Without scales it is calibrated on this machine on seeded normal inputs, and a note says so.  Raises CompileError
    for operators without int8 form and for GPUs before sm_80.
    """
    arch = str(target["arch"])
    if capability(arch) < OLDEST:
        raise CompileError(
            f"{network.name}: int8 on {arch}: the rules need asynchronous copies and 32-deep products, sm_{OLDEST} or "
            "later",
            "plan this stage in fp16",
        )
    graph = read(import_network(network), network)
    if scales is None:
        require(graph)  # fail before any work
        scales = calibrate(network, weights, seeded_samples(network))
        scales = replace(scales, source=f"{DEFAULT}: no calibration data were given")
    integers = quantised(graph, weights, scales)
    lowered = lower_int8(integers, weights, arch)
    exact = [step for step in integers.steps if step.exact]
    executable = build(lowered.module, target, general=bool(exact))
    notes = [f"int8: tensor cores, border tensors fp32, activations by {scales.source}"]
    reasons = sorted({unruled(graph, step.group) for step in exact})
    notes += [f"int8: computed in fp32 by general schedules, which are slow: {reason}" for reason in reasons]
    return BuiltInt8(executable, lowered.inputs, lowered.outputs, scales, tuple(notes))
