"""Tiles found by tools/tune_gpu.py: architecture -> shape -> the fields of `shapes.Tile`.  Written by that tool."""

from __future__ import annotations

TABLE: dict[str, dict[str, tuple[int, ...]]] = {
    "sm_90": {},
}
