"""The passes for OpenCL: one source, the weights, and the launch plan for a board's own runtime.

TVM's packages lack an OpenCL runtime, so the output is self-contained: `launch.json` names the kernels in order with
their arguments, sizes and memory (see `compiler.launch_list`), `stage.cl` holds them, `weights.bin` the constants.
Convolutions have custom schedules, everything else uses the general ones.  In fp16 tensors are half precision and sums
of convolutions fp32.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tirx, tvm
from socsched.compiler.launch_list import OPENCL
from socsched.compiler.passes.launches import Recorder
from socsched.compiler.passes.relax_form import DTYPES, bind_constants, in_precision
from socsched.compiler.target import Compilation, Passes
from socsched.compiler.targets.gpu_functions.program import portable
from socsched.compiler.targets.opencl import convolution
from socsched.compiler.targets.opencl.pillar_kernel import pillar_net

SOURCE = "stage.cl"

_WIDE, _SHORT = 256, 128


def choose(compilation: Compilation) -> Passes:
    """Return the passes for a network; a Pillar Feature Net is one kernel."""
    if [group.kind for group in compilation.graph.groups] == ["pillar_features"]:
        return PILLARS
    return OPERATORS


def lower_pillars(compilation: Compilation) -> Compilation:
    """Return a Pillar Feature Net as one kernel."""
    graph, weights, precision = compilation.graph, compilation.weights, compilation.asked.precision
    (group,) = graph.groups
    dtype, most = DTYPES[precision], _work_group(_target(compilation))
    weight = weights[group.weights["weight"]]
    bias = weights[group.weights["bias"]] if "bias" in group.weights else np.zeros(len(weight))
    channels, slots = len(weight), graph.values[group.inputs[0]].shape[1]
    items = next(n for n in range(min(most, channels), 0, -1) if channels % n == 0)
    x, y = group.options["origin"]
    function = pillar_net(slots, channels, items, group.options["pillar"], x, y, dtype)
    builder, count = relax.BlockBuilder(), tirx.Var("P", "int64")
    inputs, outputs = (
        in_precision(tuple(graph.values[name] for name in names), precision) for names in (graph.inputs, graph.outputs)
    )
    variables = []
    for name, tensor in zip(graph.inputs, inputs, strict=True):
        shape = [count if size < 0 else size for size in tensor.shape]
        variables.append(relax.Var(name, relax.TensorType(shape, DTYPES[tensor.dtype])))
    operands = [variables[graph.inputs.index(name)] for name in group.inputs]
    constants = [relax.const(np.ascontiguousarray(a, dtype), dtype) for a in (weight.T, bias)]
    with builder.function("main", variables):
        with builder.dataflow():
            kernel = builder.add_func(function, "pillar_net")
            call = relax.call_tir(kernel, [*operands, *constants], relax.TensorType([count, channels], dtype))
            output = builder.emit_output((builder.emit(call),))
        builder.emit_func_output(output)
    return replace(compilation, module=builder.get(), inputs=inputs, outputs=outputs)


def lower_operators(compilation: Compilation) -> Compilation:
    """Return the operators as loops, fused by TVM: convolutions with their own definition, the rest with TVM's."""
    transform = relax.transform
    passes = [
        transform.LegalizeOps(convolution.legalizations()),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ]
    with _target(compilation):
        return replace(compilation, module=tvm.transform.Sequential(passes)(compilation.module))


def schedule(compilation: Compilation) -> Compilation:
    """Return the loops scheduled: convolutions and short reductions by rules, the rest by TVM's general schedules."""
    from tvm.s_tir import dlight

    target, module, gpu = _target(compilation), compilation.module, dlight.gpu
    most = _work_group(target)
    with target:
        for variable, function in module.functions.items():
            if isinstance(function, tirx.PrimFunc):
                own = convolution.schedule(function, most)
                module.update_func(variable, own or _by_element(function))
        # These use 256 work-items regardless of the target's limit.
        wide = (gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction()) if most >= _WIDE else ()
        return replace(compilation, module=dlight.ApplyDefaultSchedule(gpu.Matmul(), *wide, gpu.Fallback())(module))


def generate(compilation: Compilation) -> Compilation:
    """Return the kernels (by name) and the host code that launches them (under the PrimFuncs' own names)."""
    functions = {
        variable: function.with_attr("global_symbol", variable.name_hint)
        for variable, function in compilation.module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    bound = tirx.transform.BindTarget(_target(compilation))(tvm.IRModule(functions))
    pipeline, _, _ = tvm.s_tir.pipeline.default_s_tir_pipeline()
    return replace(compilation, executable=pipeline(bound))


def write_plan(compilation: Compilation) -> Compilation:
    """Write launch.json, stage.cl and weights.bin; CompileError for code that cannot be launched without TVM's runtime.

    Tensors are plain NCHW.
    """
    asked, target = compilation.asked, _target(compilation)
    recorder = Recorder(asked.network.name, compilation.module, compilation.executable)
    recorder.record()
    recorder.check(_work_group(target))
    plan, weights = OPENCL.write(asked.folder, recorder.plan(), recorder.constants(), source=SOURCE)
    (asked.folder / SOURCE).write_text(portable(_source(compilation.executable, target)))
    notes = ["kernels and launch plan: no library, executed by an OpenCL host program"]
    if asked.precision == "fp16":
        notes.append("fp16: tensors in half precision, sums of convolutions in fp32")
    return replace(compilation, files=(plan, SOURCE, weights), notes=tuple(notes))


def _target(compilation: Compilation) -> Any:
    return tvm.target.Target(dict(compilation.asked.spec.tvm))


def _work_group(target: Any) -> int:
    return int(target.attrs["max_threads_per_block"])


def _by_element(function: Any) -> Any:
    """Schedule short reductions such as pooling: one work-item per output; the general rules use a whole group."""
    from tvm.s_tir import dlight

    schedule = tvm.s_tir.Schedule(function)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        parts = schedule.get(block)
        extents = [v.dom.extent for v in parts.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
        if "matmul" in str(parts.name_hint) or not all(isinstance(e, tirx.IntImm) for e in extents):
            return function
        if prod(int(e) for e in extents) > _SHORT:
            return function
    made = dlight.gpu.Fallback().apply(function, tvm.target.Target.current(), False)
    return function if made is None else made.mod["main"].with_attr("tirx.is_scheduled", True)


def _source(lowered: Any, target: Any) -> str:
    """Return the OpenCL source of all kernels; the generator repeats the prototypes before each."""
    _, _, finalize = tvm.s_tir.pipeline.default_s_tir_pipeline()
    kernels = tirx.transform.Filter(lambda function: function.attrs["target"].kind.name == "opencl")(lowered)
    if not kernels.functions:
        return ""
    text = str(tvm.get_global_func("target.build.opencl")(finalize()(kernels), target).inspect_source("cl"))
    lines = text.splitlines()
    prototypes = {line for line in lines if line.startswith("__kernel") and line.endswith(");")}
    return "\n".join(line for line in lines if line not in prototypes) + "\n"


PILLARS = Passes(lower=(lower_pillars,), build=(generate,), package=(write_plan,))
OPERATORS = Passes(
    lower=(bind_constants, lower_operators), schedule=(schedule,), build=(generate,), package=(write_plan,)
)
