"""The passes for GPUs: fp16 and int8 by rules, the rest by TVM's general schedules; needs no GPU.

Without a CUDA driver TVM embeds only CUDA source, so `compiled_by_nvcc` compiles it to a cubin.  Under the general
schedules convolutions are slow (one kernel per fused operator, no tensor cores); in fp16 they compute everything in
fp16, accumulators included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from socsched.compiler.environment import relax, tirx, tvm
from socsched.compiler.launch_list import CUDA
from socsched.compiler.passes.launches import CudaRecorder
from socsched.compiler.passes.link import write_library
from socsched.compiler.passes.relax_form import bind_constants
from socsched.compiler.quantize.calibrate import QUANTISE, keep_scales, left_in_floats
from socsched.compiler.target import Compilation, Pass, Passes, resolve
from socsched.compiler.targets.cuda.attention import completed
from socsched.compiler.targets.cuda.int8_lower import lower_int8
from socsched.compiler.targets.cuda.lower import fuse, lower
from socsched.compiler.targets.cuda.rules import unruled, unsupported_reason
from socsched.compiler.targets.cuda.toolkits import BINARY, SOURCE, device_source, supply_cubins, toolkit_for
from socsched.descriptor.processors import TENSOR_CORES, capability
from socsched.errors import CompileError
from socsched.graph.integers import STAYS_FLOAT, stays_float


def choose(compilation: Compilation) -> Passes:
    """Return the passes for a network: stage.cubin, stage.cu and the host half; MachineError without a toolkit."""
    toolkit_for(str(compilation.asked.spec.tvm["arch"]))  # before any work
    own = in_memory(compilation)
    return replace(own, build=tuple(map(compiled_by_nvcc, own.build)), link=(link_host_half, list_launches(own)))


def in_memory(compilation: Compilation) -> Passes:
    """Return the passes that need no nvcc: to an executable in memory, and its scales.

    Images are NHWC under the rules, plain NCHW under the general schedules.  Raises CompileError for int8 on GPUs
    before sm_80.
    """
    if compilation.asked.precision == "int8" and not stays_float(compilation.graph):
        require_products(compilation)
        return INT8
    return GENERAL if _reason(compilation) else RULED


def lower_by_rules(compilation: Compilation) -> Compilation:
    """Return the fp16 kernels, scheduled, images NHWC."""
    asked = compilation.asked
    lowered = lower(compilation.graph, compilation.weights, str(asked.spec.tvm["arch"]), sms=asked.share)
    notes = tuple(f"alone by general schedules, which are slow: {reason}" for reason in lowered.general)
    return replace(compilation, module=lowered.module, inputs=lowered.inputs, outputs=lowered.outputs, notes=notes)


def require_products(compilation: Compilation) -> None:
    """Raise CompileError for a GPU whose tensor cores lack the products that the rules use."""
    arch = str(compilation.asked.spec.tvm["arch"])
    if capability(arch) < TENSOR_CORES:
        raise CompileError(
            f"{compilation.asked.network.name}: int8 on {arch}: the rules need asynchronous copies and 32-deep "
            f"products, sm_{TENSOR_CORES} or later",
            "plan this stage in fp16",
        )


def lower_integers(compilation: Compilation) -> Compilation:
    """Return the int8 kernels, scheduled, images NHWC and fp32 at the border."""
    lowered = lower_int8(compilation.integers, compilation.weights, str(compilation.asked.spec.tvm["arch"]))
    assert compilation.scales is not None
    notes = [f"int8: tensor cores, border tensors fp32, activations by {compilation.scales.source}"]
    notes += [
        f"int8: computed in fp32 by general schedules, which are slow: {reason}"
        for reason in left_in_floats(compilation)
    ]
    return replace(
        compilation, module=lowered.module, inputs=lowered.inputs, outputs=lowered.outputs, notes=tuple(notes)
    )


def remark(compilation: Compilation) -> Compilation:
    """Return the network with the reason for which no rule applies."""
    notes = [f"general schedules, which are slow: {_reason(compilation)}"]
    if compilation.asked.precision == "int8":
        notes.append(STAYS_FLOAT)
    return replace(compilation, notes=tuple(notes))


def generate(compilation: Compilation) -> Compilation:
    """Return the executable of kernels by rules."""
    made = build(compilation.module, compilation.asked.spec.tvm, general=_has_general(compilation))
    return replace(compilation, executable=made)


def generate_by_tvm(compilation: Compilation) -> Compilation:
    """Return the executable of a module of layers, by TVM's own pipeline."""
    target = tvm.target.Target(dict(compilation.asked.spec.tvm))
    return replace(compilation, executable=relax.build(compilation.module, target=target))


