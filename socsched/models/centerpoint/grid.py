"""The grid of CenterPoint's stages, and their common params."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.models.pointpillars.grid import Grid, check_params, grid_of

AUTOWARE = Grid((-76.8, -76.8, -4.0), (76.8, 76.8, 6.0), (0.32, 0.32, 10.0))
"""480 x 480 pillars all around the vehicle (autowarefoundation/autoware.universe at b81ec45,
perception/lidar_centerpoint/config/centerpoint_ml_package.param.yaml)."""
MAX_PILLARS, MAX_POINTS = 40000, 32
"""Limits Autoware deploys: max_voxel_size of the same file; points per pillar of
perception/autoware_lidar_centerpoint/include/.../centerpoint_config.hpp at 02ee90f."""
MULTIPLE = 4
"""The backbone halves the grid twice."""

PARAMS: dict[str, Any] = {
    "points": 128000,
    "pillars": 18600,
    "max_pillars": MAX_PILLARS,
    "max_points": MAX_POINTS,
    "range": None,
}
"""Params common to all stages.  Nominal sizes are those of the fullest of 32 full KITTI turns: 128 thousand points, and
18552 pillars of 0.16 m ahead of the vehicle; full turns of the synthetic street fill about as many pillars of this grid
as of that one (9.5 to 13.0 against 8.8 to 11.6 thousand)."""


def settle(stage: str, params: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Grid]:
    """Return the params of a stage with defaults filled in (`own` are specific to it), and its grid.

    Raises UsageError for an unknown or unusable param.
    """
    known = check_params(stage, params, {**PARAMS, **(own or {})})
    return known, grid_of(stage, known["range"], AUTOWARE, MULTIPLE)
