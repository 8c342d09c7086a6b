"""Programs of GPUs and CPUs for the native executor: artefacts' launch lists with all sizes and places resolved.

A program of a GPU (program.json) runs its kernels in order over three pieces of memory: its own (`memory`), its
constants, and the results of one frame.  That of a CPU is described below.

    arch       architecture of its code, "sm_87";  toolkit: the version of CUDA that made it, 13000, if it is known
    code       files of cubins;  weights: the file of its `constants` bytes
    sources    [{file, options}] of the code, for other toolkits; not in bundles
    memory, constants, results   sizes in bytes
    inputs     [{in, offset, bytes, row_bytes, fill, count, filled}]: `row_bytes` of an input whose rows vary, else 0;
               unused rows are filled unless `filled` is false; `count` is the place that takes their number, if a
               kernel reads it
    outputs    [{offset, bytes}] among the results
    launches   [{kernel, code, grid, block, shared, arguments: [{in, offset} | {value} | {map}]}]

Several artefacts in a row become one program, so that a frame is one graph.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.compiler.launch_list import CPU, CUDA, OPENCL, evaluate
from socsched.compiler.layouts import NUMPY_DTYPES, physical_shape
from socsched.compiler.store import digest, library, read_json
from socsched.compiler.targets.cuda import convert
from socsched.compiler.targets.cuda.toolkits import SOURCE, Toolkit
from socsched.compiler.targets.gpu_functions.code import CUDA_OPTIONS
from socsched.compiler.targets.gpu_functions.program import is_function
from socsched.errors import UsageError
from socsched.files import write_file
from socsched.graph.operators import TensorType

PROGRAM, CONSTANTS, CODE, FORMAT = "program.json", "constants.bin", "code.cubin", "socsched-launches"
_ALIGNMENT = 256
_COUNT, _SET_COUNT = "count", "set_count"

Place = dict[str, Any]


def lacks_program(artifact: Artifact) -> str:
    """Return why an artefact cannot run through the driver alone, empty if it can."""
    if is_function(artifact) or artifact.target == "opencl" or CUDA.file in artifact.files:
        return ""
    return next((note for note in artifact.notes if "TVM's runtime only" in note), "it has no launch list")


def stored_program(
    artifacts: Sequence[Artifact], arch: str, room: int = 0, arriving: Mapping[str, TensorType] | None = None
) -> Path:
    """Return the program of artefacts in a row, from the cache if it is there.

    An input of an artefact is the output of that name of an earlier one, or else an input of the program; outputs are
    those of the last artefact.  `room`: the most rows of inputs whose number of rows varies.  `arriving`: the forms of
    inputs that come in others than the artefacts take, and are converted first.  Raises UsageError for artefacts that
    do not fit together or have no launch list, MachineError for conversions without a kernel.
    """
    return store(build_program(artifacts, arch, room, arriving))


def store(made: Program) -> Path:
    """Return a program as a file, from the cache if it is there."""
    text = json.dumps(made.document, indent=1) + "\n"
    key = hashlib.sha256(text.encode() + made.constants).hexdigest()[:32]

    def write(folder: Path) -> None:
        (folder / PROGRAM).write_text(text, encoding="utf-8")
        (folder / CONSTANTS).write_bytes(made.constants)

    return library("programs", key, PROGRAM, write)


def copy_sources(program: Path, folder: Path, name: str) -> list[str]:
    """Write a program of OpenCL with its sources into `folder`/`name`; return its path relative to `folder`."""
    document = read_json(program)
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program.parent / document["weights"], target / CONSTANTS)
    code = []
    for number, file in enumerate(document["code"]):
        code.append(f"kernels-{number}.cl")
        shutil.copyfile(file, target / code[-1])
    text = json.dumps({**document, "code": code, "weights": CONSTANTS, "sources": []}, indent=1) + "\n"
    (target / PROGRAM).write_text(text, encoding="utf-8")
    return [f"{name}/{PROGRAM}"]


def copy_programs(program: Path, folder: Path, name: str, makers: Sequence[Toolkit]) -> list[str]:
    """Write a program into `folder`/`name`, its code made by each toolkit; return the paths relative to `folder`.

    A toolkit that no longer builds for the architecture, or not yet, is left out.  UsageError if that leaves none.
    """
    document = read_json(program)
    target = folder / name
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program.parent / document["weights"], target / CONSTANTS)
    sources = document.pop("sources")
    written = []
    for toolkit in makers:
        arch = toolkit.architecture(document["arch"])
        if not arch:
            continue
        title = "cuda-" + ".".join(map(str, toolkit.version))
        code = [f"{title}-{number}.cubin" for number in range(len(sources))]
        for source, file in zip(sources, code, strict=True):
            text = Path(source["file"]).read_text(encoding="utf-8")
            shutil.copyfile(_stored_code(toolkit, text, arch, source["options"]), target / file)
        own = {"arch": arch, "toolkit": 1000 * toolkit.version[0] + 10 * toolkit.version[1]}
        text = json.dumps({**document, **own, "code": code, "weights": CONSTANTS}, indent=1) + "\n"
        (target / f"{title}.json").write_text(text, encoding="utf-8")
        written.append(f"{name}/{title}.json")
    if not written:
        raise UsageError(f"{name}: no toolkit here builds for {document['arch']}", "install CUDA 12's packages")
    return written


def _stored_code(toolkit: Toolkit, source: str, arch: str, options: Sequence[str]) -> Path:
    """Return machine code that a toolkit makes of a source, from the cache if it is there."""

    def write(folder: Path) -> None:
        (folder / CODE).write_bytes(toolkit.cubin(source, arch, options))

    return library("cubins", digest(str(toolkit), toolkit.program, source, arch, [*options]), CODE, write)


@dataclass(frozen=True, slots=True)
class Program:
    """A program's document and constants, and the types of its inputs and outputs with the room for rows."""

    document: Mapping[str, Any]
    constants: bytes
    input_names: tuple[str, ...]
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]


