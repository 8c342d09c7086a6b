"""Networks from ONNX files: a file becomes socsched layers and weights, batch norm and constants folded.

Operators are those of image networks (ResNet, MobileNet, YOLO-like detectors).  A symbolic batch becomes 1; every
other size must be fixed.  Files may state quantisation as QuantizeLinear and DequantizeLinear, or compute in integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from socsched import resources
from socsched.errors import InputError, MachineError, UsageError, extra
from socsched.files import file_digest
from socsched.graph.expand import fuse_network
from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model, Port, Quantisation
from socsched.models.onnx_file import OnnxFile, first_line, whole
from socsched.models.onnx_graph import FORMS, OnnxGraph, read
from socsched.models.onnx_operators import Translation, translate
from socsched.models.weights import Weights

_PARAMS = ("file", "inputs", "outputs", "shapes", "dims", "sha256")
_seen: dict[str, Path] = {}
"""Where a network of this digest was when it was last read, in this process."""
_LARGEST_SIZE = 1 << 16
"""Largest size of a dimension that `shapes` may set."""


def model(params: Mapping[str, Any]) -> Model:
    """Return the model of an ONNX file: params `file` (path), `inputs` and `outputs` (ONNX name -> port name).

    With `sha256`, the file is the one of this digest, as plans name it (`portable`).  `shapes` (ONNX input -> sizes)
    sets dimensions that the file leaves open, `dims` (name -> size, or bounds as 1..8) those with a name.  Ports are
    named after the file's inputs and outputs unless renamed, so that stages can be connected by name.  UsageError
    for unknown params or names, InputError for an unusable file, MachineError without the reader.
    """
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        raise UsageError(f"onnx: unknown parameter {unknown[0]!r}", f"parameters: {', '.join(_PARAMS)}")
    path = Path(str(params.get("file", "")))
    if "sha256" in params:
        path = _located(path, str(params["sha256"]))
    stamp, shapes = _stamp(path), _sizes(path, params)
    file = _load(path, stamp, shapes, values=False)
    least = {name: sizes for name, sizes in _sizes(path, params, 0) if sizes != dict(shapes)[name]}
    return Model(
        f"onnx:{path.name}",
        tuple(replace(port, least=least.get(name, ())) for name, port in _ports(path, "inputs", params, file.inputs)),
        tuple(port for _, port in _ports(path, "outputs", params, file.outputs)),
        network=lambda: file.network,
        weights=lambda: _load(path, stamp, shapes).weights,
        quantised=_given(file.quantised),
        open_batch=file.open_batch,
        original=lambda: whole(path, file.inputs, file.varying),
        rounds=file.rounds,
    )


def portable(params: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return the params of a stage as plans hold them: a network's `file` relative to `folder`, with its `sha256`.

    `folder` is that of the pipeline; a file that the pipeline names by an absolute path keeps it.
    """
    file = Path(str(params.get("file", "")))
    if "file" not in params or "sha256" in params or not file.is_file():
        return params
    home = folder.absolute()
    named = file.relative_to(home) if file.is_relative_to(home) else file
    return {**params, "file": named.as_posix(), "sha256": digest(file)}


def digest(path: Path) -> str:
    """Return the sha256 of a network's file; InputError if it cannot be read."""
    sha256 = _digest(path, _stamp(path))
    _seen[sha256] = path
    return sha256


@lru_cache(maxsize=64)
def _digest(path: Path, stamp: tuple[int, int]) -> str:
    return file_digest(path)


def _located(path: Path, wanted: str) -> Path:
    """Return the file of a network that a plan names: where it was, or below the folders of pipelines."""
    places = [_seen[wanted]] if wanted in _seen else []
    places += [path, *(folder / path for folder in resources.folders("pipelines"))]
    there = [place for place in places if place.is_file()]
    for place in there:
        if digest(place) == wanted:
            return place
    hint = "run this in the folder where `socsched plan` found the pipeline, or plan again"
    if there:
        raise InputError(f"{there[0]}: is not the network of the plan: its sha256 is another", hint)
    raise InputError(f"{path}: the network of the plan is not here", hint)


