"""What goes into networks, on GPUs: voxels of a scan, and camera images straight into a first tensor."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from socsched.compiler.targets.gpu_functions.program import COUNT, FunctionRequest, Program, map_defines
from socsched.graph.operators import TensorType
from socsched.models import camera_image as image

_FILL = 32
"""Items that fill a pillar."""


def voxelise(asked: FunctionRequest) -> Program:
    """Return the program of a voxelising model: points [N, 4] fp32 in; voxels, counts and coords of all pillars out.

    Outputs have room for `max_pillars` rows; rows past the last pillar have count 0, position -1 and zeros.  Points
    that are NaN are dropped, so a scan may be padded with them.
    """
    bound, precision = asked.keywords(), asked.precision
    grid, slots = bound["grid"], bound["max_points"]
    nx, ny, nz = grid.cells
    rows = min(bound["max_pillars"], nx * ny)
    half = precision == "fp16"
    axes = zip("XYZ", grid.low, grid.pillar, strict=True)
    defines: dict[str, object] = {"NX": nx, "NY": ny, "NZ": nz, "CELLS": nx * ny, "MAX_PILLARS": rows, "SLOTS": slots}
    for axis, low, size in axes:
        defines |= {f"LOW_{axis}": np.float32(low), f"SIZE_{axis}": np.float32(size)}
    defines |= {
        "FILL": _FILL,
        "VOXEL": "half_t" if half else "float",
        "PUT_VOXEL(array, index, value)": "STORE_HALF(array, index, value)" if half else "((array)[index] = (value))",
        "FOURTH(value)": "0" if asked.model.name.startswith("centerpoint") else "(value)",
    }
    program = Program(asked.model.name, ("voxelise.c",), defines, asked.items)
    points = program.input("points", TensorType((-1, 4), "fp32"))
    voxels = program.output("voxels", TensorType((rows, slots, 4), precision))
    counts = program.output("counts", TensorType((rows,), "int32"))
    coords = program.output("coords", TensorType((rows, 2), "int32"))
    cells, tiles = nx * ny, f"((rows + {asked.items - 1}) // {asked.items})"
    count, pillars = program.scratch(COUNT, "int32", 1), program.scratch("pillars", "int32", 1)
    first, occupancy, number, start = (
        program.scratch(name, "int32", cells) for name in ("first", "occupancy", "number", "start")
    )
    cell, arrival, listed = (program.scratch(name, "int32", "rows") for name in ("cell", "arrival", "list"))
    sums, place = program.scratch("tiles", "int32", 2, tiles), program.scratch("pillar_cell", "int32", rows)
    program.launch("set_count", 1, count, grouped=True)
    program.launch("vox_clear", min(512, -(-cells // asked.items)), first, occupancy, pillars, grouped=True)
    program.launch("vox_cells", "rows", points, count, first, occupancy, cell, arrival)
    program.launch("vox_tiles", "rows", count, first, occupancy, cell, sums)
    program.launch("vox_number", "rows", count, first, occupancy, cell, sums, number, start, place, pillars)
    program.launch("vox_list", "rows", count, cell, arrival, number, start, listed)
    fill = (points, count, occupancy, start, listed, place, pillars, voxels, counts, coords)
    program.launch("vox_fill", rows, *fill, items=_FILL, grouped=True)
    return program


_FORMATS = ("rgb", "bgr", "nv12")
"""The kernel's numbers of formats."""


def preprocess(asked: FunctionRequest) -> Program:
    """Return the program of a preprocessing model: a uint8 image in, the network's input out.

    Resizing, colour conversion, normalisation, layout and data type are one kernel.  A model with a layout or precision
    of its own keeps it; others give the engine's.
    """
    target: image.Target = asked.keywords()["target"]
    source = asked.model.inputs[0].type
    height, width = _size(source, target.format)
    top, left, inner_height, inner_width = target.rectangle(height, width)
    output, lying = _output(asked, target)
    tables = [image.taps(height, inner_height), image.taps(width, inner_width)]
    defines: dict[str, object] = {
        **map_defines(lying),
        "FORMAT": _FORMATS.index(target.format),
        "HEIGHT": height,
        "WIDTH": width,
        "INPUT_HEIGHT": target.height,
        "INPUT_WIDTH": target.width,
        "TOP": top,
        "LEFT": left,
        "INNER_HEIGHT": inner_height,
        "INNER_WIDTH": inner_width,
        "PADDING": _list(image.PADDING),
        "GAIN": _list(image.GAIN),
        "BIAS": _list(image.BIAS),
        **{name: getattr(image, name) for name in ("LUMA", "RED_V", "BLUE_U", "GREEN_U", "GREEN_V")},
    }
    program = Program(asked.model.name, ("camera_preprocess.c",), defines, asked.items)
    given = program.input(asked.model.inputs[0].name, source)
    taps = np.concatenate([np.stack(table[:2], 1) for table in tables])
    tap_table = program.constant("taps", taps.astype(np.int32))
    weight_table = program.constant("weights", np.concatenate([table[2] for table in tables]))
    made = program.output(asked.model.outputs[0].name, output)
    program.launch("camera_input", target.height * target.width, given, tap_table, weight_table, made)
    return program


def _size(source: TensorType, form: str) -> tuple[int, int]:
    """Return height and width of an image of a format (`camera_image.FORMATS`)."""
    shape = source.shape
    if form == "nv12":
        return shape[0] // 3 * 2, shape[1]
    return (shape[2], shape[3]) if len(shape) == 4 else (shape[0], shape[1])


def _output(asked: FunctionRequest, target: image.Target) -> tuple[TensorType, TensorType]:
    """Return the output's type, and the image as which the kernel writes it."""
    declared = asked.model.outputs[0].type
    if target.layout == "NHWC":
        return declared, TensorType(declared.shape, declared.dtype, "NHWC")
    lying = asked.image(declared)
    return lying, lying


def _list(values: Iterable[np.floating]) -> str:
    """Return an initialiser of floats."""
    return ", ".join(f"{float(value).hex()}f" for value in values)
