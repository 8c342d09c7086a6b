"""Batch norm of the projects that weights are imported from, folded into the layer before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

EPS = 1e-3
"""Epsilon of every batch norm in these projects."""


def fold(
    weight: npt.NDArray[Any], bias: npt.NDArray[Any], norm: tuple[npt.NDArray[Any], ...], transposed: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return weight and bias with a following batch norm (gain, shift, mean, variance) folded in."""
    gain, shift, mean, var = norm
    scale = gain / np.sqrt(var + EPS)
    along = (1, -1) if transposed else (-1, 1)
    return weight * scale.reshape(along + (1,) * (weight.ndim - 2)), (bias - mean) * scale + shift
