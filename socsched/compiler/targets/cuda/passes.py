"""CUDA artefacts: fp16 and int8 by the rules of `compiler.gpu`, the rest by TVM's general schedules; needs no GPU.

Without a CUDA driver TVM embeds only CUDA source, so this module compiles it to a cubin with nvcc.  Under the general
schedules convolutions are slow (one kernel per fused operator, no tensor cores); in fp16 they compute everything in
fp16, accumulators included.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tvm
from socsched.compiler.passes.fusion import Graph, read
from socsched.compiler.passes.link import write_library
from socsched.compiler.passes.relax_import import bind_weights, import_network
from socsched.compiler.quantize.build import stays_float
from socsched.compiler.quantize.scales import FILE, Scales, write_scales
from socsched.compiler.target import TargetSpec, resolve
from socsched.compiler.targets.cuda.codegen import build
from socsched.compiler.targets.cuda.device_code import supplied
from socsched.compiler.targets.cuda.lower import lower
from socsched.compiler.targets.cuda.rules import unruled
from socsched.compiler.targets.cuda.tiles import OLDEST, capability
from socsched.errors import CompileError, MachineError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

SOURCE, BINARY = "stage.cu", "stage.cubin"

Tensors = tuple[TensorType, ...]


def build_cuda(
    folder: Path,
    network: Network,
    weights: Mapping[str, np.ndarray[Any, Any]],
    spec: TargetSpec,
    precision: str,
    scales: Scales | None = None,
    sms: int = 0,
) -> tuple[Tensors, Tensors, tuple[str, ...], tuple[str, ...]]:
    """Write stage.cubin, stage.cu and the host half into `folder`; return (inputs, outputs, files, notes).

    Images are NHWC under the rules, plain NCHW under the general schedules.  In int8 `scales` are the scales of the
    network's values and are written next to the code; `sms` as for `build_executable`.  Raises MachineError when nvcc
    is missing and CompileError when it rejects the source.
    """
    compiler, arch = find_nvcc(), str(spec.tvm["arch"])

    def cubin(source: str) -> bytes:
        (folder / SOURCE).write_text(source)
        write_cubin(compiler, folder / SOURCE, folder / BINARY, arch)
        return (folder / BINARY).read_bytes()

    with supplied(cubin):
        built = build_executable(network, weights, spec.tvm, precision, scales, sms)
    if not (folder / BINARY).exists():  # without a driver TVM does not request machine code
        cubin(device_source(built.executable.mod))
    host = resolve(spec.tvm.get("host", {"kind": "llvm", "host": True}))
    files, notes = write_library(built.executable, folder, host)
    if built.scales is not None:
        write_scales(folder / FILE, built.scales)
        files += (FILE,)
    return built.inputs, built.outputs, (BINARY, SOURCE, *files), (*built.notes, *notes, f"device code for {arch} only")


@dataclass(frozen=True, slots=True)
class Built:
    """A Relax executable and its tensor layouts; `notes` list performance limitations, `scales` the int8 scales."""

    executable: Any
    inputs: Tensors
    outputs: Tensors
    notes: tuple[str, ...] = ()
    scales: Scales | None = None


def build_executable(
    network: Network,
    weights: Mapping[str, np.ndarray[Any, Any]],
    target: Mapping[str, Any],
    precision: str,
    scales: Scales | None = None,
    sms: int = 0,
) -> Built:
    """Return the executable of a network for a CUDA target, weights included, built by the rules where they apply.

    `sms`: multiprocessors it will run on, 0 for all; tiles of fp16 products are chosen accordingly.
    """
    graph = read(import_network(network), network)
    if precision == "int8":
        return _int8(graph, network, weights, target, scales)
    reason = _unruled(graph, target, precision)
    if not reason:
        lowered = lower(graph, weights, str(target["arch"]), sms=sms)
        executable = build(lowered.module, target)
        return Built(executable, lowered.inputs, lowered.outputs)
    bound = bind_weights(import_network(network, precision), network, weights, precision)
    executable = relax.build(bound, target=tvm.target.Target(dict(target)))
    inputs, outputs = (_border(graph.values, names, precision) for names in (graph.inputs, graph.outputs))
    return Built(executable, inputs, outputs, (f"general schedules, which are slow: {reason}",))


def _int8(
    graph: Graph,
    network: Network,
    weights: Mapping[str, np.ndarray[Any, Any]],
    target: Mapping[str, Any],
    scales: Scales | None,
) -> Built:
    if stays_float(graph):
        built = build_executable(network, weights, target, "fp32")
        return replace(built, notes=(*built.notes, "int8: computed in fp32, as 8 bits hold no coordinates"))
    from socsched.compiler.targets.cuda.int8_build import build_int8_executable

    found = build_int8_executable(network, weights, target, scales)
    return Built(found.executable, found.inputs, found.outputs, found.notes, found.scales)


def _unruled(graph: Graph, target: Mapping[str, Any], precision: str) -> str:
    if precision != "fp16":
        return f"tensor cores take fp16, not {precision}"
    if capability(str(target["arch"])) < OLDEST:
        return f"the rules need asynchronous copies, sm_{OLDEST} or later"
    return unruled(graph)


def _border(values: Mapping[str, TensorType], names: tuple[str, ...], precision: str) -> Tensors:
    types = (values[name] for name in names)
    return tuple(TensorType(t.shape, precision if t.dtype == "fp32" else t.dtype, t.layout) for t in types)


def find_nvcc() -> str:
    """Return the path of nvcc; MachineError when it is not installed."""
    path = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if path is None:
        raise MachineError(
            "nvcc is not installed: stages cannot be compiled for CUDA",
            "install the CUDA toolkit (nvcc of CUDA 11.4 or later for Jetson Orin) and put nvcc on PATH",
        )
    return path


def device_source(module: Any) -> str:
    """Return the CUDA source among a compiled module and its imports; CompileError when there is none."""
    for part in _modules(module):
        if part.kind == "cuda":
            return str(part.inspect_source())
    raise CompileError("no kernel of the stage was placed on the GPU")


def _modules(module: Any) -> Iterator[Any]:
    yield module
    for imported in module.imports:
        yield from _modules(imported)


def write_cubin(compiler: str, source: Path, binary: Path, arch: str) -> None:
    """Compile CUDA source to a cubin for `arch` ("sm_87"); CompileError with nvcc's message if it fails."""
    command = [compiler, "-cubin", f"-arch={arch}", "-O3", "--disable-warnings", "-o", str(binary), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        old = "Unsupported gpu architecture" in done.stderr
        hint = f"this toolkit no longer builds for {arch}: put the nvcc of an older one first on PATH (CUDA 12 or 11)"
        raise CompileError(
            f"nvcc refused {source.name} for {arch}: {done.stderr.strip()[:2000]}",
            hint if old else "check the toolkit's version",
        )
