"""GPU lowering through TVM's general schedules, and device code for a GPU that need not be in this machine.

TVM embeds only CUDA source where no CUDA driver is installed, so nvcc turns that source into a cubin here.  Under the
general schedules convolutions are slow (one kernel per fused operator, no tensor cores); in fp16 everything is fp16,
accumulators included.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compile.environment import relax, tvm
from socsched.compile.fusion import read
from socsched.compile.link import write_library
from socsched.compile.relax_import import bind_weights, import_network
from socsched.compile.targets import TargetSpec, resolve
from socsched.errors import CompileError, MachineError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

SOURCE, BINARY = "stage.cu", "stage.cubin"

Tensors = tuple[TensorType, ...]


def build_cuda(
    folder: Path, network: Network, weights: Mapping[str, np.ndarray[Any, Any]], spec: TargetSpec, precision: str
) -> tuple[Tensors, Tensors, tuple[str, ...], tuple[str, ...]]:
    """Write stage.cubin, stage.cu and the host half into `folder`; return (inputs, outputs, files, notes).

    Tensors lie in plain NCHW.  Raises MachineError when nvcc is missing, CompileError when it refuses the source.
    """
    compiler = find_nvcc()
    graph = read(import_network(network, precision), network)
    executable = build_executable(network, weights, spec.tvm, precision)
    (folder / SOURCE).write_text(device_source(executable.mod))
    write_cubin(compiler, folder / SOURCE, folder / BINARY, str(spec.tvm["arch"]))
    host = resolve(spec.tvm.get("host", {"kind": "llvm", "host": True}))
    files, notes = write_library(executable, folder, host)
    inputs, outputs = (_border(graph.values, names, precision) for names in (graph.inputs, graph.outputs))
    return inputs, outputs, (BINARY, SOURCE, *files), (*notes, f"device code for {spec.tvm['arch']} only")


def build_executable(
    network: Network, weights: Mapping[str, np.ndarray[Any, Any]], target: Mapping[str, Any], precision: str
) -> Any:
    """Return the Relax executable of a network for a TVM target under the general schedules, weights inside."""
    bound = bind_weights(import_network(network, precision), network, weights, precision)
    return relax.build(bound, target=tvm.target.Target(dict(target)))


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
    """Compile CUDA source to a cubin for `arch` ("sm_87"); CompileError with nvcc's words when it refuses."""
    command = [compiler, "-cubin", f"-arch={arch}", "-O3", "--disable-warnings", "-o", str(binary), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        old = "Unsupported gpu architecture" in done.stderr
        hint = f"this toolkit no longer builds for {arch}: put the nvcc of an older one first on PATH (CUDA 12 or 11)"
        raise CompileError(
            f"nvcc refused {source.name} for {arch}: {done.stderr.strip()[:2000]}",
            hint if old else "check the toolkit's version",
        )