def _given(stated: Quantisation | None) -> Callable[[], Quantisation] | None:
    return None if stated is None else lambda: stated


def _ports(
    path: Path, side: str, params: Mapping[str, Any], tensors: Mapping[str, TensorType]
) -> Iterator[tuple[str, Port]]:
    """Yield the ports of a side by their names in the file."""
    renamed = params.get(side) or {}
    if not isinstance(renamed, Mapping) or not all(isinstance(name, str) for name in renamed.values()):
        raise UsageError(f"{path.name}: {side}: expected ONNX name: port name", f"there are: {', '.join(tensors)}")
    wrong = [name for name in renamed if name not in tensors]
    if wrong:
        raise UsageError(f"{path.name}: {side}: the file has no {wrong[0]!r}", f"there are: {', '.join(tensors)}")
    for name, tensor in tensors.items():
        yield name, Port(str(renamed.get(name, name)), tensor)


def _shapes(path: Path, param: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the param `shapes` checked; UsageError unless it maps names to lists of sizes."""
    rows = param if isinstance(param, Mapping) else {} if param is None else {"shapes": param}
    for name, sizes in rows.items():
        whole = isinstance(sizes, (list, tuple)) and all(type(size) is int for size in sizes)
        if not whole or not all(0 < size <= _LARGEST_SIZE for size in sizes):
            problem = f"{path.name}: shapes: {name}: expected a list of sizes from 1 to {_LARGEST_SIZE}, got {sizes!r}"
            raise UsageError(problem, "such as shapes: {images: [1, 3, 384, 640]}")
    return tuple((str(name), tuple(sizes)) for name, sizes in rows.items())


def input_sizes(path: str | Path) -> dict[str, list[int | str]]:
    """Return the sizes of a file's inputs: numbers, names of those left open, "" for open ones without a name."""
    file = Path(path)
    return {name: list(sizes) for name, sizes in _input_sizes(file, _stamp(file))}


@lru_cache(maxsize=64)
def _input_sizes(path: Path, stamp: tuple[int, int]) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
    graph = OnnxFile(path, values=False).model.graph
    held = {item.name for item in graph.initializer}
    return tuple(
        (
            item.name,
            tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in item.type.tensor_type.shape.dim),
        )
        for item in graph.input
        if item.name not in held
    )


def bounds_of(param: Any) -> tuple[int, int]:
    """Return the bounds of a dimension, written 8 or 1..8; UsageError for anything else."""
    low, dots, high = str(param).partition("..")
    if not (low.isdecimal() and (high.isdecimal() if dots else True)):
        raise UsageError(f"dims: expected a size or bounds, got {param!r}", "such as 8 or 1..8")
    least, most = int(low), int(high or low)
    if not 0 < least <= most <= _LARGEST_SIZE:
        raise UsageError(f"dims: expected bounds from 1 to {_LARGEST_SIZE}, got {param!r}", "such as 1..8")
    return least, most


def _sizes(path: Path, params: Mapping[str, Any], end: int = 1) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the shapes that params set, open dimensions at their upper bound, or at the lower one (`end` 0)."""
    shapes = _shapes(path, params.get("shapes"))
    return _bounded(path, params["dims"], dict(shapes), end) if params.get("dims") else shapes


def _bounded(
    path: Path, dims: Any, shapes: dict[str, tuple[int, ...]], end: int
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return `shapes` with those that named dimensions give at one end of their bounds; 0 where one is still open."""
    if not isinstance(dims, Mapping):
        raise UsageError(f"{path.name}: dims: expected NAME: SIZE, got {dims!r}", "such as dims: {N: 1..8}")
    most = {str(name): bounds_of(bound)[end] for name, bound in dims.items()}
    known = input_sizes(path)
    names = sorted({one for sizes in known.values() for one in sizes if isinstance(one, str) and one})
    if unknown := sorted(set(most) - set(names)):
        raise UsageError(f"{path.name}: no input has the open dimension {unknown[0]!r}", f"open: {', '.join(names)}")
    for name, sizes in known.items():
        if name not in shapes and any(one in most for one in sizes if isinstance(one, str)):
            shapes[name] = tuple(one if isinstance(one, int) else most.get(one, 0) for one in sizes)
    return tuple(shapes.items())


