"""Stages as OpenCL sources with a launch plan, for mobile GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.compiler.target import Build, Built, Target, TargetSpec

_LIMITS = ("max_threads_per_block", "max_shared_memory_per_block")


def resolve(entry: Mapping[str, Any], engine: str) -> TargetSpec:
    """Return the GPU of an entry."""
    limits = {key: value for key, value in entry.items() if key in _LIMITS}
    return TargetSpec("opencl", {"kind": "opencl", **limits, "host": {"kind": "llvm"}}, False)


def build(asked: Build) -> Built:
    """Write kernels, launch plan and weights (`opencl.lower`); this imports TVM."""
    from socsched.compiler.targets.opencl.lower import build_opencl

    return Built(*build_opencl(asked.folder, asked.network, asked.weights, asked.spec, asked.precision))


TARGET = Target(resolve, build, lambda entry: ("fp32", "fp16"))