def build_program(
    artifacts: Sequence[Artifact], arch: str, room: int = 0, arriving: Mapping[str, TensorType] | None = None
) -> Program:
    """Return the program of artefacts in a row; see `stored_program`."""
    builder = _Builder(room, arriving or {}, len(artifacts))
    for number, artifact in enumerate(artifacts):
        if lacking := lacks_program(artifact):
            raise UsageError(f"{artifact.stage}: {lacking}")
        builder.add(artifact, last=number == len(artifacts) - 1)
    sources = [
        {"file": str((one.folder / SOURCE).resolve()), "options": list(CUDA_OPTIONS if is_function(one) else ())}
        for one in artifacts
    ]
    return builder.program(arch, [_code(artifact).resolve() for artifact in artifacts], sources, bool(arriving))


def build_conversions(tensors: Mapping[int, tuple[TensorType, TensorType, int]], ports: int, arch: str) -> Program:
    """Return the program that converts tensors, by output port: the form that comes, the one wanted, and the most rows.

    Rows are 0 where they do not vary; other `ports` have no bytes.  MachineError where no kernel converts.
    """
    builder = _Builder(0, {}, 0)
    builder.outputs = [{"offset": 0, "bytes": 0} for _ in range(ports)]
    for port, (given, wanted, rows) in tensors.items():
        size, target = _bytes(given), builder.result(_bytes(wanted))
        source = builder.own(size)
        builder.inputs.append({**source, "bytes": size, "row_bytes": size // rows if rows else 0, "fill": 0})
        builder.launches += convert.conversion(given, wanted, source["offset"], target, 0)
        builder.outputs[port] = {"offset": target["offset"], "bytes": _bytes(wanted)}
    return builder.program(arch, [], [], converts=True)


def _code(artifact: Artifact) -> Path:
    """Return the file of an artefact's kernels: a cubin, or of OpenCL the source."""
    if artifact.target != "opencl":
        return artifact.path
    return next(file for name in artifact.files if (file := artifact.folder / name).suffix == ".cl")


def placed(
    plan: Mapping[str, Any],
    sizes: Mapping[str, int],
    given: Mapping[int, Place],
    take: Callable[[str, int], Place],
    results: str = "results",
    constants: int = 0,
) -> dict[int, Place]:
    """Return the place of every buffer of a launch list; `sizes` are the values of its symbols.

    `given`: the places of inputs.  `take` returns the next place of a size in a space; outputs go to `results`.
    `constants`: where its constants begin among those of the program.
    """
    buffers, places = plan["buffers"], dict(given)
    storages: dict[int, int] = {}
    for buffer in buffers:
        if "storage" in buffer:
            storages[buffer["storage"]] = max(evaluate(buffer["bytes"], sizes), storages.get(buffer["storage"], 0))
    shared = {storage: take("memory", size) for storage, size in storages.items()}
    wholes = {buffers[index].get("within", index) for index in plan["outputs"]}
    for index, buffer in enumerate(buffers):
        if buffer["role"] == "constant":
            places[index] = {"in": "constants", "offset": constants + buffer["offset"]}
        elif index in wholes:
            places[index] = take(results, evaluate(buffer["bytes"], sizes))
        elif "storage" in buffer:
            places[index] = shared[buffer["storage"]]
        elif buffer["role"] not in ("input", "part"):
            places[index] = take("memory", evaluate(buffer["bytes"], sizes))
    for index, buffer in enumerate(buffers):
        if buffer["role"] == "part":
            whole = places[buffer["within"]]
            places[index] = {**whole, "offset": whole["offset"] + buffer["offset"]}
    return places


class _Builder:
    """A program as far as it is built."""

    def __init__(self, room: int, arriving: Mapping[str, TensorType], converter: int) -> None:
        self.room, self.arriving, self.converter = room, arriving, converter
        self.memory = self.results = 0
        self.constants = bytearray()
        self.inputs: list[dict[str, Any]] = []
        self.outputs: list[dict[str, int]] = []
        self.launches: list[dict[str, Any]] = []
        self.input_types: dict[str, TensorType] = {}
        self.output_types: tuple[TensorType, ...] = ()
        self.values: dict[str, tuple[Place, TensorType]] = {}
        self.modules = 0

    def add(self, artifact: Artifact, last: bool) -> None:
        """Append the launches of an artefact."""
        opencl = artifact.target == "opencl"
        plan = read_json(artifact.folder / (OPENCL.file if opencl or is_function(artifact) else CUDA.file))
        given = [self._input(name, kind) for name, kind in zip(artifact.input_names, artifact.inputs, strict=True)]
        sizes = {
            name: physical_shape(given[where["input"]][1])[where["axis"]] for name, where in plan["symbols"].items()
        }
        own = {index: place for index, (place, _) in zip(plan["inputs"], given, strict=True)}
        base = self._constant((artifact.folder / plan["weights"]).read_bytes())
        places = placed(plan, sizes, own, self._take, "results" if last else "memory", base)
        counted = self._count(plan, given, places)
        for launch in plan["launches"]:
            if not (counted and launch["kernel"] == _SET_COUNT):
                self._launch(launch, places, sizes, opencl)
        rows = next(iter(sizes.values()), 0)
        outputs = tuple(replace(t, shape=_filled(t.shape, rows)) for t in artifact.outputs)
        for name, kind, index in zip(artifact.output_names, outputs, plan["outputs"], strict=True):
            self.values[name] = places[index], kind
            if last:
                self.outputs.append({"offset": places[index]["offset"], "bytes": _bytes(kind)})
        self.output_types = outputs
        self.modules += 1

    def _input(self, name: str, kind: TensorType) -> tuple[Place, TensorType]:
        """Return the place of an input and its type, with the room for rows that vary."""
        if name in self.values:
            place, found = self.values[name]
            for entry in self.inputs:
                if entry["offset"] == place["offset"] and place["in"] == "memory":
                    entry["filled"] = True
            images = len(kind.shape) == 4
            if found.dtype != kind.dtype or (images and (found.layout or "NCHW") != (kind.layout or "NCHW")):
                raise UsageError(f"{name!r} is {found}, but the next stage takes {kind}", "plan them in one data type")
            return place, found
        varies = bool(kind.shape) and kind.shape[0] < 0
        if varies and self.room <= 0:
            raise UsageError(f"{name!r} has rows that vary: their largest number is needed")
        full = replace(kind, shape=_filled(kind.shape, self.room))
        size = _bytes(full)
        place = self.own(size)
        whole = NUMPY_DTYPES[kind.dtype].kind != "i" or len(kind.shape) == 1
        fill = 0 if whole else 255  # unused rows: a count of zero, a position outside the grid
        entry, kept = place, full
        if name in self.arriving:
            kept = self.arriving[name]
            entry = self.own(_bytes(kept))
            self.launches += convert.conversion(kept, full, entry["offset"], place, self.converter)
        rows = size // self.room if varies else 0
        self.inputs.append({**entry, "bytes": _bytes(kept), "row_bytes": rows, "fill": fill})
        self.input_types[name] = kept
        self.values[name] = place, full
        return place, full

    def _count(self, plan: Mapping[str, Any], given: Sequence[Any], places: Mapping[int, Place]) -> bool:
        """Let the host write the number of rows of a function's input; return whether it does."""
        index = next((i for i, buffer in enumerate(plan["buffers"]) if buffer["name"] == _COUNT), None)
        if index is None:
            return False
        port = next(iter(plan["symbols"].values()))["input"]
        entry = next((entry for entry in self.inputs if entry["offset"] == given[port][0]["offset"]), None)
        if entry is None or given[port][0]["in"] != "memory":
            return False
        entry["count"] = places[index]
        entry.setdefault("filled", False)
        return True

    def _launch(
        self, launch: Mapping[str, Any], places: Mapping[int, Place], sizes: Mapping[str, int], sized: bool
    ) -> None:
        """Append a launch; `sized`: values state their bytes, as OpenCL asks for them."""

        def three(values: Sequence[Any]) -> list[int]:
            return [evaluate(value, sizes) for value in (*values, 1, 1)[:3]]

        grid = three(launch["groups"])
        if 0 in grid:
            return
        arguments: list[dict[str, Any]] = []
        for argument in launch["arguments"]:
            if "buffer" in argument:
                arguments.append(places[argument["buffer"]])
            else:
                bytes_of = {"bytes": NUMPY_DTYPES[argument["dtype"]].itemsize} if sized else {}
                arguments.append({"value": evaluate(argument["value"], sizes), **bytes_of})
        self.launches.append(
            {
                "kernel": launch["kernel"],
                "code": self.modules,
                "grid": grid,
                "block": three(launch["items"]),
                "shared": evaluate(launch.get("shared", 0), sizes),
                "arguments": arguments,
            }
        )

    def program(self, arch: str, codes: list[Path], sources: list[dict[str, Any]], converts: bool) -> Program:
        """Return the program; with `converts` the kernels of conversions are the last of its codes."""
        if converts:
            codes = [*codes, convert.code(arch)]
            sources = [*sources, {"file": str(convert.source_of(codes[-1])), "options": []}]
        document = {
            "format": FORMAT,
            "version": 1,
            "arch": arch,
            "code": [*map(str, codes)],
            "sources": sources,
            "weights": CONSTANTS,
            "memory": self.memory,
            "constants": len(self.constants),
            "results": self.results,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "launches": self.launches,
        }
        names, types = tuple(self.input_types), tuple(self.input_types.values())
        return Program(document, bytes(self.constants), names, types, self.output_types)

    def _take(self, space: str, size: int) -> Place:
        return self.own(size) if space == "memory" else self.result(size)

    def own(self, size: int) -> Place:
        """Return a place in the program's own memory."""
        self.memory, offset = after(self.memory, size)
        return {"in": "memory", "offset": offset}

    def result(self, size: int) -> Place:
        """Return a place among the results."""
        self.results, offset = after(self.results, size)
        return {"in": "results", "offset": offset}

    def _constant(self, data: bytes) -> int:
        end, offset = after(len(self.constants), len(data))
        self.constants += bytes(offset - len(self.constants)) + data
        self.constants += bytes(end - len(self.constants))
        return offset


def after(end: int, size: int) -> tuple[int, int]:
    """Return the new end, and the aligned place of `size` bytes after `end`."""
    offset = -(-end // _ALIGNMENT) * _ALIGNMENT
    return offset + size, offset


def _filled(shape: tuple[int, ...], rows: int) -> tuple[int, ...]:
    return (rows, *shape[1:]) if shape and shape[0] < 0 else shape


def _bytes(kind: TensorType) -> int:
    return prod(physical_shape(kind)) * NUMPY_DTYPES[kind.dtype].itemsize


# Programs of CPU networks for the native executor: launch lists with the places of all tensors resolved.
#
# A program (program.json) calls kernels in order on tensors in four kinds of memory: its inputs, its own (`memory`),
# its constants, and the results of one frame.
#
#     code       the library or object of its kernels;  weights: the file of its `constants` bytes
#     memory, constants, results   sizes in bytes, for the most rows
#     symbols    [{input, axis, most}]: sizes that vary, each the extent of an axis of an input
#     inputs     [{dtype, shape}] and outputs [{offset, dtype, shape}] among the results
#     tensors    [{in, offset | input, dtype, shape}]: a size -1-n is symbol n
#     launches   [{kernel, arguments: [number of a tensor]}]

_CPU_ALIGNMENT = 64


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
        sizes[space] = -(-(offset + size) // _CPU_ALIGNMENT) * _CPU_ALIGNMENT
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
