"""ONNX files as protocol buffers: bounded, with weights in files next to the model.

External data (`.onnx.data`, as current exporters write) is looked up in the model's folder, whatever the working
directory.  A location that is absolute, has `..` in it, or leads out of the folder through a link is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched.bounded import SLACK, read_bytes
from socsched.errors import InputError
from socsched.models.onnx_inline import expanded_nodes, inlined
from socsched.models.onnx_skim import PACKED, skim

Array = np.ndarray[Any, Any]
MOST_BYTES = 2**31
MOST_NODES = 20_000
_SMALL = 4096
"""Elements up to which external tensors are embedded in the model, since shapes may depend on them."""
_HINT = "check it with onnx.checker"
_SCALARS = {"Clip": (1, 2), "Pad": (2,), "Range": (0, 1, 2)}
"""Scalar inputs that some exporters write as tensors of shape [1]."""


class OnnxFile:
    """A model and the arrays of its initialisers by name; InputError for an unusable file.

    Without `values`, large weights are not read (`onnx_skim`): their arrays have shape and type only.
    """

    def __init__(self, path: Path, values: bool = True) -> None:
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
        except InputError:
            raise
        except Exception as error:  # the inliner's errors have no common class
            raise self.error(f"its functions cannot be written out: {first_line(error)}") from None
        graph = self.model.graph
        if not all(isinstance(name, str) for name in _names(self.model)):
            raise self.error("a name in it is no UTF-8 text")
        if graph.sparse_initializer:
            raise self.error("sparse initialisers are not read")
        if not (graph.node or graph.output):
            raise self.error("it holds no network", "the export failed or was cut off: write it again")
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
            raise self.error("weights are not read from compressed files", "decompress it first: unxz --keep FILE")
        raw = read_bytes(self.path, "ONNX file", "expected a model with its weights in a file next to it", MOST_BYTES)
        return raw, {}, len(raw)

    def array(self, tensor: Any, hollow: bool = False) -> Array:
        """Return the values of a tensor of the model, embedded or external; InputError if incomplete.

        A `hollow` tensor has no values: its array takes no memory and holds zeros.
        """
        from onnx import TensorProto, helper, numpy_helper

        name = tensor.name or "a constant"
        try:
            if hollow:
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
                found = np.broadcast_to(np.zeros((), dtype), tuple(tensor.dims))
            elif tensor.data_location != TensorProto.EXTERNAL:
                found = np.asarray(numpy_helper.to_array(tensor))
            else:
                dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
                found = self._external(tensor, name, dtype)
        except InputError:
            raise
        except Exception as error:  # numpy_helper may raise anything for a damaged tensor
            raise self.error(f"tensor {name!r} cannot be read: {first_line(error)}") from None
        if found.dtype.kind not in "biuf":
            raise self.error(f"tensor {name!r} holds {found.dtype}, expected numbers")
        self._taken += found.nbytes
        if self._taken > SLACK + 4 * self._size:
            raise self.error("its tensors are far larger than its files: the same bytes are named many times")
        return found

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


def first_line(error: Exception) -> str:
    """Return an error's message as one line."""
    return re.sub(r"\s+", " ", str(error)).strip()[:200] or type(error).__name__