def compiled_by_nvcc(generate: Pass) -> Pass:
    """Return `generate` as a pass that also writes the source and nvcc's machine code for it."""

    def generate_and_write(compilation: Compilation) -> Compilation:
        folder, arch = compilation.asked.folder, str(compilation.asked.spec.tvm["arch"])
        toolkit = toolkit_for(arch)

        def cubin(source: str) -> bytes:
            source = completed(source)
            (folder / SOURCE).write_text(source)
            code = toolkit.build(source, arch)
            (folder / BINARY).write_bytes(code)
            return code

        with supply_cubins(cubin):
            compilation = generate(compilation)
        if not (folder / BINARY).exists():  # without a driver TVM does not request machine code
            cubin(device_source(compilation.executable.mod))
        return compilation

    return generate_and_write


def link_host_half(compilation: Compilation) -> Compilation:
    """Write the library that launches the kernels, or its object files."""
    tvm_target = compilation.asked.spec.tvm
    host = resolve(tvm_target.get("host", {"kind": "llvm", "host": True}))
    files, notes = write_library(compilation.executable, compilation.asked.folder, host)
    notes = (*compilation.notes, *notes, f"device code for {tvm_target['arch']} only")
    return replace(compilation, files=(BINARY, SOURCE, *files), notes=notes)


def list_launches(own: Passes) -> Pass:
    """Return the pass that writes the launch list of a network built by `own`, or a note of why it has none."""

    def listed(compilation: Compilation) -> Compilation:
        asked = compilation.asked
        if own is GENERAL:
            chosen = tvm.target.Target(dict(asked.spec.tvm))
            pipeline = relax.backend.cuda.pipeline
            front = [*pipeline.library_dispatch_passes(chosen), *pipeline.legalize_passes(chosen)]
            front, tir = [*front, relax.transform.RewriteDataflowReshape()], "default"
        else:
            front, tir = relax_front(general=_has_general(compilation)), tir_pipeline()
        try:
            files = _write_list(compilation, front, tir)
        except CompileError as error:
            return replace(compilation, notes=(*compilation.notes, f"runs with TVM's runtime only: {error}"))
        return replace(compilation, files=(*compilation.files, *files))

    return listed


def _write_list(compilation: Compilation, front: Sequence[Any], tir: str) -> tuple[str, ...]:
    """Write the launch list and the constants of a network; return the files.

    `front`: the Relax passes of its build that leave calls of finished functions; `tir`: the name of its pipeline for
    functions.  CompileError for anything a list cannot express.
    """
    from tvm.s_tir.pipeline import default_s_tir_pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    asked, source = compilation.asked, (compilation.asked.folder / SOURCE).read_text()
    target = tvm.target.Target(dict(asked.spec.tvm))
    with target, tvm.transform.PassContext(config=OPTIONS if tir != "default" else {}):
        module = tvm.transform.Sequential(list(front))(compilation.module)
        functions = {
            variable: function.with_attr("global_symbol", variable.name_hint)
            for variable, function in module.functions.items()
            if isinstance(function, tirx.PrimFunc)
        }
        bound = tirx.transform.BindTarget(target if target.host else target.with_host("llvm"))(tvm.IRModule(functions))
        lower, _, _ = default_s_tir_pipeline() if tir == "default" else PIPELINE_MAP[tir]()
        recorder = CudaRecorder(asked.network.name, module, lower(bound))
    recorder.record()
    for launch in recorder.launches:
        if f" {launch['kernel']}(" not in source:
            raise CompileError(f"{asked.network.name}: the kernel {launch['kernel']} is not among those compiled")
    return CUDA.write(asked.folder, recorder.plan(), recorder.constants())


