"""ONNX files as protocol buffers: bounded, with weights in files next to the model, and without functions of their own.

External data (`.onnx.data`, as current exporters write) is looked up in the model's folder, whatever the working
directory.  A location that is absolute, has `..` in it, or leads out of the folder through a link is refused.

Shapes are all that planning needs, and weights are most of a file: `skim` reads the encoding as a stream and skips the
payload of every large float initialiser, so memory does not grow with the weights.  Files may be compressed
(`.onnx.xz`): weights of zeros then take no space either.

Functions are expanded by onnx's own inliner, after their expansion is known to stay small: functions that call each
other grow exponentially with their number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from socsched.bounded import SLACK, allowance, open_file, read_bytes
from socsched.errors import InputError
from socsched.graph.operators import TensorType
from socsched.models.onnx_integers import without_plugins

Array = np.ndarray[Any, Any]
MOST_BYTES = 2**31
MOST_UNPACKED = 2**29
"""Bytes of a compressed file whose weights are read, too."""
MOST_NODES = 20_000
_SMALL = 4096
"""Elements up to which external tensors are embedded in the model, since shapes may depend on them."""
_HINT = "check it with onnx.checker"
_SCALARS = {"Clip": (1, 2), "Pad": (2,), "Range": (0, 1, 2)}
"""Scalar inputs that some exporters write as tensors of shape [1]."""


class OnnxFile:
    """A model and the arrays of its initialisers by name; InputError for an unusable file.

    Without `values`, large weights are not read (`skim`): their arrays have shape and type only.  With `plugins` these
    stay as they are.
    """

    def __init__(self, path: Path, values: bool = True, plugins: bool = False) -> None:
        import onnx

        self.path = path
        raw, left_out, size = self._read(values)
        try:
            self.model = onnx.load_model_from_string(raw)
        except Exception as error:  # protobuf's errors have no common class
            raise self.error(f"not a usable ONNX file: {first_line(error)}") from None
        try:
            if expanded_nodes(self.model, MOST_NODES) > MOST_NODES:
                raise self.error(f"more than {MOST_NODES} nodes, those of its functions included")
            self.model = inlined(self.model)
            if not plugins:
                self.model = without_plugins(self.model)
        except InputError:
            raise
        except Exception as error:  # the inliner's errors have no common class
            raise self.error(f"its functions cannot be written out: {first_line(error)}") from None
        graph = self.model.graph
        if not all(isinstance(name, str) for name in _names(self.model)):
            raise self.error("a name in it is no UTF-8 text")
        if graph.sparse_initializer:
            raise self.error("sparse initialisers are not read")
        if not graph.output:
            raise self.error(
                "it holds no network: it has no outputs", "the export failed or was cut off: write it again"
            )
        self._folder = path.resolve().parent
        self._size = size
        self._files: dict[str, np.memmap[Any, Any]] = {}
        self._taken = 0
        self.constants = {item.name: self.array(item, i in left_out) for i, item in enumerate(graph.initializer)}
        if len(self.constants) < len(graph.initializer):
            raise self.error("two initialisers have the same name")
        self._put_small()
        self._put_scalars()
        _put_padding(graph)
        self._put_in_order()

    def error(self, problem: str, hint: str = _HINT) -> InputError:
        """Return the error for a problem with this file."""
        return InputError(f"{self.path}: {problem}", hint)

    def _read(self, values: bool) -> tuple[bytes, Mapping[int, int], int]:
        """Return the encoded model, the initialisers left out of it (index -> bytes), and the size of all."""
        if not values:
            try:
                return skim(self.path, MOST_BYTES)
            except OSError as error:
                raise InputError(f"{self.path}: the ONNX file cannot be read: {error.strerror or error}") from None
            except ValueError as error:
                if self.path.suffix == PACKED:
                    raise self.error(f"not a usable ONNX file: {error}") from None
        elif self.path.suffix == PACKED:
            raw = self._unpacked()
            return raw, {}, len(raw)
        raw = read_bytes(self.path, "ONNX file", "expected a model with its weights in a file next to it", MOST_BYTES)
        return raw, {}, len(raw)

    def _unpacked(self) -> bytes:
        """Return a compressed file with its weights, which are as large as they say, however small the file."""
        parts = bytearray()
        try:
            with _opened(self.path) as source:
                while chunk := source.read(_CHUNK):
                    parts += chunk
                    if len(parts) > MOST_UNPACKED:
                        hint = "decompress it first: unxz --keep FILE"
                        raise self.error(f"it holds more than {MOST_UNPACKED >> 20} MiB", hint)
        except ValueError as error:
            raise self.error(f"not a usable ONNX file: {error}") from None
        except OSError as error:
            raise InputError(f"{self.path}: the ONNX file cannot be read: {error.strerror or error}") from None
        return bytes(parts)

    def array(self, tensor: Any, hollow: bool = False) -> Array:
        """Return the values of a tensor of the model, embedded or external; InputError if incomplete.

        A `hollow` tensor has no values: its array takes no memory and holds zeros.
        """
        from onnx import TensorProto, helper, numpy_helper

        name = tensor.name or "a constant"
        try:
            if hollow:
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
                values = np.broadcast_to(np.zeros((), dtype), tuple(tensor.dims))
            elif tensor.data_location != TensorProto.EXTERNAL:
                values = np.asarray(numpy_helper.to_array(tensor))
            else:
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
                values = self._external(tensor, name, dtype)
        except InputError:
            raise
        except Exception as error:  # numpy_helper may raise anything for a damaged tensor
            raise self.error(f"tensor {name!r} cannot be read: {first_line(error)}") from None
        if values.dtype.kind not in "biuf":
            raise self.error(f"tensor {name!r} holds {values.dtype}, expected numbers")
        self._taken += values.nbytes
        if self._taken > SLACK + 4 * self._size:
            raise self.error("its tensors are far larger than its files: the same bytes are named many times")
        return values

    def _external(self, tensor: Any, name: str, dtype: Any) -> Array:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        data = self._data(entries.get("location", ""), name)
        shape = tuple(int(side) for side in tensor.dims)
        count = int(np.prod(shape, dtype=object)) if min(shape, default=1) >= 0 else -1
        offset, length = (int(entries.get(key) or default) for key, default in (("offset", 0), ("length", 0)))
        needed = count * dtype.itemsize
        if count < 0 or offset < 0 or (length and length != needed) or offset + needed > len(data):
            raise self.error(
                f"tensor {name!r}: {needed} bytes from {offset} on are not in {entries.get('location')}, which has "
                f"{len(data)}",
                "export the model again, and copy both files",
            )
        return np.frombuffer(data, dtype, count, offset).reshape(shape) if count else np.zeros(shape, dtype)

    def _data(self, location: str, name: str) -> np.memmap[Any, Any]:
        if location in self._files:
            return self._files[location]
        hint = "the file with the weights belongs into the model's folder"
        relative = Path(location)
        if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts or "\\" in location:
            raise self.error(f"tensor {name!r} lies in {location!r}, which is no file of the model's folder", hint)
        file = self._folder / relative
        try:
            real = file.resolve(strict=True)
            if not real.is_relative_to(self._folder) or not real.is_file():
                raise self.error(f"tensor {name!r} lies in {location!r}, which leads out of the model's folder", hint)
            size = real.stat().st_size
            self._files[location] = np.memmap(real, np.uint8, "r") if size else np.zeros(0, np.uint8)  # type: ignore[assignment]
        except (OSError, RuntimeError) as error:  # RuntimeError: a cycle of links
            reason = getattr(error, "strerror", None) or error
            raise self.error(f"its weights, {file}, cannot be read: {reason}", hint) from None
        self._size += size
        return self._files[location]

    def _put_small(self) -> None:
        """Embed small external tensors in the model, since shapes may depend on them."""
        from onnx import TensorProto, numpy_helper

        for item in self.model.graph.initializer:
            if item.data_location == TensorProto.EXTERNAL and self.constants[item.name].size <= _SMALL:
                item.CopyFrom(numpy_helper.from_array(np.array(self.constants[item.name]), item.name))

    def _put_in_order(self) -> None:
        """Put every node behind those that it reads, as ONNX wants it; converters to fp16 append the first ones."""
        graph = self.model.graph
        taken = [item.name for item in graph.input] + [name for node in graph.node for name in node.output if name]
        named = Counter(taken + [name for name in self.constants if name not in {item.name for item in graph.input}])
        named |= Counter(item.name for item in graph.output)
        if twice := [name for name, count in named.items() if count > 1]:
            raise self.error(f"{twice[0]!r} names two values")
        makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
        needs = {
            place: {makers[name] for name in _read_by(node) if name in makers} for place, node in enumerate(graph.node)
        }
        if all(before < place for place, need in needs.items() for before in need):
            return
        try:
            nodes = [graph.node[place] for place in TopologicalSorter(needs).static_order()]
        except CycleError as error:
            one = graph.node[error.args[1][0]]
            raise self.error(f"{one.name or one.op_type}: a {one.op_type} that reads what follows from it") from None
        copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)

    def _put_scalars(self) -> None:
        """Give inputs that must be scalars the shape [] where the file has [1]."""
        from onnx import numpy_helper

        graph = self.model.graph
        for node in graph.node:
            for place in _SCALARS.get(node.op_type, ()):
                name = node.input[place] if place < len(node.input) else ""
                if name in self.constants and self.constants[name].shape == (1,):
                    scalar = f"{name}/scalar"
                    if scalar not in self.constants:
                        self.constants[scalar] = np.array(self.constants[name]).reshape(())
                        graph.initializer.append(numpy_helper.from_array(self.constants[scalar], scalar))
                    node.input[place] = scalar


def whole(path: Path, inputs: Mapping[str, TensorType], filled: Mapping[str, TensorType]) -> Any:
    """Return the model of a file with all weights inside and inputs of these sizes; InputError for an unusable file.

    Outputs in `filled` vary in size, and are filled up to these types: with 0, places with -1.
    """
    model = _complete(path)
    graph = model.graph
    for item in graph.input:
        if item.name in inputs:
            dims = item.type.tensor_type.shape.dim
            for dim, size in zip(dims, inputs[item.name].shape, strict=True):
                dim.dim_value = size
    for item in graph.output:
        if item.name in filled:
            _fill(model, item, filled[item.name])
        elif not item.type.tensor_type.elem_type:  # an inner value that is looked at: its runtime knows the type
            item.ClearField("type")
    _take_floats(graph)
    return model


def _take_floats(graph: Any) -> None:
    """Give a graph fp32 in place of fp16 at its border: the planner chooses the precision of a stage."""
    from onnx import TensorProto, helper

    held = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in held]
    halves = [item for item in (*inputs, *graph.output) if item.type.tensor_type.elem_type == TensorProto.FLOAT16]
    inner = {item.name: f"{item.name}/half" for item in halves}
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner.get(name, name) for name in names]
    for item in halves:
        item.type.tensor_type.elem_type = TensorProto.FLOAT
        enters = any(item.name == one.name for one in inputs)
        ends, kind = (item.name, inner[item.name]), TensorProto.FLOAT16 if enters else TensorProto.FLOAT
        cast = helper.make_node("Cast", [ends[not enters]], [ends[enters]], to=kind)
        graph.node.insert(0 if enters else len(graph.node), cast)


def _complete(path: Path) -> Any:
    """Return the model of a file with all weights inside; InputError for an unusable file."""
    from onnx import TensorProto, numpy_helper

    file = OnnxFile(path)
    for item in file.model.graph.initializer:
        if item.data_location == TensorProto.EXTERNAL:
            item.CopyFrom(numpy_helper.from_array(np.array(file.constants[item.name]), item.name))
    return file.model


def _fill(model: Any, output: Any, kind: TensorType) -> None:
    """Pad an output to the shape of its type, under its own name."""
    from onnx import helper, numpy_helper

    graph, name = model.graph, output.name
    inner = f"{name}/some"
    for node in graph.node:
        for names in (node.output, node.input):
            for place, one in enumerate(names):
                if one == name:
                    names[place] = inner
    dtype = np.dtype({"fp32": "f4", "fp16": "f2"}.get(kind.dtype, kind.dtype))
    fill = np.array(-1 if kind.dtype in ("int32", "int64") else 0, dtype)
    constants = {"most": np.array(kind.shape), "none": np.zeros(len(kind.shape), np.int64), "fill": fill}
    graph.initializer.extend(numpy_helper.from_array(array, f"{name}/{role}") for role, array in constants.items())
    graph.node.extend(
        [
            helper.make_node("Shape", [inner], [f"{name}/shape"]),
            helper.make_node("Sub", [f"{name}/most", f"{name}/shape"], [f"{name}/left"]),
            helper.make_node("Concat", [f"{name}/none", f"{name}/left"], [f"{name}/pads"], axis=0),
            helper.make_node("Pad", [inner, f"{name}/pads", f"{name}/fill"], [name]),
        ]
    )
    output.CopyFrom(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), kind.shape))


def _names(model: Any) -> Iterator[object]:
    """Yield every name in a model; protobuf returns names that are not UTF-8 as bytes."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for tensor in (*graph.initializer, *(attribute.t for node in graph.node for attribute in node.attribute)):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    yield from (opset.domain for opset in model.opset_import)


