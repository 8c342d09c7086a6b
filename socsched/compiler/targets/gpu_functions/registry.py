"""Device implementations by the name in `Model.device`, and their artefacts' common files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from socsched.compiler.store import write_json
from socsched.compiler.targets.gpu_functions import (
    anchor_decode,
    camera_decode,
    camera_preprocess,
    center_decode,
    voxelise,
)
from socsched.compiler.targets.gpu_functions.program import Program
from socsched.compiler.targets.gpu_functions.request import Request
from socsched.compiler.targets.opencl.plan_format import PLAN, WEIGHTS
from socsched.errors import CompileError

IMPLEMENTATIONS: dict[str, Callable[[Request], Program]] = {
    "voxelise": voxelise.build,
    "anchor-decode": anchor_decode.build,
    "center-decode": center_decode.build,
    "camera-preprocess": camera_preprocess.build,
    "camera-decode": camera_decode.build,
}


def program_of(asked: Request) -> Program:
    """Return the program of a model's function; CompileError if no device implementation is known."""
    if asked.model.device not in IMPLEMENTATIONS:
        raise CompileError(
            f"{asked.model.name} has no implementation for GPUs", "place the stage on a processor (engine kind cpu)"
        )
    if asked.precision not in ("fp32", "fp16"):
        raise CompileError(f"{asked.model.name}: no kernels in {asked.precision}", "plan it in fp16 or fp32")
    return IMPLEMENTATIONS[asked.model.device](asked)


def write_program(program: Program, folder: Path, source: str) -> None:
    """Write a program's launch plan and tables; `source` is the name of the file of its kernels."""
    write_json(folder / PLAN, {**program.plan(), "source": source, "weights": WEIGHTS})
    (folder / WEIGHTS).write_bytes(bytes(program.weights))
