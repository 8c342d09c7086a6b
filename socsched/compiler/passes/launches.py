"""Reads a network's launch list (`compiler.launch_list`) off its Relax module and the host code that TVM lowers."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import numpy as np

from socsched.compiler.environment import relax, structural_walk, tirx, tvm
from socsched.compiler.launch_list import ALIGNMENT, Size
from socsched.errors import CompileError

SUB_BUFFER = 512
"""Alignment of sub-buffer offsets sufficient on all known devices (CL_DEVICE_MEM_BASE_ADDR_ALIGN, in bytes)."""
_AXES = "xyz"
_SHARED = "tirx.use_dyn_shared_memory"
_INFIX = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}


class Recorder:
    """Follows the calls of `main` and the launches of each called function."""

    form = "OpenCL"
    """Whose lists these are: what one cannot express is an error that says so."""

    def __init__(self, name: str, module: Any, lowered: Any) -> None:
        self.name, self.main = name, module["main"]
        self.signatures = {v.name_hint: f for v, f in module.functions.items() if isinstance(f, tirx.PrimFunc)}
        self.lowered = {v.name_hint: f for v, f in lowered.functions.items()}
        self.buffers: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self.symbols: dict[str, dict[str, int]] = {}
        self.values: dict[Any, Any] = {}  # by variable: names may repeat
        self.outputs: list[int] = []
        self.weights = bytearray()
        self.places: dict[bytes, int] = {}
        self.joins: list[tuple[dict[str, Any], list[int], int]] = []

    def record(self) -> None:
        """Follow `main` from its inputs to its outputs; CompileError for anything a list cannot express."""
        result = self.follow()
        self.outputs = result if isinstance(result, list) else [result]
        for index in map(self.whole, self.outputs):
            if self.buffers[index]["role"] not in ("scratch", "output"):
                lacks = "OpenCL lowering" if self.form == "OpenCL" else "launch list"
                raise CompileError(f"{self.name}: an output that is an input or a constant has no {lacks}")
            self.buffers[index]["role"] = "output"
        for launch, parts, whole in self.joins:
            if self.join(parts, whole):
                self.launches.remove(launch)
        self.share()

    def follow(self) -> Any:
        """Follow `main` and return the index of its result, a list of indices for a tuple."""
        for index, var in enumerate(self.main.params):
            self.values[var] = self.buffer(str(var.name), "input", var.ty)
            for axis, size in enumerate(var.ty.shape):
                if not isinstance(size, tirx.IntImm):
                    self.symbols.setdefault(str(size), {"input": index, "axis": axis})
        for block in self.main.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self.value(str(binding.var.name), binding.value)
        return self.value("result", self.main.body.body)

    def check(self, most: int) -> None:
        """Raise CompileError for a launch whose groups exceed `most` work-items: a device would reject it."""
        for launch in self.launches:
            count = math.prod(size for size in launch["items"] if isinstance(size, int))
            if count > most:
                raise CompileError(
                    f"{self.name}: {launch['kernel']} needs {count} work-items a group, the target allows {most}",
                    "place this stage on another engine, or raise max_threads_per_block if the GPU can do more",
                )

    def plan(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        inputs = [index for index, buffer in enumerate(self.buffers) if buffer["role"] == "input"]
        return {
            "network": self.name,
            "symbols": self.symbols,
            "inputs": inputs,
            "outputs": self.outputs,
            "buffers": self.buffers,
            "launches": self.launches,
        }

    def constants(self) -> bytes:
        """Return the content of the weights' file."""
        return bytes(self.weights)

    def buffer(self, name: str, role: str, ty: Any) -> int:
        shape: list[Size] = [size_of(size, {}) for size in ty.shape]
        self.buffers.append(_buffer(name, role, str(ty.dtype), shape))
        return len(self.buffers) - 1

    def value(self, name: str, expression: Any) -> Any:
        """Return the index of the buffer an expression denotes, a list of indices for a tuple."""
        if isinstance(expression, relax.Var):
            return self.values[expression]
        if isinstance(expression, relax.Tuple):
            return [self.value(f"{name}.{i}", field) for i, field in enumerate(expression.fields)]
        if isinstance(expression, relax.TupleGetItem):
            return self.value(name, expression.tuple_value)[int(expression.index)]
        if hasattr(expression, "value") and hasattr(expression.value, "numpy"):
            return self.constant(name, expression)
        op = str(getattr(getattr(expression, "op", None), "name", ""))
        if op == "relax.call_tir":
            return self.call(name, expression)
        if op in ("relax.memory.view", "relax.reshape"):
            return self.view(name, expression, size_of(expression.args[3], {}) if op.endswith("view") else 0)
        if op == "relax.call_tir_inplace":
            return self.call_inplace(name, expression)
        raise CompileError(
            f"{self.name}: {name}: {type(expression).__name__} cannot be expressed in an OpenCL launch plan",
            "place this stage on another engine",
        )

    def constant(self, name: str, expression: Any) -> int:
        array = np.ascontiguousarray(expression.value.numpy())
        index = self.buffer(f"{name}.constant", "constant", expression.ty)
        content = array.tobytes()
        key = hashlib.sha256(content).digest()
        if key not in self.places:  # layers that share their weights share the memory
            self.weights += b"\0" * (-len(self.weights) % ALIGNMENT)
            self.places[key] = len(self.weights)
            self.weights += content
        self.buffers[index]["offset"] = self.places[key]
        return index

    def call(self, name: str, call: Any) -> Any:
        if len(call.args) > 2:
            raise CompileError(f"{self.name}: {name}: sizes as arguments cannot be expressed in an OpenCL launch plan")
        function = str(call.args[0].name_hint)
        arguments = [self.value(f"{name}.{i}", argument) for i, argument in enumerate(call.args[1].fields)]
        types = list(call.ty.fields) if hasattr(call.ty, "fields") else [call.ty]
        buffers = [self.buffer(name if len(types) == 1 else f"{name}.{i}", "scratch", t) for i, t in enumerate(types)]
        before = len(self.launches)
        self.launch(function, [*arguments, *buffers])
        if self.form == "OpenCL" and re.fullmatch(r"concatenate\d*", function) and len(self.launches) == before + 1:
            self.joins.append((self.launches[-1], arguments, buffers[0]))
        return buffers if hasattr(call.ty, "fields") else buffers[0]

    def view(self, name: str, call: Any, offset: int | str) -> int:
        """Add a part of a buffer."""
        source = self.value(f"{name}.of", call.args[0])
        index = self.buffer(name, "part", call.ty)
        if not isinstance(offset, int):
            raise CompileError(f"{self.name}: {name}: a view at an offset that varies has no launch list")
        start = int(self.buffers[source].get("offset", 0)) if "within" in self.buffers[source] else 0
        self.buffers[index] |= {"within": self.whole(source), "offset": start + offset}
        return index

    def call_inplace(self, name: str, call: Any) -> int:
        """Add the launches of a function whose only result is one of its operands."""
        places = [int(index) for index in call.attrs.inplace_indices]
        if len(call.args) > 2 or len(places) != 1 or places[0] < 0:
            raise CompileError(f"{self.name}: {name}: a call with several results in place has no launch list")
        operands = [self.value(f"{name}.{i}", argument) for i, argument in enumerate(call.args[1].fields)]
        self.launch(str(call.args[0].name_hint), operands)
        return int(operands[places[0]])

    def launch(self, function: str, operands: list[int]) -> None:
        """Add the launches of a function's host code, operands in the order of its parameters."""
        names = [str(parameter.name) for parameter in self.signatures[function].params]
        if len(set(zip(names, operands, strict=True))) > len(set(names)):  # a square has its operand twice
            raise CompileError(f"{self.name}: {function}: parameters of one name: {', '.join(names)}")
        host = _HostCode(self, function, dict(zip(names, operands, strict=True)))
        host.visit(self.lowered[function].body)

    def join(self, parts: list[int], whole: int) -> bool:
        """Make the inputs of a concatenation parts of its result to avoid copies; return False if not possible.

        This is possible if channels of one image are concatenated and every input has no other role and starts at a
        valid sub-buffer offset.
        """
        shapes = [self.buffers[index]["shape"] for index in (*parts, whole)]
        if any(len(shape) != 4 or shape[0] != 1 or not all(isinstance(n, int) for n in shape) for shape in shapes):
            return False
        lengths = [self.buffers[index]["bytes"] for index in parts]
        offsets = [sum(lengths[:i]) for i in range(len(parts))]
        joined = sum(shape[1] for shape in shapes[:-1]) == shapes[-1][1]
        alone = len(set(parts)) == len(parts) and all(self.buffers[index]["role"] == "scratch" for index in parts)
        nested = any(buffer.get("within") in parts for buffer in self.buffers)
        if not joined or not alone or nested or "within" in self.buffers[whole]:
            return False
        if any(offset % SUB_BUFFER for offset in offsets):
            return False
        for index, offset in zip(parts, offsets, strict=True):
            self.buffers[index] |= {"role": "part", "within": whole, "offset": offset}
        return True

    def share(self) -> None:
        """Assign one storage to scratch buffers never in use at the same time; varying sizes share only if equal."""
        last: dict[int, int] = {}
        for step, launch in enumerate(self.launches):
            last |= {self.whole(index): step for index in self.operands(launch)}
        free: list[tuple[int, Size]] = []
        busy: list[tuple[int, int, Size]] = []
        storages: dict[int, int] = {}
        for step, launch in enumerate(self.launches):
            free += [(storage, size) for end, storage, size in busy if end < step]
            busy = [entry for entry in busy if entry[0] >= step]
            for operand in self.operands(launch):
                index = self.whole(operand)
                if index in storages or self.buffers[index]["role"] != "scratch":
                    continue
                size = self.buffers[index]["bytes"]
                fits = [f for f in free if f[1] == size or (isinstance(size, int) and isinstance(f[1], int))]
                chosen = min(fits, key=lambda f: abs(_number(f[1]) - _number(size))) if fits else None
                if chosen:
                    free.remove(chosen)
                storages[index] = chosen[0] if chosen else len(set(storages.values()))
                kept = chosen[1] if chosen and _number(chosen[1]) > _number(size) else size
                busy.append((last[index], storages[index], kept))
        for index, storage in storages.items():
            self.buffers[index]["storage"] = storage

    def operands(self, launch: dict[str, Any]) -> list[int]:
        return [argument["buffer"] for argument in launch["arguments"] if "buffer" in argument]

    def whole(self, index: int) -> int:
        """Return the buffer that contains a buffer's memory."""
        return int(self.buffers[index].get("within", index))


