"""Programs of CPU networks for the native executor: launch lists with the places of all tensors resolved.

A program (program.json) calls kernels in order on tensors in four kinds of memory: its inputs, its own (`memory`), its
constants, and the results of one frame.

    code       the library or object of its kernels;  weights: the file of its `constants` bytes
    memory, constants, results   sizes in bytes, for the most rows
    symbols    [{input, axis, most}]: sizes that vary, each the extent of an axis of an input
    inputs     [{dtype, shape}] and outputs [{offset, dtype, shape}] among the results
    tensors    [{in, offset | input, dtype, shape}]: a size -1-n is symbol n
    launches   [{kernel, arguments: [number of a tensor]}]
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import CPU
from socsched.compiler.store import library, read_json
from socsched.errors import UsageError
from socsched.executor.gpu_programs import PROGRAM, Place, placed
from socsched.files import write_file

_ALIGNMENT = 64


def stored_cpu_program(artifact: Artifact, room: int) -> Path:
    """Return the program of an artefact, from the cache if it is there; `room`: the most rows of inputs that vary.

    Raises UsageError for an artefact without a launch list.
    """
    text = json.dumps(cpu_program(artifact, room), indent=1) + "\n"
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return library("programs", key, PROGRAM, lambda folder: write_file(folder / PROGRAM, text))


def cpu_program(artifact: Artifact, room: int) -> dict[str, Any]:
    """Return the content of the program of an artefact; see `stored_cpu_program`."""
    if CPU.file not in artifact.files:
        why = next((note for note in artifact.notes if "TVM's runtime only" in note), "it has no launch list")
        raise UsageError(f"{artifact.stage}: {why}")
    plan = read_json(artifact.folder / CPU.file)
    if plan["symbols"] and room <= 0:
        raise UsageError(f"{artifact.stage}: the largest number of rows of its inputs is not known")
    most = dict.fromkeys(plan["symbols"], room)
    sizes = {"memory": 0, "results": 0}

    def take(space: str, size: int) -> Place:
        offset = sizes[space]
        sizes[space] = -(-(offset + size) // _ALIGNMENT) * _ALIGNMENT
        return {"in": space, "offset": offset}

    given = {index: {"in": "inputs", "input": port, "offset": 0} for port, index in enumerate(plan["inputs"])}
    places = placed(plan, most, given, take)
    tensors = [{**places[i], "dtype": b["dtype"], "shape": list(b["shape"])} for i, b in enumerate(plan["buffers"])]
    numbers = {symbol: -1 - number for number, symbol in enumerate(plan["symbols"])}
    for tensor in tensors:
        tensor["shape"] = [numbers.get(size, size) for size in tensor["shape"]]
    return {
        "format": "socsched-calls",
        "version": 1,
        "code": str(artifact.path.resolve()),
        "weights": str((artifact.folder / plan["weights"]).resolve()),
        "constants": (artifact.folder / CPU.constants).stat().st_size,
        "memory": sizes["memory"],
        "results": sizes["results"],
        "symbols": [{**where, "input": where["input"], "most": room} for where in plan["symbols"].values()],
        "inputs": [tensors[index] for index in plan["inputs"]],
        "outputs": [tensors[index] for index in plan["outputs"]],
        "tensors": tensors,
        "launches": [
            {"kernel": launch["kernel"], "arguments": [argument["buffer"] for argument in launch["arguments"]]}
            for launch in plan["launches"]
        ],
    }