def _put_padding(graph: Any) -> None:
    """Replace the padding name SAME, which some exporters write, by the ONNX name."""
    for node in graph.node:
        for item in node.attribute:
            if item.name == "auto_pad" and item.s == b"SAME":
                item.s = b"SAME_UPPER"


def _read_by(node: Any) -> Iterator[str]:
    """Yield the names that a node reads, and the graphs that it holds."""
    yield from node.input
    for graph in subgraphs(node):
        yield from (item.name for item in graph.output)
        for one in graph.node:
            yield from _read_by(one)


def first_line(error: Exception) -> str:
    """Return an error's message as one line."""
    return re.sub(r"\s+", " ", str(error)).strip()[:200] or type(error).__name__


def with_outputs(path: Path, names: Sequence[str], target: Path) -> Path:
    """Write a copy of a readable model, unpacked, with more of its values as outputs, weights beside it; return it."""
    import onnx

    model, target = _complete(path), target.with_name(target.name.removesuffix(PACKED))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, str(target), save_as_external_data=True, location=f"{target.name}.data")
    return target


def is_taken_as_it_is(path: Path) -> bool:
    """Return whether a runtime reads a readable file itself: it is not packed, and holds no plugins of another one."""
    if path.suffix == PACKED:
        return False
    model = OnnxFile(path, values=False, plugins=True).model
    return without_plugins(model) is model


