"""The launch list of a CUDA network, so that it runs through the driver alone: TVM's host code is not needed.

A launch list is a launch plan (`opencl.launch_plan`) with two additions: `shared` of a launch, its dynamic shared
memory in bytes; and parts that are views of another buffer, which outputs may be, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from socsched.compiler.environment import tirx, tvm
from socsched.compiler.store import write_json
from socsched.compiler.target import Compilation
from socsched.compiler.targets.cuda.codegen import OPTIONS
from socsched.compiler.targets.opencl.launch_plan import HostCode, Recorder, size_of
from socsched.errors import CompileError

FORMAT = "socsched-cuda-1"
LIST, CONSTANTS = "launches.json", "constants.bin"
_SHARED = "tirx.use_dyn_shared_memory"


def write_list(compilation: Compilation, front: Sequence[Any], tir: str, source: str) -> tuple[str, ...]:
    """Write the launch list and the constants of a network whose kernels are in `source`; return the files.

    `front`: the Relax passes of its build that leave calls of finished functions; `tir`: the name of its pipeline for
    functions.  CompileError for anything a list cannot express.
    """
    asked = compilation.asked
    chosen = tvm.target.Target(dict(asked.spec.tvm))
    with chosen, tvm.transform.PassContext(config=OPTIONS if tir != "default" else {}):
        module = tvm.transform.Sequential(list(front))(compilation.module)
        recorder = ListRecorder(asked.network.name, module, host_code(module, chosen, tir))
    recorder.record()
    for launch in recorder.launches:
        if f" {launch['kernel']}(" not in source:
            raise CompileError(f"{asked.network.name}: the kernel {launch['kernel']} is not among those compiled")
    write_json(asked.folder / LIST, {**recorder.plan(), "format": FORMAT, "weights": CONSTANTS})
    (asked.folder / CONSTANTS).write_bytes(recorder.constants())
    return (LIST, CONSTANTS)


def host_code(module: Any, target: Any, tir: str) -> Any:
    """Return the functions lowered up to the split into host and device code."""
    from tvm.s_tir.pipeline import default_s_tir_pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    functions = {
        variable: function.with_attr("global_symbol", variable.name_hint)
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    bound = tirx.transform.BindTarget(target if target.host else target.with_host("llvm"))(tvm.IRModule(functions))
    lower, _, _ = default_s_tir_pipeline() if tir == "default" else PIPELINE_MAP[tir]()
    return lower(bound)


class ListRecorder(Recorder):
    """Follows `main` as the base does, through views and calls that write into an operand as well."""

    @property
    def host_code(self) -> type[HostCode]:
        """Return the reader of a function's host code."""
        return _Host

    def record(self) -> None:
        """Follow `main` from its inputs to its outputs; CompileError for anything a list cannot express."""
        result = self.follow()
        self.outputs = result if isinstance(result, list) else [result]
        for index in map(self.whole, self.outputs):
            if self.buffers[index]["role"] not in ("scratch", "output"):
                raise CompileError(f"{self.name}: an output that is an input or a constant has no launch list")
            self.buffers[index]["role"] = "output"
        self.share()

    def value(self, name: str, expression: Any) -> Any:
        """Return the index of the buffer an expression denotes, a list of indices for a tuple."""
        op = str(getattr(getattr(expression, "op", None), "name", ""))
        if op == "relax.memory.view":
            return self.view(name, expression, size_of(expression.args[3], {}))
        if op == "relax.reshape":
            return self.view(name, expression, 0)
        if op == "relax.call_tir_inplace":
            return self.call_inplace(name, expression)
        return super().value(name, expression)

    def view(self, name: str, call: Any, offset: int | str) -> int:
        """Add a part of a buffer."""
        source = self.value(f"{name}.of", call.args[0])
        index = self.buffer(name, "part", call.ty)
        if not isinstance(offset, int):
            raise CompileError(f"{self.name}: {name}: a view at an offset that varies has no launch list")
        start = int(self.buffers[source].get("offset", 0)) if "within" in self.buffers[source] else 0
        self.buffers[index] |= {"within": self.whole(source), "offset": start + offset}
        return index

    def call_inplace(self, name: str, call: Any) -> int:
        """Add the launches of a function whose only result is one of its operands."""
        places = [int(index) for index in call.attrs.inplace_indices]
        if len(call.args) > 2 or len(places) != 1 or places[0] < 0:
            raise CompileError(f"{self.name}: {name}: a call with several results in place has no launch list")
        operands = [self.value(f"{name}.{i}", argument) for i, argument in enumerate(call.args[1].fields)]
        self.launch(str(call.args[0].name_hint), operands)
        return int(operands[places[0]])


class _Host(HostCode):
    """Host code whose launches may have dynamic shared memory."""

    def special(self, parameter: str, size: Any) -> dict[str, Any]:
        return {"shared": size} if parameter == _SHARED else super().special(parameter, size)
