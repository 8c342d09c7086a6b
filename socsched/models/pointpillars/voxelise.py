"""Stage `pointpillars.voxelise`: sort the points of a scan into vertical pillars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.graph.operators import TensorType
from socsched.models.host import CompiledStages, aligned_zeros
from socsched.models.model import Model, Port, host_function
from socsched.models.pointpillars.grid import KITTI, Grid, check_params, grid_of

NAME = "pointpillars.voxelise"
PARAMS: dict[str, Any] = {"points": 20000, "pillars": 6000, "max_pillars": 16000, "max_points": 32, "range": None}
OPS_PER_POINT = 10
"""Two operations (subtract, divide) for each of three coordinates, one for the key's multiply-add counted as two, and
two for slot counting; comparisons and conversions are hidden by loads."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


def voxelise(
    points: Floats,
    max_pillars: int = 16000,
    max_points: int = 32,
    grid: Grid = KITTI,
    compiled: CompiledStages | None = None,
) -> tuple[Floats, Ints, Ints]:
    """Return (voxels[P, max_points, 4], counts[P], coords[P, 2] as x, y cell) of points[N, 4] (m, intensity).

    Pillars are in the order in which the scan first reaches them and hold their points in scan order; unused slots are
    zero.  Points beyond `max_points` of a pillar and pillars beyond `max_pillars` are dropped; P may be 0.  Cells are
    found in float32, as deployed networks do it: in float64 a few points per scan fall into a neighbouring cell.
    """
    if compiled is not None and (found := compiled("voxelise", [points], max_pillars, max_points, grid)) is not None:
        return found  # type: ignore[no-any-return]
    inside, cell = _cells(points, grid)
    pillar, first = _number(cell, grid)
    count = min(len(first), max_pillars)
    if len(first) > max_pillars:
        kept = pillar < max_pillars
        inside, pillar, first = inside[kept], pillar[kept], first[:max_pillars]
    voxels = aligned_zeros((count, max_points, 4), np.float32)
    counts = aligned_zeros((count,), np.int32)
    coords = aligned_zeros((count, 2), np.int32)
    occupancy = np.bincount(pillar, minlength=count)
    # uint16 keys make numpy's stable sort a radix sort, several times faster here than on wider integers
    order = np.argsort(pillar.astype(np.uint16) if count <= 65536 else pillar, kind="stable")
    slot = np.arange(len(order)) - np.repeat(np.cumsum(occupancy) - occupancy, occupancy)
    fits = slot < max_points
    order, slot = order[fits], slot[fits]
    # a point is as wide as one complex128, and scalars are moved several times faster than rows of four
    whole = np.ascontiguousarray(points, np.float32).view(np.complex128)[:, 0]
    voxels.view(np.complex128).reshape(-1)[pillar[order] * max_points + slot] = whole[inside[order]]
    counts[:] = np.minimum(occupancy, max_points)
    coords[:, 1], coords[:, 0] = np.divmod(cell[first], grid.cells[0])
    return voxels, counts, coords  # type: ignore[return-value]


def _cells(points: Floats, grid: Grid) -> tuple[npt.NDArray[np.intp], Ints]:
    """Return the indices of the points in range and their cell numbers (y-major); NaN compares false and is dropped."""
    low, size = np.asarray(grid.low, np.float32), np.asarray(grid.pillar, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = ((points[:, axis] - low[axis]) / size[axis] for axis in range(3))
        (x, x_in), (y, y_in), (_, z_in) = (
            (s, (s >= 0) & (s < limit)) for s, limit in zip(scaled, grid.cells, strict=True)
        )
    inside = np.flatnonzero(x_in & y_in & z_in)
    # truncation is floor here: negative values are out of range
    return inside, y[inside].astype(np.int32) * grid.cells[0] + x[inside].astype(np.int32)


def _number(cell: Ints, grid: Grid) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return each point's pillar number, in order of first appearance, and each pillar's first point.

    A table over the grid replaces sorting the cell numbers: written back to front, it keeps the first point of each
    cell.  Only the entries just written are read, so the table needs no clearing.
    """
    index = np.arange(len(cell), dtype=np.int32)
    table = np.empty(grid.cells[0] * grid.cells[1], np.int32)
    table[cell[::-1]] = index[::-1]
    leader = table[cell]
    first = np.flatnonzero(leader == index)
    table[cell[first]] = np.arange(len(first), dtype=np.int32)
    return table[cell].astype(np.intp), first


def model(params: Mapping[str, Any]) -> Model:
    """Return the stage for `params`: nominal `points` and `pillars`, limits `max_pillars` and `max_points`, `range`."""
    chosen = check_params(NAME, params, PARAMS)
    return stage(NAME, chosen, grid_of(NAME, chosen["range"]), voxelise)


def stage(name: str, chosen: Mapping[str, Any], grid: Grid, function: Callable[..., tuple[Any, ...]]) -> Model:
    """Return the voxelising stage `name` on `grid`; `function` takes the inputs of `voxelise`, `known` all its
    params."""
    slots, pillars, points = chosen["max_points"], min(chosen["pillars"], chosen["max_pillars"]), chosen["points"]
    scan = Port("points", TensorType((points, 4), "fp32"))
    outputs = (
        Port("voxels", TensorType((pillars, slots, 4), "fp32")),
        Port("counts", TensorType((pillars,), "int32")),
        Port("coords", TensorType((pillars, 2), "int32")),
    )
    bound = partial(function, max_pillars=chosen["max_pillars"], max_points=slots, grid=grid)
    work = {"points": points, "pillars": pillars}
    model = Model(name, (scan,), outputs, device="voxelise")
    return host_function(model, "voxelise", OPS_PER_POINT * points, points * 4 * 4, work, bound)
