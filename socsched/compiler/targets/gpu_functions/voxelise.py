"""Voxelisation on a GPU: device implementation "voxelise"."""

from __future__ import annotations

import numpy as np

from socsched.compiler.targets.gpu_functions.program import COUNT, Program
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.graph.operators import TensorType

_FILL = 32
"""Items that fill a pillar."""


def build(asked: Request) -> Program:
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
