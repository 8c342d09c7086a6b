"""Rows and columns that a resize reads, and their shares: the coordinates of TVM's resize2d as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_SLACK = 1e-5
"""Added before rounding down and taken off before rounding up, as by the reference, against errors of fp32."""


def is_known(options: Mapping[str, Any]) -> bool:
    """Return whether `axis_table` has the coordinates and the rounding of a resize2d."""
    return options["coordinates"] in _PLACES and (options["bilinear"] or options["rounding"] in _ROUNDING)


def axis_table(size: int, result: int, options: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the source indices [2, result] of each place along an axis, and the share [result] of the second one."""
    places = np.arange(result, dtype=np.float64)
    source = _PLACES[options["coordinates"]](places, size, result)
    if not options["bilinear"]:
        first = _ROUNDING[options["rounding"]](source)
        second, share = first, np.zeros(result)
    else:
        first = np.floor(source)
        second, share = first + 1, source - first
    indices = np.clip(np.stack([first, second]), 0, size - 1)
    return indices.astype(np.int32), share.astype(np.float32)


_PLACES: dict[str, Any] = {
    # one rounding each, so that places halfway between two pixels are exact
    "half_pixel": lambda x, size, result: (2 * x + 1) * size / (2 * result) - 0.5,
    "align_corners": lambda x, size, result: x * (size - 1) / max(result - 1, 1),
    "asymmetric": lambda x, size, result: x * size / result,
}
_ROUNDING: dict[str, Any] = {
    "round": lambda x: np.trunc(x + np.copysign(0.5, x)),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": lambda x: np.floor(x + _SLACK),
    "ceil": lambda x: np.ceil(x - _SLACK),
}