def load(path: Path) -> tuple[Network, Weights]:
    """Return the network and the weights of an ONNX file; InputError names an unsupported node."""
    file = _load(path, _stamp(path))
    return file.network, file.weights


@dataclass(frozen=True, slots=True)
class Inner:
    """A value within a network: its ONNX name, the node that makes it, and that node's operator."""

    name: str
    node: str
    op: str


def kernel_results(params: Mapping[str, Any]) -> tuple[Inner, ...]:
    """Return the values that an ONNX file's network has between its kernels, in the order in which they are computed.

    `params` are those of `model`.  A value within a fused kernel is none of them; the network's outputs are the last
    ones.
    """
    path = Path(params["file"])
    shapes = _sizes(path, params)
    _load(path, _stamp(path), shapes, False)  # its errors
    translation = Translation(read(path, dict(shapes), False), False)
    network, _ = translation.run()
    fused = {group.output for group in fuse_network(network).groups}
    last: dict[str, Inner] = {}
    leaving: dict[str, Inner] = {}
    for node in translation.graph.nodes:
        for name in filter(None, node.outputs):
            layer = translation.values.get(name, "")
            if name in translation.graph.outputs:
                leaving[layer] = Inner(name, node.name, node.op)
            elif layer.replace(".", "_") in fused:
                last.pop(layer, None)
                last[layer] = Inner(name, node.name, node.op)
    return (*(inner for layer, inner in last.items() if layer not in leaving), *leaving.values())


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", "expected an ONNX file") from None
    return status.st_mtime_ns, status.st_size


@dataclass(frozen=True, slots=True)
class _File:
    network: Network
    weights: Weights
    inputs: Mapping[str, TensorType]
    outputs: Mapping[str, TensorType]
    quantised: Quantisation | None = None
    open_batch: tuple[str, ...] = ()
    rounds: bool = False
    varying: Mapping[str, TensorType] = field(default_factory=dict)


def _load(
    path: Path, stamp: tuple[int, int], shapes: tuple[tuple[str, tuple[int, ...]], ...] = (), values: bool = True
) -> _File:
    """Return the network of a file, with its weights unless `values` is False: planning needs their shapes only."""
    try:
        import onnx  # noqa: F401
    except ImportError:
        problem = f"{path.name}: reading ONNX files needs the package onnx"
        raise MachineError(problem, extra("onnx")) from None
    outcome = _outcome(path, stamp, shapes, values)
    if isinstance(outcome, InputError):
        raise outcome.with_traceback(None)
    return outcome


@lru_cache(maxsize=16)  # a network is in it twice once its weights are read
def _outcome(path: Path, stamp: tuple[int, int], shapes: Any, values: bool) -> _File | InputError:
    """Return a file's network or why it is refused, which every step of a plan asks again."""
    try:
        return _translated(path, shapes, values)
    except InputError as error:
        return error
    except FORMS as error:  # of the file as a whole; nodes have their own
        return InputError(f"{path.name}: no network that is understood: {first_line(error)}", "check it: onnx.checker")


def _translated(path: Path, shapes: Any, values: bool) -> _File:
    graph: OnnxGraph = read(path, dict(shapes), values)
    network, weights, quantised = translate(graph, values)
    kept: Weights = {
        name: np.ascontiguousarray(array, np.float32).reshape(array.shape) for name, array in weights.items() if values
    }
    inputs = {name: graph.tensor(name) for name in graph.inputs}
    outputs = {name: graph.tensor(name) for name in graph.outputs}
    stepped = quantised.values if quantised is not None else {}
    integers = [
        name
        for (name, tensor), layer in zip(outputs.items(), network.outputs, strict=True)
        if tensor.dtype in ("int8", "uint8") and layer in stepped
    ]
    if integers:
        raise graph.error(f"output {integers[0]!r} is quantised", "end with DequantizeLinear")
    varying = {name: kind for name, kind in outputs.items() if name in graph.varying}
    return _File(network, kept, inputs, outputs, quantised, graph.open_batch, bool(graph.dynamic), varying)
