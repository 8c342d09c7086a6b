"""The name of the launch plan's format, and the alignment of constants in its weights' file (`launch_plan`)."""

from __future__ import annotations

FORMAT = "socsched-opencl-1"
ALIGNMENT = 128