class _HostCode:
    """The host code of one function: declared buffers, let-bound sizes, launches."""

    def __init__(self, recorder: Recorder, function: str, operands: dict[str, int]) -> None:
        self.recorder, self.function, self.operands = recorder, function, operands
        self.buffers: dict[Any, int] = {}
        self.lets: dict[Any, Size] = {}

    def visit(self, statement: Any) -> None:
        kind = type(statement).__name__
        if kind == "SeqStmt":
            for part in statement.seq:
                self.visit(part)
        elif kind == "AttrStmt":
            self.visit(statement.body)
        elif kind == "Bind":
            self.bind(statement.var, statement.value)
        elif kind == "DeclBuffer":
            self.declare(statement)
        elif kind == "AllocBuffer":
            buffer = statement.buffer
            shape = [size_of(size, self.lets) for size in buffer.shape]
            self.recorder.buffers.append(_buffer(f"{self.function}.{buffer.name}", "scratch", str(buffer.dtype), shape))
            self.buffers[buffer] = len(self.recorder.buffers) - 1
        elif kind == "Evaluate":
            self.evaluate(statement.value)
        elif kind not in ("AssertStmt", "IfThenElse", "Return"):  # IfThenElse: checks of the arguments' strides
            raise self.unknown(kind)

    def unknown(self, what: str) -> CompileError:
        return CompileError(
            f"{self.recorder.name}: {self.function}: {what} in host code cannot be expressed in an OpenCL launch plan",
            "place this stage on another engine",
        )

    def bind(self, variable: Any, value: Any) -> None:
        if str(variable.name) in self.recorder.symbols:
            self.lets[variable] = str(variable.name)
            return
        try:
            self.lets[variable] = size_of(value, self.lets)
        except CompileError:
            return  # a handle or type index: part of unpacking the arguments

    def declare(self, statement: Any) -> None:
        """Record a view of another buffer or of a parameter's target."""
        source = _pointed(statement.data)
        if source is not None and source in self.buffers:
            self.buffers[statement.buffer] = self.buffers[source]
        elif str(statement.buffer.name) in self.operands:
            self.buffers[statement.buffer] = self.operands[str(statement.buffer.name)]
        else:
            raise self.unknown(f"buffer {statement.buffer.name}")

    def evaluate(self, call: Any) -> None:
        name = str(getattr(call.op, "name", "")) if hasattr(call, "op") else ""
        if name != "tirx.call_ffi_kernel":
            return  # sets the device, or does nothing
        parameters = [str(p) for p in call.attrs.launch_params]
        arguments, extents = call.args[1 : -len(parameters)], call.args[-len(parameters) :]
        sizes = dict(zip(parameters, (size_of(extent, self.lets) for extent in extents), strict=True))
        launch: dict[str, Any] = {
            "kernel": str(call.args[0].value),
            "arguments": [self.argument(argument) for argument in arguments],
            "groups": [sizes.get(f"blockIdx.{axis}", 1) for axis in _AXES],
            "items": [sizes.get(f"threadIdx.{axis}", 1) for axis in _AXES],
        }
        for key, size in sizes.items():
            if key.startswith(("blockIdx.", "threadIdx.")):
                continue
            if key != _SHARED or self.recorder.form != "CUDA":
                raise self.unknown(f"launch parameter {key}")
            launch["shared"] = size
        self.recorder.launches.append(launch)

    def argument(self, expression: Any) -> dict[str, Any]:
        buffer = _pointed(expression)
        if buffer is not None:
            return {"buffer": self.buffers[buffer]}
        return {"value": size_of(expression, self.lets), "dtype": str(expression.ty.dtype)}


