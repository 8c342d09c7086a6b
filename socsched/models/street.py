"""Ten scans of a drive down a synthetic street, shipped for runs without recorded data, and the true boxes in them.

A front camera's field of view, a scan every 100 ms, made by `tools.train.streets` from seed 0
(`python -m tools.generate.scenes --shipped`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.models.host import aligned_zeros

SCANS = 10
FILE = Path(__file__).with_name("street.npz")

Floats = npt.NDArray[np.float32]


@cache
def _stored() -> dict[str, npt.NDArray[Any]]:
    with np.load(FILE, allow_pickle=False) as arrays:
        return dict(arrays)


def scan(number: int, all_round: bool = False) -> Floats:
    """Return points [N, 4] of scan `number` modulo SCANS: x, y, z, intensity, aligned to 64 bytes.

    With `all_round` the view ahead is repeated to the left, behind and to the right: as many points as a full turn.
    """
    planes = _stored()[f"points{number % SCANS}"]  # byte planes of columns, which compress better than numbers
    ahead = np.ascontiguousarray(planes.transpose(0, 2, 1)).view(np.float32)[:, :, 0].T
    turns = 4 if all_round else 1
    points = aligned_zeros((turns * len(ahead), 4), np.float32)
    for turn, part in enumerate(np.split(points, turns)):
        part[:] = ahead
        x, y = ahead[:, 0], ahead[:, 1]
        part[:, 0], part[:, 1] = ((x, y), (-y, x), (-x, -y), (y, -x))[turn]
    return points  # type: ignore[return-value]


def boxes(number: int) -> Floats:
    """Return the boxes [n, 7] of the road users that the LiDAR sees in scan `number` modulo SCANS."""
    return _stored()[f"boxes{number % SCANS}"]
