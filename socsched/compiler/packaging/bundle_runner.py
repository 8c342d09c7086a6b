"""Board program of a bundle: runs the compiled pipeline stage by stage, frame by frame.

It needs only numpy and TVM's runtime: no compiler, no linker, none of socsched's other dependencies.  It runs code for
CPUs, CUDA and OpenCL, but not code built by vendors' tools.  Deadlines, rates and concurrent engines are handled by
`socsched run`; this program shows that the code runs on the board, what it computes and how long each stage takes in
isolation.

    start.sh [--input FRAME ...] [-o RESULTS.npz] [--all] [--json]

A frame is a KITTI .bin scan, a folder of them, or an .npz with one array per sensor port ("points", "image").
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.bounded import read_bytes
from socsched.compiler.artifact import Artifact, from_json
from socsched.compiler.layouts import NUMPY_DTYPES, convert
from socsched.compiler.loading.stages import load
from socsched.errors import InputError, MachineError, SocschedError
from socsched.files import file_digest, replacing
from socsched.graph.operators import TensorType
from socsched.models.npz import read_npz
from socsched.models.pointpillars.scan import list_scans, read_scan
from socsched.models.registry import get_model
from socsched.text import printable

Array = np.ndarray[Any, Any]
MANIFEST = "manifest.json"
_HINT = "build it again with `socsched compile ... -o DIR` and copy the whole folder"


@dataclass(frozen=True, slots=True)
class Placed:
    """An array with the memory layout given by `type`."""

    array: Array
    type: TensorType


Values = Mapping[str, Any]
"""Arrays or `Placed` by port name."""


@dataclass(frozen=True, slots=True)
class BoardStage:
    """A stage ready to run: `inputs` maps port -> provider, `call` takes the outputs of stages and sensors by name."""

    name: str
    inputs: Mapping[str, str]
    call: Callable[[Mapping[str, Values]], Values]


def open_bundle(folder: Path) -> tuple[list[BoardStage], list[str]]:
    """Return the runnable stages of a bundle in order, and those known only by their execution times.

    Raises InputError for a damaged bundle and MachineError for a stage that this machine or program cannot run.
    """
    manifest = _manifest(folder / MANIFEST)
    entries = manifest["stages"]
    _check(folder, manifest.get("files", {}))
    timed = [entry["name"] for entry in entries if entry["sort"] == "timed"]
    return [_stage(folder, manifest, entry) for entry in entries if entry["sort"] != "timed"], timed


_TENSOR = {"shape": [int], "dtype": str, "layout": str}
_STAGE = {
    "name": str, "sort": str, "model": (str, None), "params": dict, "inputs": {str: str}, "artifacts": [int],
    "handovers": [int],
}  # fmt: skip
_ARTIFACT = {
    "stage": str, "model": str, "engine": str, "engine_kind": str, "target": str, "triple": str, "precision": str,
    "threads": int, "key": str, "files": [str], "input_names": [str], "inputs": [_TENSOR], "output_names": [str],
    "outputs": [_TENSOR], "weights": str, "loadable": bool, "notes": [str], "part": str, "share": int,
    "code_inputs": [_TENSOR], "code_outputs": [_TENSOR], "computes_half": bool, "machine": str, "sha256": {str: str},
}  # fmt: skip
_HANDOVER = {"engine": str, "toolchain": str, "folder": str}
_FORM = {"stages": [_STAGE], "artifacts": [_ARTIFACT], "handovers": [_HANDOVER]}
_MOST_BYTES = 16 * 2**20


def _manifest(file: Path) -> dict[str, Any]:
    """Return the manifest, validated against the form above by hand, since boards do not have pydantic."""
    raw = read_bytes(file, "manifest", _HINT, _MOST_BYTES)
    try:
        manifest: dict[str, Any] = json.loads(raw)
        _require(manifest, _FORM, "")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: cannot be read: {error}", _HINT) from None
    for index, entry in enumerate(manifest["stages"]):
        for kind in ("artifacts", "handovers"):
            if not all(0 <= number < len(manifest[kind]) for number in entry[kind]):
                raise InputError(f"{file}: stages[{index}].{kind}: expected indices of {kind}", _HINT)
        if entry["sort"] not in ("timed", "function", "network"):
            raise InputError(f"{file}: stages[{index}].sort: expected timed, function or network", _HINT)
        if entry["sort"] == "function" and entry["model"] is None:
            raise InputError(f"{file}: stages[{index}].model: expected the name of a model", _HINT)
    _require(manifest.setdefault("files", {}), {str: str}, "files")
    _inside(manifest["files"], str(file))
    for index, found in enumerate(manifest["artifacts"]):
        where = f"{file}: artifacts[{index}]"
        if not found["files"] or set(found["files"]) != set(found["sha256"]):
            raise InputError(f"{where}.files: expected at least one, each with its digest in sha256", _HINT)
        _inside(found["files"], where)
        for sides in ("input", "output"):
            types, names = found[f"{sides}s"], found[f"{sides}_names"]
            if len(types) != len(names):
                raise InputError(f"{where}.{sides}_names: expected {len(types)}", _HINT)
            wrong = [t for t in types if t["dtype"] not in NUMPY_DTYPES or not all(-1 <= n < 2**31 for n in t["shape"])]
            if wrong:
                raise InputError(f"{where}.{sides}s: expected tensors of a known type and size, got {wrong[0]}", _HINT)
    return manifest


def _inside(names: Iterable[str], where: str) -> None:
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            raise InputError(f"{where}.files: expected files of the bundle, got {name!r}", _HINT)


def _require(value: Any, form: Any, where: str) -> None:
    """Raise ValueError naming the place unless `value` has the form: {key: form}, [form of each], or a type."""
    place = where.lstrip(".") or "the file"
    if isinstance(form, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{place}: expected an object")
        if set(form) == {str}:
            form = dict.fromkeys(value, form[str])
        for key, inner in form.items():
            if key not in value:
                raise ValueError(f"{place}: {key} is missing")
            _require(value[key], inner, f"{where}.{key}")
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise ValueError(f"{place}: expected a list")
        for index, item in enumerate(value):
            _require(item, form[0], f"{where}[{index}]")
    elif isinstance(form, tuple):
        if value is not None:
            _require(value, form[0], where)
    elif type(value) is not form:
        raise ValueError(f"{place}: expected {form.__name__}, got {type(value).__name__}")


def _stage(folder: Path, manifest: Mapping[str, Any], entry: Mapping[str, Any]) -> BoardStage:
    if entry["sort"] == "function":
        model = get_model(entry["model"], entry["params"])
        if model.function is None or any(port.name not in entry["inputs"] for port in model.inputs):
            raise InputError(f"{folder / MANIFEST}: stage {entry['name']!r} does not match the build", _HINT)
        outputs = [port.name for port in model.outputs]
        ports = [(port.name, entry["inputs"][port.name]) for port in model.inputs]

        def compute(values: Mapping[str, Values]) -> Values:
            assert model.function is not None
            arrays = [_plain(values[source][port]) for port, source in ports]
            return dict(zip(outputs, model.function(*arrays), strict=True))

        return BoardStage(entry["name"], entry["inputs"], compute)
    artifact, compiled = _compiled(folder, manifest, entry)
    if any(port not in entry["inputs"] for port in artifact.input_names):
        raise InputError(f"{folder / MANIFEST}: stage {entry['name']!r} does not match the build", _HINT)
    bound = [(port, entry["inputs"][port]) for port in artifact.input_names]

    def run(values: Mapping[str, Values]) -> Values:
        inputs = (values[source][port] for port, source in bound)
        arrays = [_as(value, wanted) for value, wanted in zip(inputs, artifact.inputs, strict=True)]
        return dict(zip(artifact.output_names, map(Placed, compiled(*arrays), artifact.outputs), strict=True))

    return BoardStage(entry["name"], entry["inputs"], run)


def _compiled(
    folder: Path, manifest: Mapping[str, Any], entry: Mapping[str, Any]
) -> tuple[Artifact, Callable[..., tuple[Array, ...]]]:
    """Return the first artefact of a stage that loads on this machine; MachineError with all failures."""
    against = []
    for found in (manifest["artifacts"][index] for index in entry["artifacts"]):
        _check(folder, found["sha256"])
        fields = {key: found[key] for key in _ARTIFACT if key not in ("machine", "sha256")}
        artifact = replace(from_json(fields, folder), loadable=True)
        try:
            return artifact, _loaded(artifact, found["machine"])
        except MachineError as error:
            against.append(f"{found['engine']} ({error})")
    for found in (manifest["handovers"][index] for index in entry["handovers"]):
        against.append(f"{found['engine']} (its code is built by {found['toolchain']}: {found['folder']}/build.sh)")
    refusals = "; ".join(against) or "it contains none for this stage"
    raise MachineError(
        f"stage {entry['name']!r}: no code in this bundle runs here: {refusals}",
        "start it on the board it was compiled for; this program does not run the output of vendors' tools "
        "(where an engine also runs our kernels: `socsched plan --runtime tvm`)",
    )


def _loaded(artifact: Artifact, machine: str) -> Callable[..., tuple[Array, ...]]:
    if artifact.target == "opencl":
        from socsched.compiler.targets.opencl.run import OpenClStage

        return OpenClStage(artifact)
    here, libraries = platform.machine(), [name for name in artifact.files if name.endswith(".so")]
    if machine != here or artifact.target not in ("llvm", "cuda") or not libraries:
        raise MachineError(f"{artifact.target} code for {machine}, this is {here}")
    return load(artifact)


def _check(folder: Path, digests: Mapping[str, Any]) -> None:
    for name, digest in digests.items():
        try:
            whole = file_digest(folder / name) == digest
        except OSError as error:
            raise InputError(f"{folder / name}: cannot be read: {error.strerror}", _HINT) from None
        if not whole:
            raise InputError(f"{folder / name}: the file has changed since the build (its digest differs)", _HINT)


def _plain(value: Any) -> Any:
    if not isinstance(value, Placed):
        return value
    return convert(value.array, value.type, TensorType(value.type.shape, value.type.dtype, _natural(value.type.shape)))


def _natural(shape: tuple[int, ...]) -> str:
    return "NCHW" if len(shape) == 4 else ""


def _as(value: Any, wanted: TensorType) -> Array:
    if isinstance(value, Placed):
        return convert(value.array, value.type, wanted)
    if len(wanted.shape) == 4:
        dtype = next(name for name, known in NUMPY_DTYPES.items() if known == value.dtype)
        return convert(value, TensorType(value.shape, dtype, "NCHW"), wanted)
    array: Array = value.astype(NUMPY_DTYPES[wanted.dtype], copy=False)
    return array


def frames(paths: Sequence[Path], stages: Sequence[BoardStage]) -> Iterator[tuple[str, dict[str, dict[str, Any]]]]:
    """Yield the title and sensor outputs (by sensor and port) of every frame in `paths`; InputError if unusable."""
    names = {stage.name for stage in stages}
    needed = {(source, port) for stage in stages for port, source in stage.inputs.items() if source not in names}
    for path in paths:
        files = [path] if path.suffix == ".npz" else list_scans(path)
        for file in files:
            arrays = _arrays(file)
            missing = sorted(port for _, port in needed if port not in arrays)
            if missing:
                raise InputError(f"{file}: no array {missing[0]!r}", f"there are: {', '.join(arrays)}")
            values: dict[str, dict[str, Any]] = {}
            for source, port in needed:
                values.setdefault(source, {})[port] = arrays[port]
            yield file.name, values


def _arrays(file: Path) -> dict[str, Array]:
    if file.suffix != ".npz":
        return {"points": read_scan(file, None)}
    return read_npz(file)


def run_frame(stages: Sequence[BoardStage], sensors: Mapping[str, Values]) -> tuple[dict[str, Values], dict[str, int]]:
    """Return the outputs of all stages for one frame, and the execution time of each (ns)."""
    values: dict[str, Values] = dict(sensors)
    times = {}
    for stage in stages:
        start = time.monotonic_ns()
        values[stage.name] = stage.call(values)
        times[stage.name] = time.monotonic_ns() - start
    return values, times


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bundle named first on the frames given; return the exit code."""
    parser = argparse.ArgumentParser(prog="start.sh", description="Runs this bundle, frame after frame.")
    parser.add_argument("bundle", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, nargs="+", default=[], help=".bin scans, folders of them, or .npz")
    parser.add_argument("-o", "--output", type=Path, help="write the last frame's results here (.npz)")
    parser.add_argument(
        "--all", action="store_true", help="with -o: all stages' outputs, not only those that no stage reads"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except SocschedError as error:
        print(printable(f"error: {error}" + (f"\n  {error.hint}" if error.hint else "")), file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    stages, timed = open_bundle(options.bundle)
    report: dict[str, Any] = {"schema_version": "1", "stages": [s.name for s in stages], "timed": timed, "frames": []}
    values: dict[str, Values] = {}
    for title, sensors in frames(options.input, stages):
        if not values:
            run_frame(stages, sensors)  # warm-up: starts threads and touches memory
        values, times = run_frame(stages, sensors)
        report["frames"].append({"frame": title, "times_ns": times})
        if not options.json:
            print(printable(f"{title}: " + ", ".join(f"{name} {ns / 1e6:.2f} ms" for name, ns in times.items())))
    if options.json:
        print(json.dumps(report))
    elif not report["frames"]:
        names = ", ".join(stage.name for stage in stages)
        print(printable(f"{len(stages)} stages are ready: {names}; give frames with --input"))
    if options.output and values:
        _save(options.output, stages, values, options.all)
    return 0


def _save(path: Path, stages: Sequence[BoardStage], values: Mapping[str, Values], everything: bool) -> None:
    read = {(source, port) for stage in stages for port, source in stage.inputs.items()}
    arrays = {
        f"{stage.name}.{port}": np.asarray(_plain(value))
        for stage in stages
        for port, value in values[stage.name].items()
        if everything or (stage.name, port) not in read
    }
    try:
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise MachineError(f"{path}: cannot write: {error.strerror}", "free space or name another file") from None


if __name__ == "__main__":
    sys.exit(main())
