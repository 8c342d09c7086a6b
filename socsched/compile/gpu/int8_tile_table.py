"""Tiles (`shapes.Tile`) of int8 products by GPU and shape, channels in pairs; by tools/tune_int8.py."""

from __future__ import annotations

INT8_TABLE: dict[str, dict[str, tuple[int, ...]]] = {}
