"""Names and alignment of a launch plan's files (`launch_plan`)."""

from __future__ import annotations

FORMAT = "socsched-opencl-1"
ALIGNMENT = 128
"""Alignment of constants in the file of weights, in bytes."""
PLAN, WEIGHTS = "launch.json", "weights.bin"
