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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import CPU, evaluate
from socsched.compiler.store import library, read_json
from socsched.errors import UsageError
from socsched.executor.gpu_programs import PROGRAM

_ALIGNMENT = 64
_PLACES = {"input": "inputs", "constant": "constants", "output": "results"}


def stored_cpu_program(artifact: Artifact, room: int) -> Path:
    """Return the program of an artefact, from the cache if it is there; `room`: the most rows of inputs that vary.

    Raises UsageError for an artefact without a launch list.
    """
    text = json.dumps(cpu_program(artifact, room), indent=1) + "\n"
    key = hashlib.sha256(text.encode()).hexdigest()[:32]
    return library("programs", key, PROGRAM, lambda folder: _write(folder / PROGRAM, text))


def cpu_program(artifact: Artifact, room: int) -> dict[str, Any]:
    """Return the content of the program of an artefact; see `stored_cpu_program`."""
    if CPU.file not in artifact.files:
        why = next((note for note in artifact.notes if "TVM's runtime only" in note), "it has no launch list")
        raise UsageError(f"{artifact.stage}: {why}")
    plan = read_json(artifact.folder / CPU.file)
    if plan["symbols"] and room <= 0:
        raise UsageError(f"{artifact.stage}: the largest number of rows of its inputs is not known")
    most = dict.fromkeys(plan["symbols"], room)
    tensors, sizes = _placed(plan, most)
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


def _placed(plan: Mapping[str, Any], most: Mapping[str, int]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the tensors of a launch list in their places, and the sizes of its own memory and of the results."""
    buffers, sizes = plan["buffers"], {"memory": 0, "results": 0}
    storages: dict[int, int] = {}
    for buffer in buffers:
        if "storage" in buffer:
            storages[buffer["storage"]] = max(evaluate(buffer["bytes"], most), storages.get(buffer["storage"], 0))

    def take(space: str, size: int) -> int:
        offset = sizes[space]
        sizes[space] = -(-(offset + size) // _ALIGNMENT) * _ALIGNMENT
        return offset

    shared = {storage: take("memory", size) for storage, size in storages.items()}
    places: dict[int, dict[str, Any]] = {}
    for index, buffer in enumerate(buffers):
        space, size = _PLACES.get(buffer["role"], "memory"), evaluate(buffer["bytes"], most)
        if space == "inputs":
            places[index] = {"in": space, "input": plan["inputs"].index(index), "offset": 0}
        elif space == "constants":
            places[index] = {"in": space, "offset": buffer["offset"]}
        elif "within" not in buffer:
            own = shared[buffer["storage"]] if "storage" in buffer else take(space, size)
            places[index] = {"in": space, "offset": own}
    for index, buffer in enumerate(buffers):
        if "within" in buffer:
            whole = places[buffer["within"]]
            places[index] = {**whole, "offset": whole["offset"] + buffer["offset"]}
    made = [{**places[i], "dtype": b["dtype"], "shape": list(b["shape"])} for i, b in enumerate(buffers)]
    return made, sizes


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