PACKED = ".xz"
_LARGE = 16384
"""Bytes from which on a payload is skipped; shapes depend on smaller tensors only."""
_CHUNK = 2**20
_MOST_FIELDS = 500_000
"""Fields looked into, several times those of the largest model that is read."""
_MOST_MEMORY = 2**28
"""Bytes that decompression may use for its dictionary."""
_GRAPH, _INITIALISER = 7, 5
_DIMS, _DATA_TYPE, _FLOATS, _RAW, _DOUBLES = 1, 2, 4, 9, 10
_FLOAT_SIZES = {1: 4, 10: 2, 11: 8, 16: 2}
"""Bytes of an element by the data type of a tensor: float, float16, double, bfloat16."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Stream:
    """Bytes of a source in order: taken, which counts against `room`, or skipped; ValueError past the end or `most`."""

    def __init__(self, source: _Source, room: int, most: int) -> None:
        self.source, self.room, self.most = source, room, most
        self.position = self.fields = 0
        self._ahead = b""

    def take(self, size: int) -> bytes:
        self.room -= size
        if self.room < 0:
            raise ValueError("far larger than its file, weights aside")
        return b"".join(self._chunks(size))

    def skip(self, size: int) -> None:
        for _ in self._chunks(size):
            pass

    def _chunks(self, size: int) -> Iterator[bytes]:
        self.position += size
        if self.position > self.most:
            raise ValueError(f"larger than the {self.most // 2**20} MiB an ONNX file may have")
        while size:
            chunk = self.source.read(min(size, _CHUNK))
            if not chunk:
                raise ValueError("it breaks off")
            size -= len(chunk)
            yield chunk

    def ended(self) -> bool:
        """Return whether the source is at its end; if not, its next byte is kept for the next field."""
        self._ahead = self.source.read(1)
        return not self._ahead

    def key(self) -> tuple[int, int, bytes]:
        """Return number and wire type of the field whose first byte `ended` has read, and its encoded key."""
        self.position += 1
        return self.field(self._ahead)

    def varint(self, first: bytes = b"") -> tuple[int, bytes]:
        """Return a variable-length number and its encoding."""
        raw = first or self.take(1)
        while raw[-1] & 0x80:
            if len(raw) == 10:
                raise ValueError("a number in it is too long")
            raw += self.take(1)
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(raw)), raw

    def field(self, first: bytes = b"") -> tuple[int, int, bytes]:
        """Return number, wire type and encoded key of the next field."""
        self.fields += 1
        if self.fields > _MOST_FIELDS:
            raise ValueError(f"more than {_MOST_FIELDS} fields")
        number, raw = self.varint(first)
        return number >> 3, number & 7, raw

    def value(self, wire: int) -> bytes:
        """Return the encoded value of a field of a wire type."""
        if wire == 0:
            return self.varint()[1]
        if wire in (1, 5):
            return self.take(8 if wire == 1 else 4)
        if wire != 2:
            raise ValueError(f"a field in it has the unknown wire type {wire}")
        size, raw = self.varint()
        return raw + self.take(size)


def skim(path: Path, most: int) -> tuple[bytes, dict[int, int], int]:
    """Return a model's encoding without large weights, the bytes left out by index of initialiser, and the whole size.

    What is kept of a compressed file is bounded by its size on disk.  Raises OSError, and ValueError for a file that is
    damaged or expands to more than `most` bytes.
    """
    size = path.stat().st_size
    with _opened(path) as source:
        room = allowance(size) if path.suffix == PACKED else most
        stream = _Stream(source, room, most)
        parts = bytearray()
        left_out: dict[int, int] = {}
        count = 0
        while not stream.ended():
            number, wire, key = stream.key()
            if (number, wire) != (_GRAPH, 2):
                parts += key + stream.value(wire)
                continue
            graph = bytearray()
            length, _ = stream.varint()
            end = stream.position + length
            while stream.position < end:
                number, wire, raw = stream.field()
                if (number, wire) != (_INITIALISER, 2):
                    graph += raw + stream.value(wire)
                    continue
                tensor, skipped = _tensor(stream)
                graph += raw + _encoded(len(tensor)) + tensor
                if skipped:
                    left_out[count] = skipped
                count += 1
            if stream.position != end:
                raise ValueError("a message in it ends inside a field")
            parts += key + _encoded(len(graph)) + graph
        return bytes(parts), left_out, stream.position


def _tensor(stream: _Stream) -> tuple[bytes, int]:
    """Return the encoding of the tensor that follows without a large float payload, and the bytes left out."""
    length, _ = stream.varint()
    if length < _LARGE:
        return stream.take(length), 0
    end, kept, skipped, count, kind = stream.position + length, bytearray(), 0, 1, 0
    while stream.position < end:
        number, wire, key = stream.field()
        if wire == 2 and number in (_FLOATS, _RAW, _DOUBLES) and not skipped and kind in _FLOAT_SIZES:
            size, raw = stream.varint()
            if size >= _LARGE and size == count * _FLOAT_SIZES[kind]:
                stream.skip(size)
                skipped = size
                continue
            kept += key + raw + stream.take(size)
            continue
        value = stream.value(wire)
        kept += key + value
        if number == _DIMS:
            for side in _numbers(value, wire):
                count *= side
        elif number == _DATA_TYPE and wire == 0:
            kind = _numbers(value, wire)[0]
    if stream.position != end:
        raise ValueError("a tensor in it ends inside a field")
    return bytes(kept), skipped


def _numbers(value: bytes, wire: int) -> list[int]:
    """Return the numbers of a field of variable-length numbers, one or packed."""
    numbers, number, place = [], 0, 0
    raw = value
    if wire == 2:  # the length comes first
        start = next((index for index, byte in enumerate(raw) if byte < 0x80), len(raw) - 1) + 1
        raw = raw[start:]
    for byte in raw:
        number |= (byte & 0x7F) << place
        place += 7
        if byte < 0x80:
            numbers.append(number)
            number = place = 0
    return numbers


def _encoded(number: int) -> bytes:
    raw = bytearray()
    while number > 0x7F:
        raw.append(number & 0x7F | 0x80)
        number >>= 7
    raw.append(number)
    return bytes(raw)


@contextmanager
def _opened(path: Path) -> Iterator[_Source]:
    with open_file(path, "ONNX file", "check the path") as file:
        yield _Xz(file) if path.suffix == PACKED else file


class _Xz:
    """The content of an .xz file as a source; ValueError if it is damaged."""

    def __init__(self, file: Any) -> None:
        import lzma

        self.file, self.error = file, lzma.LZMAError
        self.stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY)
        self.ready, self.at = b"", 0

    def read(self, size: int, /) -> bytes:
        if self.at == len(self.ready):
            self.ready, self.at = self._more(), 0
        chunk = self.ready[self.at : self.at + size]
        self.at += len(chunk)
        return chunk

    def _more(self) -> bytes:
        while not self.stream.eof:
            raw = self.file.read(_CHUNK) if self.stream.needs_input else b""
            if self.stream.needs_input and not raw:
                raise ValueError("damaged xz: it breaks off")
            try:
                plain = self.stream.decompress(raw, _CHUNK)
            except self.error as error:
                raise ValueError(f"damaged xz: {error}") from None
            if plain:
                return plain
        return b""


Key = tuple[str, str, str]


def expanded_nodes(model: Any, most: int) -> int:
    """Return the nodes of a model with its functions written out, `most` + 1 if there are more.

    Raises ValueError for functions that call themselves.
    """
    functions: dict[Key, Any] = {_key(item.domain, item.name, item): item for item in model.functions}
    counts: dict[Key, int] = {}
    active: list[Key] = []

    def count(nodes: Iterable[Any]) -> int:
        total = 0
        for node in nodes:
            total += 1 + sum(count(graph.node) for graph in subgraphs(node))
            key = _key(node.domain, node.op_type, node)
            if key in functions:
                total += of(key)
            if total > most:
                return most + 1
        return total

    def of(key: Key) -> int:
        if key in active:
            raise ValueError(f"function {key[1]!r} calls itself")
        if key not in counts:
            active.append(key)
            counts[key] = count(functions[key].node)
            active.pop()
        return counts[key]

    return count(model.graph.node)


def inlined(model: Any) -> Any:
    """Return a model without local functions: each is written out in place of the nodes that call it."""
    from onnx import inliner

    return inliner.inline_local_functions(model) if model.functions else model


_FUNCTIONS = (
    *("Celu", "Selu", "ThresholdedRelu", "Softsign", "Shrink", "LogSoftmax", "Mish", "Swish", "SwiGLU", "CastLike"),
    *("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
    *("MeanVarianceNormalization", "RMSNormalization", "RotaryEmbedding", "AffineGrid", "CenterCropPad"),
)
"""ONNX's own operators that are read as the functions that its specification writes them as."""