class CudaRecorder(Recorder):
    """Its launches may have dynamic shared memory."""

    form = "CUDA"


class CpuRecorder(Recorder):
    """Every call of a function is one launch with tensors as arguments."""

    form = "CPU"

    def launch(self, function: str, operands: list[int]) -> None:
        if packed := _packed(self.signatures[function]):
            raise CompileError(f"{self.name}: the kernel {function} calls TVM's {packed}, which no launch list has")
        self.launches.append({"kernel": function, "arguments": [{"buffer": index} for index in operands]})

    def constant(self, name: str, expression: Any) -> int:
        """Add a buffer for a constant that has none yet."""
        if expression not in self.values:
            self.values[expression] = super().constant(name, expression)
        return int(self.values[expression])

    def without_constants(self, module: Any) -> Any:
        """Return a module whose `main` takes its constants as further arguments, in the order of their buffers."""
        constants = [value for value in self.values if isinstance(value, tvm.ir.GenericConst)]
        names = {value: relax.Var(f"constant{number}", value.ty) for number, value in enumerate(constants)}
        body = _Replaced(names).visit_expr(self.main.body)
        main = relax.Function([*self.main.params, *names.values()], body, self.main.ret_ty, True, self.main.attrs)
        return tvm.IRModule({**dict(module.functions_items()), module.get_global_var("main"): main}, attrs=module.attrs)

    def buffer(self, name: str, role: str, ty: Any) -> int:
        """Add a buffer; its sizes are numbers or single symbols."""
        index = super().buffer(name, role, ty)
        for size in self.buffers[index]["shape"]:
            if isinstance(size, str) and size not in self.symbols and role != "input":
                raise CompileError(f"{self.name}: {name}: the size {size} has no launch list")
        return index