def _has_general(compilation: Compilation) -> bool:
    """Return whether operators of a network under rules are left to the general schedules."""
    if compilation.integers:
        return any(step.exact for step in compilation.integers.steps)
    return bool(unruled(fuse(compilation.graph)))


def _reason(compilation: Compilation) -> str:
    """Return the reason for which no rule applies, empty if rules do."""
    precision = compilation.asked.precision
    if precision != "fp16":
        return f"tensor cores take fp16, not {'fp32' if precision == 'int8' else precision}"
    if capability(str(compilation.asked.spec.tvm["arch"])) < TENSOR_CORES:
        return f"the rules need asynchronous copies, sm_{TENSOR_CORES} or later"
    return unsupported_reason(fuse(compilation.graph))


RULED = Passes(lower=(lower_by_rules,), build=(generate,))
GENERAL = Passes(lower=(remark, bind_constants), build=(generate_by_tvm,))
INT8 = Passes(quantise=QUANTISE, lower=(lower_integers,), build=(generate,), package=(keep_scales,))


OPTIONS = {"tirx.use_async_copy": 1, "tirx.disable_cse_tir": True}
"""Pass configuration: asynchronous copies become cp.async; common subexpressions are left to nvcc."""

_WARP_BUFFERS = 8  # upper bound; the rules use two operands and the sums


def build(module: Any, target: Mapping[str, Any], general: bool = False) -> Any:
    """Return the Relax executable of a module of finished functions for a CUDA target.

    With `general` the module also holds operators, which are legalised and scheduled by TVM's general rules.
    """
    chosen = tvm.target.Target(dict(target))
    with chosen, tvm.transform.PassContext(config=OPTIONS):
        return relax.build(module, target=chosen, relax_pipeline=relax_pipeline(general), tir_pipeline=tir_pipeline())


def relax_pipeline(general: bool = False) -> Any:
    """Return the passes from Relax to the virtual machine; without `general` there is nothing to schedule."""
    return tvm.transform.Sequential(
        [
            *relax_front(general),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )


def relax_front(general: bool = False) -> list[Any]:
    """Return the first of these passes, after which all operators are calls of finished functions."""
    from tvm.s_tir import dlight

    if not general:
        return [relax.transform.LegalizeOps()]
    return [  # TVM's schedules for GPUs, reductions first; functions already scheduled are left unchanged
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        dlight.ApplyDefaultSchedule(dlight.gpu.GEMV(), dlight.gpu.Reduction(), dlight.gpu.Fallback()),
    ]


def tir_pipeline() -> Any:
    """Return TVM's pipeline for scheduled functions, with repeated lowering of warp buffers.

    One pass of LowerWarpMemory turns only the first warp buffer of a sequence of statements into registers; the others
    stay arrays indexed by the lane.
    """
    from tvm.s_tir.pipeline import default_s_tir_pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    def make() -> Any:
        lower, host, _ = default_s_tir_pipeline()
        passes = [tirx.transform.LowerWarpMemory() for _ in range(_WARP_BUFFERS)]
        device = [tirx.transform.StmtSimplify(), tirx.transform.LowerIntrin()]
        return lower, host, lambda: tvm.ir.transform.Sequential([*passes, *device])

    PIPELINE_MAP["socsched_cuda"] = make
    return "socsched_cuda"
