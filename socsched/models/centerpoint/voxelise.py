"""Stage `centerpoint.voxelise`: sort the points of one full turn into pillars all around the vehicle.

Autoware feeds the network a point's age where PointPillars has its intensity, and by default the previous sweep as well
(num_past_frames 1 in perception/autoware_lidar_centerpoint/config/centerpoint.param.yaml, autowarefoundation/
autoware.universe at 1c96fe4).  Here a frame is one sweep, so every age is zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.models.centerpoint.network import AUTOWARE, MAX_PILLARS, MAX_POINTS, settle
from socsched.models.host import CompiledStages
from socsched.models.model import Model
from socsched.models.pointpillars import voxelise as pillars
from socsched.models.pointpillars.grid import Grid
from socsched.models.pointpillars.voxelise import Floats, Ints

NAME = "centerpoint.voxelise"


def voxelise(
    points: Floats,
    max_pillars: int = MAX_PILLARS,
    max_points: int = MAX_POINTS,
    grid: Grid = AUTOWARE,
    compiled: CompiledStages | None = None,
) -> tuple[Floats, Ints, Ints]:
    """Return (voxels[P, max_points, 4], counts[P], coords[P, 2]) of points[N, 4] as PointPillars does, ages zero.

    The fourth value of each point, an intensity in scan files, is not used.
    """
    if compiled and (found := compiled("voxelise", [points], max_pillars, max_points, grid, True)) is not None:
        return found  # type: ignore[no-any-return]
    aged = np.array(points, np.float32)
    aged[:, 3] = 0
    return pillars.voxelise(aged, max_pillars, max_points, grid)


def model(params: Mapping[str, Any]) -> Model:
    """Return the stage for `params`: nominal `points` and `pillars`, limits `max_pillars` and `max_points`, `range`."""
    chosen, grid = settle(NAME, params)
    return pillars.stage(NAME, chosen, grid, voxelise)
