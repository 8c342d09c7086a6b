"""A network as OpenCL: one source, the weights, and the launch plan for a board's own runtime.

TVM's packages lack an OpenCL runtime, so the output is self-contained: `launch.json` names the kernels in order with
their arguments, sizes and memory (see `launch_plan`), `stage.cl` holds them, `weights.bin` the constants.  Convolutions
have custom schedules, everything else uses the general ones.  In fp16 tensors are half precision and sums of
convolutions fp32.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tirx, tvm
from socsched.compiler.passes.fusion import Graph, read
from socsched.compiler.passes.relax_import import DTYPES, bind_weights, import_network
from socsched.compiler.store import write_json
from socsched.compiler.target import TargetSpec
from socsched.compiler.targets.opencl import convolution
from socsched.compiler.targets.opencl.launch_plan import Recorder
from socsched.compiler.targets.opencl.pillar_kernel import pillar_net
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

PLAN, SOURCE, WEIGHTS = "launch.json", "stage.cl", "weights.bin"

_WIDE, _SHORT = 256, 128

Tensors = tuple[TensorType, ...]


def build_opencl(
    folder: Path, network: Network, weights: Mapping[str, np.ndarray[Any, Any]], spec: TargetSpec, precision: str
) -> tuple[Tensors, Tensors, tuple[str, ...], tuple[str, ...]]:
    """Write launch.json, stage.cl and weights.bin into `folder`; return (inputs, outputs, files, notes).

    Tensors are plain NCHW.  Raises CompileError for code that cannot be launched without TVM's runtime.
    """
    target = tvm.target.Target(dict(spec.tvm))
    graph = read(import_network(network, precision), network)
    if [group.kind for group in graph.groups] == ["pillar_features"]:
        module = _pillars(graph, weights, int(target.attrs["max_threads_per_block"]), DTYPES[precision])
    else:
        module = _scheduled(bind_weights(import_network(network, precision), network, weights, precision), target)
    lowered = _split(module, target)
    recorder = Recorder(network.name, module, lowered)
    recorder.record()
    recorder.check(int(target.attrs["max_threads_per_block"]))
    write_json(folder / PLAN, {**recorder.plan(), "source": SOURCE, "weights": WEIGHTS})
    (folder / SOURCE).write_text(_source(lowered, target))
    (folder / WEIGHTS).write_bytes(recorder.constants())
    inputs, outputs = (_border(graph.values, names, precision) for names in (graph.inputs, graph.outputs))
    notes = ["kernels and launch plan: no library, executed by an OpenCL host program (compiler.targets.opencl.run)"]
    if precision == "fp16":
        notes.append("fp16: tensors in half precision, sums of convolutions in fp32")
    return inputs, outputs, (PLAN, SOURCE, WEIGHTS), tuple(notes)


def _border(values: Mapping[str, TensorType], names: tuple[str, ...], precision: str) -> Tensors:
    types = (values[name] for name in names)
    return tuple(TensorType(t.shape, precision if t.dtype == "fp32" else t.dtype, t.layout) for t in types)


def _pillars(graph: Graph, weights: Mapping[str, np.ndarray[Any, Any]], most: int, dtype: str) -> Any:
    """Return a Pillar Feature Net as one kernel."""
    (group,) = graph.groups
    weight = weights[group.weights["weight"]]
    bias = weights[group.weights["bias"]] if "bias" in group.weights else np.zeros(len(weight))
    channels, slots = len(weight), graph.values[group.inputs[0]].shape[1]
    items = next(n for n in range(min(most, channels), 0, -1) if channels % n == 0)
    x, y = group.options["origin"]
    function = pillar_net(slots, channels, items, group.options["pillar"], x, y, dtype)
    builder, count = relax.BlockBuilder(), tirx.Var("P", "int64")
    variables = []
    for name in graph.inputs:
        tensor = graph.values[name]
        shape = [count if size < 0 else size for size in tensor.shape]
        variables.append(relax.Var(name, relax.TensorType(shape, DTYPES[tensor.dtype])))
    inputs = [variables[graph.inputs.index(name)] for name in group.inputs]
    constants = [relax.const(np.ascontiguousarray(a, dtype), dtype) for a in (weight.T, bias)]
    with builder.function("main", variables):
        with builder.dataflow():
            kernel = builder.add_func(function, "pillar_net")
            call = relax.call_tir(kernel, [*inputs, *constants], relax.TensorType([count, channels], dtype))
            output = builder.emit_output((builder.emit(call),))
        builder.emit_func_output(output)
    return builder.get()


def _scheduled(module: Any, target: Any) -> Any:
    from tvm.s_tir import dlight

    transform, most = relax.transform, int(target.attrs["max_threads_per_block"])
    with target:
        fused = tvm.transform.Sequential(
            [
                transform.LegalizeOps(convolution.legalizations()),
                transform.AnnotateTIROpPattern(),
                transform.FoldConstant(),
                transform.FuseOps(),
                transform.FuseTIR(),
                transform.DeadCodeElimination(),
            ]
        )(module)
        for variable, function in fused.functions.items():
            if isinstance(function, tirx.PrimFunc):
                own = convolution.schedule(function, most)
                fused.update_func(variable, own or _by_element(function))
        gpu = dlight.gpu
        # These use 256 work-items regardless of the target's limit.
        wide = (gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction()) if most >= _WIDE else ()
        return dlight.ApplyDefaultSchedule(gpu.Matmul(), *wide, gpu.Fallback())(fused)


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


def _split(module: Any, target: Any) -> Any:
    """Return the kernels (by name) and the host code that launches them (under the PrimFuncs' own names)."""
    functions = {
        variable: function.with_attr("global_symbol", variable.name_hint)
        for variable, function in module.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    bound = tirx.transform.BindTarget(target)(tvm.IRModule(functions))
    pipeline, _, _ = tvm.s_tir.pipeline.default_s_tir_pipeline()
    return pipeline(bound)


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
