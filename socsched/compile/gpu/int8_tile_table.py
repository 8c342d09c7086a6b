"""Tiles (`shapes.Tile`) of int8 products by GPU and shape, channels in pairs of bytes; by tools/tune_gpu.py --int8."""

from __future__ import annotations

INT8_TABLE: dict[str, dict[str, tuple[int, ...]]] = {}