def _packed(function: Any) -> str:
    """Return the first function of TVM's registry that a kernel calls by name, "" if it calls none."""
    names = list[str]()

    def note(call: Any) -> None:
        if getattr(call.op, "name", "").endswith(("call_packed", "call_cpacked")):
            names.append(str(getattr(call.args[0], "value", call.args[0])))

    structural_walk(function.body, (tvm.ir.Call, note))
    return names[0] if names else ""


@relax.expr_functor.mutator
class _Replaced(relax.PyExprMutator):  # type: ignore[misc]
    """Variables in place of constants."""

    def __init__(self, names: dict[Any, Any]) -> None:
        super().__init__()
        self.names = names

    def visit_generic_const_(self, op: Any) -> Any:
        return self.names.get(op, op)


def _pointed(expression: Any) -> Any:
    """Return the buffer whose data pointer an expression is, None for any other expression."""
    args = getattr(expression, "args", None)
    return args[0] if args and isinstance(args[0], tirx.Buffer) else None


def _buffer(name: str, role: str, dtype: str, shape: list[Size]) -> dict[str, Any]:
    element = tvm.DataType(dtype)
    width = (int(element.bits) * int(element.lanes) + 7) // 8
    count = math.prod(size for size in shape if isinstance(size, int)) * width
    sizes = [size for size in shape if isinstance(size, str)]
    elements: Size = " * ".join([str(count), *sizes]) if sizes else count
    return {"name": name, "role": role, "dtype": dtype, "shape": shape, "bytes": elements}


def _number(size: Size) -> int:
    return size if isinstance(size, int) else 0


def size_of(expression: Any, lets: dict[Any, Size]) -> Size:
    """Return a size as a number or text; CompileError if it is neither arithmetic nor known."""
    kind = type(expression).__name__
    if isinstance(expression, int):
        return expression
    if kind == "IntImm":
        return int(expression.value)
    if kind == "Var":
        if expression in lets:
            return lets[expression]
        return str(expression.name)
    if kind == "Cast":
        return size_of(expression.value, lets)
    if kind in _INFIX:
        return f"({size_of(expression.a, lets)} {_INFIX[kind]} {size_of(expression.b, lets)})"
    if kind in ("Min", "Max"):
        return f"{kind.lower()}({size_of(expression.a, lets)}, {size_of(expression.b, lets)})"
    raise CompileError(f"{kind} is not an arithmetic operation on sizes")