def written_out(model: Any) -> Any:
    """Return a model with some of ONNX's own operators written as others, by the functions of the specification."""
    from onnx import defs, inliner

    found = sorted({node.op_type for node in model.graph.node if not node.domain} & set(_FUNCTIONS))
    if not found:
        return model
    opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 1)
    for node in model.graph.node:
        if node.op_type in found and not node.domain and defs.has(node.op_type, opset, ""):
            stated = {item.name for item in node.attribute}  # the inliner leaves out what a node does not state
            known = defs.get_schema(node.op_type, opset, "").attributes
            node.attribute.extend(
                one.default_value for name, one in known.items() if name not in stated and one.default_value.name
            )
    try:
        return inliner.inline_selected_functions(
            model, [("", op) for op in {*found, "CastLike"}], inline_schema_functions=True
        )
    except Exception:  # the inliner's errors have no common class; the operators are then taken as they are
        return model


def subgraphs(node: Any) -> list[Any]:
    """Return the graphs that a node holds as attributes: the branches of an If, the body of a Loop."""
    graphs = [item.g for item in node.attribute if item.type == item.GRAPH]
    return graphs + [graph for item in node.attribute if item.type == item.GRAPHS for graph in item.graphs]


def branch(node: Any, taken: bool, prefix: str) -> tuple[list[Any], list[Any]]:
    """Return the nodes and initialisers of a branch of an If, with its results under the names of the If's outputs.

    Names that the branch defines get a prefix, since the other nodes of the file may use them too.
    """
    side = "then_branch" if taken else "else_branch"
    nodes, tensors, results = _copied(node, side, {}, prefix)
    if len(results) != len(node.output):
        raise ValueError(f"a branch of {len(results)} results for {len(node.output)} outputs")
    for result, output in zip(results, node.output, strict=True):
        if output:
            nodes.append(type(node)(op_type="Identity", input=[result], output=[output]))
    return nodes, tensors


