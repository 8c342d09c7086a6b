"""Operators without a rule: TVM's definitions, fused by TVM and scheduled here by the axes of their loops.

An element-wise operator, or one that only moves data, takes its rows in parallel and the last axis in vectors; so does
a reduction whose last axis is not reduced.  Functions that the C library computes number by number have vector forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import gcd, prod
from typing import Any

from socsched.compiler.environment import relax, s_tir, structural_walk, tirx, tvm, variables_in
from socsched.compiler.targets.llvm.fuse import function

_LEAST = 1 << 14
"""Elements from which on several threads share a loop."""
_WIDTHS = (16, 8, 4)


def legalised(module: Any, target: Any) -> Any:
    """Return a module in which every operator is a scheduled function, those without data dependences fused."""
    vector: dict[str, Any] = {f"relax.{name}": _elementwise(name, form) for name, form in _VECTOR.items()}
    vector["relax.concat"] = _concatenated
    passes = [
        *relax.backend.cpu_generic.pipeline.library_dispatch_passes(target),
        relax.transform.LegalizeOps(vector),
        *map(_sparing, relax.backend.cpu_generic.pipeline.legalize_passes(target)[1:]),
        relax.transform.RewriteDataflowReshape(),
        tvm.transform.module_pass(_scheduled, opt_level=0, name="ScheduleGeneral"),
    ]
    with target:
        return tvm.transform.Sequential(passes)(module)


def _sparing(step: Any) -> Any:
    """Return a pass; the folding of constants without kernels of a processor's own instructions, which run later.

    TVM folds on a processor without any extension, for which LLVM ends the process at such an instruction.
    """
    if step.info.name != "FoldConstant":
        return step

    def fold(module: Any, _: Any) -> Any:
        functions = module.functions_items()
        own = {variable: kernel for variable, kernel in functions if _has_own_instructions(kernel)}
        for variable in own:
            module.update_func(variable, relax.ExternFunc(variable.name_hint))
        module = step(module)
        for variable, kernel in own.items():
            module.update_func(variable, kernel)
        return module

    return tvm.transform.module_pass(fold, opt_level=0, name="FoldConstant")


def _has_own_instructions(kernel: Any) -> bool:
    if not isinstance(kernel, tirx.PrimFunc):
        return False
    calls: list[str] = []
    structural_walk(kernel.body, (tvm.ir.Call, lambda call: calls.append(getattr(call.op, "name", ""))))
    return "tirx.call_llvm_pure_intrin" in calls


def built(module: Any, target: Any) -> Any:
    """Return the executable of a module that `legalised` returned."""
    pipeline = relax.backend.cpu_generic.pipeline
    rest = [*pipeline.dataflow_lower_passes(target)[1:], *pipeline.finalize_passes(target)]
    return relax.build(module, target=target, relax_pipeline=tvm.transform.Sequential(rest))


def _elementwise(name: str, form: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def compute(x: Any) -> Any:
        return tvm.te.compute(x.shape, lambda *at: form(x[at].astype("float32")).astype(x.dtype), name=f"T_{name}")

    return lambda builder, call: builder.call_te(compute, call.args[0], primfunc_name_hint=name)


def _concatenated(builder: Any, call: Any) -> Any:
    """Return a concatenation; along the last axis, as far as it can be, one whose vectors each read one operand."""
    whole = tvm.ir.Op.get("relax.concat").get_attr("FLegalize")
    parts = call.args[0]
    shapes = [part.ty.shape for part in parts.fields] if isinstance(parts, relax.Tuple) else []
    ends = [*accumulate(int(getattr(shape[-1], "value", 1)) for shape in shapes)]
    width = gcd(*ends)
    if not shapes or int(call.attrs.axis) != len(shapes[0]) - 1 or width == 1:
        return whole(builder, call)

    def compute(*operands: Any) -> Any:
        def at(*index: Any) -> Any:
            *outer, last = index
            value = operands[-1](*outer, last - ends[-2])
            for operand, start, end in reversed(list(zip(operands[:-1], [0, *ends], ends, strict=False))):
                value = tirx.if_then_else(last // width < end // width, operand(*outer, last - start), value)
            return value

        return tvm.te.compute((*operands[0].shape[:-1], ends[-1]), at, name="T_concat")

    return builder.call_te(compute, *parts.fields, primfunc_name_hint="concatenate")


_VECTOR: dict[str, Callable[[Any], Any]] = {name: function((name,)) for name in ("exp", "sigmoid", "tanh", "erf")}


def _scheduled(module: Any, _: Any) -> Any:
    for variable, unscheduled in module.functions_items():
        if isinstance(unscheduled, tirx.PrimFunc) and "tirx.is_scheduled" not in (unscheduled.attrs or {}):
            module.update_func(variable, _schedule(unscheduled))
    return module


def _schedule(unscheduled: Any) -> Any:
    """Return a function with its loops in order; as it is where a schedule's condition does not hold."""
    schedule = s_tir.Schedule(unscheduled)
    try:
        root = schedule.get_sblock("root")
        for block in schedule.get_child_blocks(root):
            _inline(schedule, block)
        for block in schedule.get_child_blocks(root):
            _order(schedule, block)
    except s_tir.ScheduleError:
        return unscheduled
    return schedule.mod["main"].with_attrs({**dict(unscheduled.attrs or {}), "tirx.is_scheduled": True})


def _inline(schedule: Any, block: Any) -> None:
    """Compute an element-wise block where it is read, or where what it reads is written."""
    for step in (schedule.compute_inline, schedule.reverse_compute_inline):
        try:
            step(block)
        except s_tir.ScheduleError:
            continue
        return


def _order(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    body = schedule.get(block)
    kinds = [int(axis.iter_type) for axis in body.iter_vars]
    extents = [getattr(schedule.get(loop).extent, "value", 0) for loop in loops]
    if len(kinds) != len(loops) or not loops or not all(extents):
        return
    spatial = [n for n, kind in enumerate(kinds) if kind == 0]
    reduced = [n for n in range(len(loops)) if n not in spatial]
    inner = _inner(body, spatial, reduced)
    outer = [n for n in spatial if n != inner]
    order = [*outer, *reduced, *([] if inner < 0 else [inner])]
    if len(order) > 1:
        schedule.reorder(*(loops[n] for n in order))
    size = prod(extents)
    if outer and size >= _LEAST:
        joined = schedule.fuse(*(loops[n] for n in outer)) if len(outer) > 1 else loops[outer[0]]
        schedule.parallel(joined)
    elif inner >= 0 and not reduced and size >= _LEAST:
        parts = next((n for n in (64, 32, 16, 8) if extents[inner] % (n * _WIDTHS[0]) == 0), 0)
        if parts:
            first, loops[inner] = schedule.split(loops[inner], factors=[parts, None])
            schedule.parallel(first)
            extents[inner] //= parts
    if reduced:
        schedule.decompose_reduction(block, loops[reduced[0]])
    width = next((n for n in _WIDTHS if inner >= 0 and extents[inner] % n == 0), 0)
    if width:
        _, lanes = schedule.split(loops[inner], factors=[None, width])
        schedule.vectorize(lanes)


def _inner(body: Any, spatial: Sequence[int], reduced: Sequence[int]) -> int:
    """Return the axis for the innermost loop: the last one, unless a reduction reads its input along another."""
    if not spatial:
        return -1
    last = spatial[-1]
    if not reduced:
        return last
    used = variables_in(body.reads[0].region[-1].min)
    return last if body.iter_vars[last].var in used else -1
