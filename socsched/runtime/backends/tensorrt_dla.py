"""Stages through TensorRT's Python interface, on a DLA core (built once, placement audited) or on the GPU.

An engine is built from the stage's ONNX package (`compiler.toolchains`) without GPU fallback.  Every layer is
checked first: layers a DLA cannot run are reported before the build.  Engines are cached under a digest of their
sources; the core is chosen at load time, so both cores share an engine.

TensorRT documentation, "Working with DLA"; 10.7 is the last general release with DLA, 11.4.1 restores it for Orin on
JetPack 7.2.2, and 11.0 to 11.3 have none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from socsched.cache import cache_dir
from socsched.compiler.toolchains.tensorrt import dla_refusal
from socsched.errors import MachineError
from socsched.files import write_file

MODEL = Path("/proc/device-tree/model")


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a layer by TensorRT: `device` is DLA or GPU."""

    layer: str
    kind: str
    device: str


@dataclass(frozen=True, slots=True)
class Package:
    """An exported stage: the ONNX file, fp16 or int8, and for int8 the calibration cache.

    `borders`: data type and TensorRT format of every input and output tensor; without them, TensorRT reformats there.
    """

    onnx: Path
    precision: str
    calibration: Path | None = None
    borders: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def digest(self, version: str) -> str:
        """Return the cache key of an engine of this package."""
        lying = sorted(self.borders.items())
        total = hashlib.sha256(f"{version}/{self.precision}/{lying}/".encode() + self.onnx.read_bytes())
        if self.calibration is not None:
            total.update(self.calibration.read_bytes())
        return total.hexdigest()[:24]


def tensorrt(dla: bool = True, model: str | None = None) -> Any:
    """Return the TensorRT module; raise MachineError if it is not installed or, with `dla`, its release has none here.

    `model`: the board's name, None for that of this machine.
    """
    try:
        module = import_module("tensorrt")
    except ImportError as error:
        raise MachineError(f"TensorRT is not installed: {error}", "install JetPack's python3-libnvinfer") from None
    board = (MODEL.read_text(errors="replace") if MODEL.is_file() else "") if model is None else model
    if dla and (reason := dla_refusal(module.__version__, board)):
        raise MachineError(reason, "DLA needs TensorRT up to 10.7, or 11.4.1 and later on a Jetson AGX Orin")
    return module


class DlaBuilder:
    """Builds engines for a DLA core, or for the GPU where the core is None; `trt` is the TensorRT module."""

    def __init__(self, trt: Any) -> None:
        self._trt = trt
        self._logger = trt.Logger(trt.Logger.WARNING)

    def engine(self, package: Package, core: int | None) -> bytes:
        """Return the package's engine, cached or newly built; raise MachineError for layers a DLA cannot run."""
        folder = cache_dir() / ("tensorrt-gpu" if core is None else "dla")
        file = folder / f"{package.digest(self._trt.__version__)}.engine"
        if file.is_file():
            return file.read_bytes()
        builder, network, config = self._configured(package, core)
        placement = [] if core is None else self._audit(network, config)
        if strays := [p for p in placement if p.device != "DLA"]:
            names = ", ".join(f"{p.layer} ({p.kind})" for p in strays)
            raise MachineError(
                f"{package.onnx.name}: layers that a DLA cannot run: {names}",
                "cut the stage there, or keep it on the GPU",
            )
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise MachineError(f"{package.onnx.name}: TensorRT built no engine", "see its log above")
        data = bytes(plan)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, data)
        rows = [{"layer": p.layer, "kind": p.kind, "device": p.device} for p in placement]
        write_file(file.with_suffix(".json"), json.dumps(rows, indent=1))
        return data

    def placement(self, package: Package, core: int) -> list[Placement]:
        """Return the placement of every layer."""
        _, network, config = self._configured(package, core)
        return self._audit(network, config)

    def _configured(self, package: Package, core: int | None) -> tuple[Any, Any, Any]:
        trt = self._trt
        builder = trt.Builder(self._logger)
        if core is not None and core >= builder.num_DLA_cores:
            raise MachineError(
                f"DLA core {core} does not exist, this machine has {builder.num_DLA_cores}", "see `socsched doctor`"
            )
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
        parser = trt.OnnxParser(network, self._logger)
        if not parser.parse(package.onnx.read_bytes()):
            errors = "; ".join(str(parser.get_error(n)) for n in range(parser.num_errors))
            raise MachineError(f"{package.onnx.name}: TensorRT cannot read it: {errors}", "export the stage again")
        config = builder.create_builder_config()
        if core is not None:
            config.default_device_type = trt.DeviceType.DLA
            config.DLA_core = core
        if package.precision != "fp32":  # int8 stages keep fp16 for tensors without a scale
            config.set_flag(trt.BuilderFlag.FP16)
        if package.precision == "int8":
            config.set_flag(trt.BuilderFlag.INT8)
            assert package.calibration is not None
            config.int8_calibrator = _calibrator(trt, package.calibration.read_bytes())
        if package.borders:
            if core is not None:
                config.set_flag(trt.BuilderFlag.DIRECT_IO)
            _lay(trt, network, package.borders)
        return builder, network, config

    def _audit(self, network: Any, config: Any) -> list[Placement]:
        found = []
        for number in range(network.num_layers):
            layer = network.get_layer(number)
            device = "DLA" if config.can_run_on_DLA(layer) else "GPU"
            found.append(Placement(str(layer.name), str(layer.type).rsplit(".", 1)[-1], device))
        return found