def body(node: Any, inputs: Sequence[str], prefix: str) -> tuple[list[Any], list[Any], list[str]]:
    """Return the nodes and initialisers of one turn of a Loop or Scan that gets `inputs`, and the names of its results.

    Names that the body defines get a prefix, since every turn defines them anew.  A Loop's first is its condition.
    """
    graph = next(item.g for item in node.attribute if item.name == "body")
    own = [item.name for item in graph.input]
    if len(own) != len(inputs):
        raise ValueError(f"a body of {len(own)} inputs for {len(inputs)} values")
    nodes, tensors, results = _copied(node, "body", dict(zip(own, inputs, strict=True)), prefix)
    if len(results) != (node.op_type == "Loop") + len(node.output):
        raise ValueError(f"a body of {len(results)} results for {len(node.output)} outputs")
    return nodes, tensors, results


def _copied(node: Any, attribute: str, bound: Mapping[str, str], prefix: str) -> tuple[list[Any], list[Any], list[str]]:
    """Return nodes, initialisers and names of the results of a graph in a node, what it defines under a prefix."""
    graph = next(item.g for item in node.attribute if item.name == attribute)
    own = [*(item.name for item in graph.initializer), *(name for one in graph.node for name in one.output if name)]
    names = {**bound, **{name: prefix + name for name in own}}
    nodes, tensors = [], []
    for tensor in graph.initializer:
        tensors.append(type(tensor).FromString(tensor.SerializeToString()))
        tensors[-1].name = names[tensor.name]
    for one in graph.node:
        nodes.append(type(one).FromString(one.SerializeToString()))
        _rename(nodes[-1], names)
        nodes[-1].name = f"{node.name or node.op_type}/{one.name or one.op_type}"
    return nodes, tensors, [names.get(item.name, item.name) for item in graph.output]


def _rename(node: Any, names: Mapping[str, str]) -> None:
    """Replace the names of values in a node and in the graphs that it holds, but for those defined in there."""
    for index, name in enumerate(node.input):
        node.input[index] = names.get(name, name)
    for index, name in enumerate(node.output):
        node.output[index] = names.get(name, name)
    for graph in subgraphs(node):
        own = {item.name for item in (*graph.input, *graph.initializer)} | {n for one in graph.node for n in one.output}
        outside = {name: new for name, new in names.items() if name not in own}
        for one in graph.node:
            _rename(one, outside)
        for item in graph.output:
            item.name = outside.get(item.name, item.name)


def _key(domain: str, name: str, item: Any) -> Key:
    return ("" if domain == "ai.onnx" else domain, name, getattr(item, "overload", ""))
