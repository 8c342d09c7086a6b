"""Direct convolution for mobile GPUs: its computation, and a schedule that keeps a tile in registers.

A work-item computes `channels` x `pixels` outputs, so that every input it reads is used for several channels and every
weight for several pixels; neighbouring work-items take neighbouring pixels.  Local memory is not used, since Mali GPUs
do not have it in hardware.  Sums are fp32 for every tensor precision; bias, residual and ReLU are merged into a
preceding convolution.  A transposed convolution whose kernel equals its stride is computed phase by phase: all outputs
of one phase use one weight per channel pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from socsched.compiler.environment import relax, tirx, tvm

BLOCK, INPUT = "direct_convolution", "padded_input"
"""Names of the blocks that the schedule looks for."""
_REDUCTIONS = ("channel", "row", "column")
_SHORT = 3
"""Kernels up to this width share the inputs of a row; wider ones would need too many registers."""
_OUT_EWISE_FUSABLE = 4


def legalizations() -> dict[str, Any]:
    """Return the replacements for legalisations of `relax.transform.LegalizeOps`."""
    return {"relax.nn.conv2d": _conv2d, "relax.nn.conv2d_transpose": _conv2d_transpose}


def channel_tile(channels: int) -> int:
    """Return the number of output channels per work-item: a divisor if there is one between 4 and 8, else 8."""
    if channels < 4:
        return channels
    return next((n for n in (8, 7, 6, 5, 4) if channels % n == 0), 8)


def _pixels(width: int, channels: int) -> int:
    """Return the pixels of a row per work-item: a divisor of the width, since edge tests cost more than idling.

    At half occupancy a work-item has 64 registers; sums may take 40.
    """
    most = min(40 // channels, 8)
    found = max(n for n in range(1, most + 1) if width % n == 0)
    return found if found > 1 or width <= most else min(most, 4)


def _items(count: int, most: int) -> int:
    """Return the work-items per group, of `count` in all: a divisor near the hardware wave size if there is one."""
    sizes = (*range(min(64, most), 23, -1), *range(min(128, most), 64, -1))
    return next((n for n in sizes if count % n == 0), min(64, most))


def _conv2d(builder: Any, call: Any) -> Any:
    attrs, weight = call.attrs, _constant(call.args[1])
    if attrs.data_layout != "NCHW" or weight is None:
        return relax.transform.legalize_ops.nn._nn_conv2d(builder, call)
    groups = int(attrs.groups)
    tile = channel_tile(weight.shape[0]) if groups == 1 else 1
    return _emit(builder, call, _direct, _packed(weight, tile), tile, attrs, groups, weight.shape[0])


def _conv2d_transpose(builder: Any, call: Any) -> Any:
    attrs, weight = call.attrs, _constant(call.args[1])
    stride = tuple(int(n) for n in attrs.strides)
    regular = (
        weight is not None
        and weight.shape[2:] == stride
        and int(attrs.groups) == 1
        and not any(int(n) for n in (*attrs.padding, *attrs.output_padding))
        and all(int(n) == 1 for n in attrs.dilation)
    )
    if not regular or weight is None:
        return relax.transform.legalize_ops.nn._nn_conv2d_transpose(builder, call)
    tile = channel_tile(weight.shape[1])
    packed = _packed(weight.transpose(1, 0, 2, 3), tile)
    return _emit(builder, call, _phases, packed, tile, stride, weight.shape[1])


def _emit(builder: Any, call: Any, make: Any, packed: np.ndarray[Any, Any], tile: int, *args: Any) -> Any:
    attrs = {"op_pattern": _OUT_EWISE_FUSABLE}
    constant = relax.const(packed, str(packed.dtype))
    return builder.call_te(make, call.args[0], constant, tile, *args, primfunc_name_hint="conv2d", primfunc_attrs=attrs)


def _constant(expression: Any) -> np.ndarray[Any, Any] | None:
    value: Any = getattr(expression, "value", None)
    return value.numpy() if hasattr(value, "numpy") else None


def _packed(weight: np.ndarray[Any, Any], tile: int) -> np.ndarray[Any, Any]:
    """Return [O, I, h, w] as [O / tile, I, h, w, tile], so that the reads of one step are contiguous."""
    o, i, h, w = weight.shape
    groups = -(-o // tile)
    padded = np.pad(weight, ((0, groups * tile - o), (0, 0), (0, 0), (0, 0)))
    return np.ascontiguousarray(padded.reshape(groups, tile, i, h, w).transpose(0, 2, 3, 4, 1))


def _direct(x: Any, weight: Any, tile: int, attrs: Any, groups: int, out: int) -> Any:
    n, channels, height, width = x.shape
    _, inner, kh, kw, _ = weight.shape
    top, left, bottom, right = (int(p) for p in attrs.padding)
    sy, sx = (int(s) for s in attrs.strides)
    dy, dx = (int(d) for d in attrs.dilation)
    oh = (int(height) + top + bottom - dy * (int(kh) - 1) - 1) // sy + 1
    ow = (int(width) + left + right - dx * (int(kw) - 1) - 1) // sx + 1
    c, r, s = (tvm.te.reduce_axis((0, n), name) for n, name in zip((inner, kh, kw), _REDUCTIONS, strict=True))

    def read(b: Any, i: Any, y: Any, xx: Any) -> Any:
        value = x[b, i, y - top, xx - left].astype("float32")
        edges = [y >= top, y < height + top] if top or bottom else []
        edges += [xx >= left, xx < width + left] if left or right else []
        return tirx.if_then_else(tirx.all(*edges), value, tirx.const(0, "float32")) if edges else value

    padded = tvm.te.compute((n, channels, height + top + bottom, width + left + right), read, name=INPUT)

    def product(b: Any, o: Any, y: Any, xx: Any) -> Any:
        channel = c if groups == 1 else o // (out // groups) * inner + c
        value = padded[b, channel, y * sy + r * dy, xx * sx + s * dx]
        return value * weight[o // tile, c, r, s, o % tile].astype("float32")

    return _finished(
        tvm.te.compute(
            (n, out, oh, ow),
            lambda b, o, y, xx: tvm.te.sum(product(b, o, y, xx), axis=(c, r, s)),
            name=BLOCK,
            attrs={"socsched.tile": [tile, _pixels(ow, tile), 1]},
        ),
        x.dtype,
    )


def _phases(x: Any, weight: Any, tile: int, stride: tuple[int, int], out: int) -> Any:
    n, channels, height, width = x.shape
    sy, sx = stride
    c = tvm.te.reduce_axis((0, channels), _REDUCTIONS[0])
    phases = tvm.te.compute(
        (n, out, height * sy, sx, width),
        lambda b, o, y, phase, xx: tvm.te.sum(
            x[b, c, y // sy, xx].astype("float32") * weight[o // tile, c, y % sy, phase, o % tile].astype("float32"),
            axis=c,
        ),
        name=BLOCK,
        attrs={"socsched.tile": [tile, _pixels(int(width), tile), sx]},
    )
    interleaved = tvm.te.compute(
        (n, out, height * sy, width * sx), lambda b, o, y, xx: phases[b, o, y, xx % sx, xx // sx], name="interleaved"
    )
    return _finished(interleaved, x.dtype)


def _finished(total: Any, dtype: Any) -> Any:
    """Return the sum in the precision of the tensors."""
    if str(dtype) == "float32":
        return total
    return tvm.te.compute(total.shape, lambda *i: total[i].astype(str(dtype)), name="rounded")


def schedule(function: Any, most: int) -> Any:
    """Return a function that holds a block named `BLOCK` scheduled for groups of `most` work-items, None for others."""
    scheduled = tvm.s_tir.Schedule(function)
    blocks = {str(scheduled.get(b).name_hint): b for b in scheduled.get_child_blocks(scheduled.get_sblock("root"))}
    if BLOCK not in blocks:
        return None
    return _scheduled(scheduled, blocks, most).mod["main"].with_attr("tirx.is_scheduled", True)


def _scheduled(schedule: Any, blocks: dict[str, Any], most: int) -> Any:
    total = blocks[BLOCK]
    channels, pixels, phases = (int(n) for n in schedule.get(total).annotations["socsched.tile"])
    names = list(blocks)
    later = names[names.index(BLOCK) + 1 :]
    for name in names[: names.index(BLOCK)] + later[:-1]:
        if name != INPUT:
            schedule.compute_inline(blocks[name])
    last = blocks[later[-1]] if later else schedule.reverse_cache_write(total)
    if phases > 1:  # the loops of the result are also split by phase
        schedule.transform_block_layout(last, lambda b, o, y, x: (b, o, y, x % phases, x // phases))
        name = str(schedule.get(last).name_hint)
        schedule = tvm.s_tir.Schedule(tvm.s_tir.transform.StmtSimplify()(schedule.mod))
        total, last = schedule.get_sblock(BLOCK), schedule.get_sblock(name)
        b, o, y, phase, x = schedule.get_loops(last)
        schedule.bind(phase, "blockIdx.z")
    else:
        b, o, y, x = schedule.get_loops(last)
    group, inner = schedule.split(o, [None, channels])
    step, across = schedule.split(x, [None, pixels])
    schedule.reorder(b, group, *([phase] if phases > 1 else []), y, step, inner, across)
    items = schedule.fuse(y, step)
    plane = group if phases > 1 else schedule.fuse(b, group)
    row, item = schedule.split(items, [None, _items(int(schedule.get(items).extent), most)])
    schedule.bind(plane, "blockIdx.y")
    schedule.bind(row, "blockIdx.x")
    schedule.bind(item, "threadIdx.x")
    schedule.compute_at(total, item)
    schedule.set_scope(total, 0, "local")
    depth = len(schedule.get_loops(last)) - 2
    loops = schedule.get_loops(total)[depth:]
    # compute_at omits loops of one iteration.
    reduced = [int(v.dom.extent) for v in schedule.get(total).iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    count = sum(extent > 1 for extent in reduced)
    spatial, reductions = loops[: len(loops) - count], loops[len(loops) - count :]
    if reductions:
        schedule.reorder(*reductions, *spatial)
    unrolled = [*spatial, inner, across]
    if INPUT in blocks:
        unrolled += _keep_input(schedule, total, reductions, reduced[-1], len(spatial))
    for loop in unrolled:
        schedule.unroll(loop)
    if reductions:
        schedule.decompose_reduction(total, reductions[0])
    return schedule


def _keep_input(schedule: Any, total: Any, reductions: list[Any], width: int, inner: int) -> list[Any]:
    """Load a work-item's part of an input row once, into registers; return the loops that have to be unrolled.

    `width` is the kernel's width, `inner` the number of loops inside the reductions.
    """
    source = schedule.get_sblock(INPUT)
    if not reductions:
        schedule.compute_inline(source)
        return []
    columns = 1 if 1 < width <= _SHORT and len(reductions) > 1 else 0  # reductions inside the loaded row
    outer = len(schedule.get_loops(total)) - inner - columns
    schedule.compute_at(source, reductions[-1 - columns])
    schedule.set_scope(source, 0, "local")
    return [*schedule.get_loops(source)[outer:], *reductions[len(reductions) - columns :]]