class DlaStage:
    """An engine loaded on a DLA core, or on the GPU (None), with one execution context.

    `bind` the buffers of a slot, then `enqueue`.
    """

    def __init__(self, trt: Any, data: bytes, core: int | None) -> None:
        runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))
        if core is not None:
            runtime.DLA_core = core
        engine = runtime.deserialize_cuda_engine(data)
        if engine is None:
            where = "the GPU" if core is None else f"DLA core {core}"
            raise MachineError(f"the engine cannot be loaded on {where}", "delete its file; it is built again")
        self._held = (runtime, engine)
        self._context = engine.create_execution_context()
        self.names: tuple[str, ...] = tuple(engine.get_tensor_name(n) for n in range(engine.num_io_tensors))

    def again(self) -> DlaStage:
        """Return the same engine with a new execution context."""
        other = DlaStage.__new__(DlaStage)
        other._held, other.names = self._held, self.names
        other._context = self._held[1].create_execution_context()
        return other

    def bind(self, addresses: Mapping[str, int]) -> None:
        """Set the tensor addresses, one for each of `names`."""
        for name in self.names:
            self._context.set_tensor_address(name, addresses[name])

    def enqueue(self, stream: int) -> None:
        """Queue the stage on a CUDA stream."""
        if not self._context.execute_async_v3(stream):
            raise MachineError("TensorRT refused to queue the stage", "see its log above")


def _lay(trt: Any, network: Any, borders: Mapping[str, tuple[str, str]]) -> None:
    """Set the data types and formats of a network's inputs and outputs from `borders`."""
    ends = [network.get_input(n) for n in range(network.num_inputs)]
    ends += [network.get_output(n) for n in range(network.num_outputs)]
    dtypes = {"fp32": getattr(trt, "float32", None), "fp16": trt.float16, "int8": trt.int8}
    if others := {tensor.name for tensor in ends} ^ borders.keys():
        raise MachineError(
            f"TensorRT's tensors differ from the stage's: {', '.join(sorted(others))}", "export the stage again"
        )
    for tensor in ends:
        dtype, layout = borders[tensor.name]
        tensor.dtype = dtypes[dtype]
        tensor.allowed_formats = 1 << int(getattr(trt.TensorFormat, layout))


def _calibrator(trt: Any, cache: bytes) -> Any:
    """Return a calibrator that only reads its cache: the scales were determined elsewhere."""

    class Cached(trt.IInt8EntropyCalibrator2):  # type: ignore[misc]
        def get_batch_size(self) -> int:
            return 1

        def get_batch(self, names: Sequence[str]) -> None:
            return None

        def read_calibration_cache(self) -> bytes:
            return cache

        def write_calibration_cache(self, cache: bytes) -> None:
            return None

    return Cached()
