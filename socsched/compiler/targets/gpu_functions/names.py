"""The host functions that have GPU kernels."""

from __future__ import annotations

FUNCTIONS = ("voxelise", "anchor-decode", "center-decode", "camera-preprocess", "camera-decode")
"""Names as in `Model.device`; apart from their implementations (`registry`), which planning need not import."""
