"""The launch list of a CPU network: its kernels in order, so that they run without TVM's virtual machine.

A launch list is a launch plan (`opencl.launch_plan`) whose launches are {kernel, arguments: [{buffer}]}; parts and
outputs are those of a CUDA network's list (`cuda.launch_list`).  Its kernels are the exported functions
`__tvm_ffi_NAME` of the code, which take tensors in main memory.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from socsched.compiler.environment import relax, tvm
from socsched.compiler.store import write_json
from socsched.compiler.target import Compilation
from socsched.compiler.targets.cuda.launch_list import ListRecorder
from socsched.compiler.targets.llvm.plan_format import CONSTANTS, FORMAT, LIST
from socsched.errors import CompileError

_PREFIX = b"__tvm_ffi_"
_SLOTS = {b"__TVMBackendParallelLaunch", b"__TVMBackendAllocWorkspace", b"__TVMBackendFreeWorkspace"}
"""Functions that the executor supplies to the kernels (`parallel.cpp`, `cpu_program.cpp`)."""


def list_launches(compilation: Compilation) -> Compilation:
    """Return the network with its launch list and constants in the folder, or with a note of why it has none."""
    try:
        return replace(compilation, files=(*compilation.files, *_write(compilation)))
    except CompileError as error:
        return replace(compilation, notes=(*compilation.notes, f"runs with TVM's runtime only: {error}"))


def _write(compilation: Compilation) -> tuple[str, ...]:
    asked = compilation.asked
    target = tvm.target.Target(dict(asked.spec.tvm))
    pipeline = relax.backend.cpu_generic.pipeline
    front = [*pipeline.library_dispatch_passes(target), *pipeline.legalize_passes(target)]
    with target:
        module = tvm.transform.Sequential([*front, relax.transform.RewriteDataflowReshape()])(compilation.module)
    recorder = CpuRecorder(asked.network.name, module, tvm.IRModule({}))
    recorder.record()
    code = b"\0".join((asked.folder / name).read_bytes() for name in compilation.files)
    if foreign := set(re.findall(rb"__TVM\w+", code)) - _SLOTS:
        raise CompileError(f"{asked.network.name}: its kernels call {min(foreign).decode()}")
    exported = set(re.findall(rb"__tvm_ffi_\w+", code))
    for launch in recorder.launches:
        if _PREFIX + launch["kernel"].encode() not in exported:
            raise CompileError(f"{asked.network.name}: the kernel {launch['kernel']} is not among those compiled")
    write_json(asked.folder / LIST, {**recorder.plan(), "format": FORMAT, "weights": CONSTANTS})
    (asked.folder / CONSTANTS).write_bytes(recorder.constants())
    return (LIST, CONSTANTS)


class CpuRecorder(ListRecorder):
    """Follows `main`; every call of a function is one launch with tensors as arguments."""

    def launch(self, function: str, operands: list[int]) -> None:
        """Add a call of a kernel."""
        self.launches.append({"kernel": function, "arguments": [{"buffer": index} for index in operands]})

    def buffer(self, name: str, role: str, ty: Any) -> int:
        """Add a buffer; its sizes are numbers or single symbols."""
        index = super().buffer(name, role, ty)
        for size in self.buffers[index]["shape"]:
            if isinstance(size, str) and size not in self.symbols and role != "input":
                raise CompileError(f"{self.name}: {name}: the size {size} has no launch list")
        return index
