"""The backends that come with socsched, one class a sort of stage; `plugins.BUILT_IN` names them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.artifact import Artifact
from socsched.compiler.native.host_stages import compiled_stages
from socsched.compiler.toolchains.package import MODEL
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Task, Transition
from socsched.runtime.backends import Call, Outputs, Placed, Setting, gather, to_layout

# Artefacts of a run's stages, and networks on this machine's CPU: a virtual machine of TVM per worker thread.


class TvmCpuBackend:
    """Compiles a stage for its planned engine, precision and lanes, or takes it from the cache, and loads it."""

    title = "TVM"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the loaded stage with its inputs bound; input tensors are converted to its input layouts."""
        from socsched.compiler.loading.stages import load

        assert stage is not None
        artifact = compiled(task, stage, setting)
        loaded, bound = load(artifact), setting.bound[stage.name]
        inputs = {name: bound[name] for name in artifact.input_names}

        def call(values: Mapping[str, Outputs]) -> Outputs:
            arrays = loaded(*gather(inputs, values, artifact.inputs))
            placed = map(Placed, arrays, artifact.outputs)
            return dict(zip(artifact.output_names, placed, strict=True))

        return call


def weights_of(setting: Setting) -> Mapping[str, Any] | None:
    """Return the weights of a run's weights file, None without one."""
    return _weights(setting.weights) if setting.weights else None


def scales_of(setting: Setting, stage: Stage) -> Any:
    """Return the int8 scales of a stage from a run's scales file, None without one."""
    from socsched.compiler.quantize.scales import of_stage

    return of_stage(_scales(setting.scales), stage) if setting.scales else None


def known_scales(setting: Setting, stage: Stage, precision: str) -> Any:
    """Return the int8 scales of a stage for another program than our code: given, shipped, or of drawn weights."""
    from socsched.compiler.builder import drawn_scales, network_of, shipped_scales

    scales = scales_of(setting, stage)
    if scales is None and setting.weights is None and precision == "int8":
        scales = shipped_scales(network_of(stage)[0]) or drawn_scales(stage)
    return scales


@lru_cache(maxsize=1)
def _scales(path: Path) -> Mapping[str, Any]:
    from socsched.compiler.quantize.scales import read_pipeline_scales

    return read_pipeline_scales(path)


@lru_cache(maxsize=1)
def _weights(path: Path) -> Mapping[str, Any]:
    from socsched.models.weights import load_weights

    return load_weights(path)


# Artefacts of the stages of a run.


def compiled(task: Task, stage: Stage, setting: Setting) -> Artifact:
    """Return the artefact of a network or function for its planned engine and lanes, built unless cached."""
    from socsched.compiler.builder import border_precision, compile_function, compile_stage, is_device_function

    engine = setting.platform.engine(task.engine)
    if is_device_function(stage, engine):
        placed = {t.name: (t.engine, t.precision) for t in setting.plan.tasks if t.kind == "stage"}
        return compile_function(stage, engine, border_precision(stage, setting.pipeline, engine, placed))
    scales = scales_of(setting, stage)
    return compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes), scales=scales)


# Host functions of built-in models: voxelisation, decoding, image preprocessing.


class FunctionBackend:
    """Calls `Model.function` with the arrays in port order, using compiled stages if available."""

    title = "host function"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the model's function with its inputs bound."""
        assert stage is not None and stage.model is not None
        model = get_model(stage.model, stage.params)
        function, inputs = model.function, setting.bound[stage.name]
        assert function is not None
        if model.compiled and (compiled := compiled_stages()) is not None:
            function = partial(function, compiled=compiled)
        names = [port.name for port in model.outputs]

        def call(values: Mapping[str, Outputs]) -> Outputs:
            return dict(zip(names, function(*gather(inputs, values)), strict=True))

        return call


# Conversions between layouts and data types on a CPU, planned as separate tasks.


class ConversionBackend:
    """Converts tensors passed between two stages to the planned data type and layout; others pass through.

    The outputs have the ports of the source, so that the sink finds them in place and converts nothing itself.
    """

    title = "conversion"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the conversion of the plan's transition with this task."""
        move = next(t for t in setting.plan.transitions if t.task == task.name)
        wanted = target_types(move, setting)

        def call(values: Mapping[str, Outputs]) -> Outputs:
            tensor = values[move.source]
            return {port: convert_tensor(tensor[port], kind) for port, kind in wanted.items()}

        return call


def convert_tensor(value: Any, kind: TensorType) -> Placed:
    """Return a tensor in the layout and type of `kind`; it keeps its own size, that of `kind` is nominal."""
    shape = value.type.shape if isinstance(value, Placed) else value.shape
    kind = TensorType(shape, kind.dtype, kind.layout)
    return Placed(to_layout(value, kind), kind)


def target_types(move: Transition, setting: Setting) -> dict[str, TensorType]:
    """Return the target type of each port that crosses a transition: its layout for images, its dtype for numbers."""
    source = setting.pipeline.stage(move.source)
    outputs = {port.name: port.type for port in get_model(source.model or "", source.params).outputs}
    crossing = [port for port, provider in setting.bound[move.sink].items() if provider == move.source]
    return {port: _lying(outputs[port], move) for port in crossing}


def _lying(kind: TensorType, move: Transition) -> TensorType:
    from socsched.compiler.layouts import parse_layout

    dtype = move.dtype_to if kind.dtype in ("fp32", "fp16") and move.dtype_to in ("fp32", "fp16") else kind.dtype
    layout = kind.layout
    if len(kind.shape) == 4 and move.layout_to:
        # tensors that cross together may have several layouts, joined in the plan: then the sink converts them
        with suppress(UsageError):
            parse_layout(move.layout_to)
            layout = move.layout_to
    return TensorType(kind.shape, dtype, layout)


# Network stages in ONNX Runtime within this process: references of bundles, and runs that replace the executor's.


class OnnxRuntimeBackend:
    """Opens a session for a stage with a thread for each of its lanes; tensors are plain."""

    title = "ONNX Runtime"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the loaded stage with its inputs bound."""
        import onnxruntime

        from socsched.compiler.toolchains.onnx_runtime import model_folder

        assert stage is not None
        engine = setting.platform.engine(task.engine)
        scales = known_scales(setting, stage, task.precision)
        document, folder = model_folder(stage, engine, task.precision, weights_of(setting), scales)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = len(task.lanes), 4
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        bound = setting.bound[stage.name]
        inputs = {entry["port"]: bound[entry["port"]] for entry in document["inputs"]}
        names = [entry["name"] for entry in document["inputs"]]
        kinds = [
            TensorType(tuple(entry["shape"]), entry["dtype"], "NCHW" if len(entry["shape"]) == 4 else "")
            for entry in document["inputs"]
        ]
        ports = {entry["name"]: entry["port"] for entry in document["outputs"]}

        def call(values: Mapping[str, Outputs]) -> Outputs:
            arrays = session.run(list(ports), dict(zip(names, gather(inputs, values, kinds), strict=True)))
            return dict(zip(ports.values(), arrays, strict=True))

        return call


# Stages with only a planned execution time: a load that keeps its lanes busy for that time.
#
# The same technique as the number cruncher of the ROS 2 reference system (ros-realtime/reference-system): real CPU
# time on the real core, synthetic work.  The loop counts its own CPU time, not wall-clock time, so that a stage
# disturbed by others ends later, as a real one would.  A pass is a numpy operation, which lets other threads run.

_PASS = 16384
"""Numbers per pass: about 10 us of work, small enough for the second-level cache of any core."""


class SyntheticBackend:
    """Occupies the job's first lane for `Task.cost_ns` of CPU time; further lanes stay reserved but idle."""

    title = "synthetic load of the planned time"
    real = False

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return a load of the task's planned cost."""

        def call(values: Mapping[str, Outputs]) -> Outputs:
            burn(task.cost_ns)
            return {}

        return call


def burn(cost_ns: int) -> None:
    """Consume `cost_ns` of this thread's CPU time."""
    import numpy

    numbers = numpy.full(_PASS, 1.000001, numpy.float64)
    end = time.thread_time_ns() + cost_ns
    while time.thread_time_ns() < end:
        numpy.multiply(numbers, numbers, out=numbers)
        numpy.minimum(numbers, 2.0, out=numbers)


# Stages of accelerators in their vendor's simulator: what the vendor's own compiler makes of them, computed here.
#
# Each stage has a helper process with the compiled model loaded (`compiler.toolchains`); tensors cross the border
# as fp32 in plain layout, and the model converts them as it does on the device.


class VendorSimBackend:
    """Compiles a stage with its vendor's compiler, or takes it from the cache, and loads it into the simulator."""

    title = "vendor's simulator"
    real = True

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the loaded stage with its inputs bound; raise UsageError for an engine without such a simulator."""
        if stage is None:
            raise UsageError(
                f"conversion {task.name!r} is planned on {task.engine}, which performs no conversions", "plan again"
            )
        engine, weights = setting.platform.engine(task.engine), weights_of(setting)
        simulated = Simulated.of(stage, engine, task.precision, weights, scales_of(setting, stage))
        bound = setting.bound[stage.name]
        inputs = {port: bound[port] for port in simulated.inputs}

        def call(values: Mapping[str, Outputs]) -> Outputs:
            return simulated(gather(inputs, values))

        return call


class Simulated:
    """A stage loaded into its vendor's simulator; `inputs` and `outputs` map the model's ports to tensor names."""

    def __init__(self, helper: Any, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self._helper, self.inputs, self.outputs = helper, inputs, outputs
        self._ends = weakref.finalize(self, helper.close)

    @classmethod
    def of(cls, stage: Stage, engine: Any, precision: str, weights: Any = None, scales: Any = None) -> Simulated:
        """Return `stage` compiled and loaded; parameters and errors are those of `hand_over.prepare`."""
        from socsched.compiler.builder import network_of, shipped_scales
        from socsched.compiler.toolchains.environments import Helper, environment
        from socsched.compiler.toolchains.hand_over import build, model_for, prepare, vendor_compiler

        compiler = vendor_compiler(engine)
        if compiler is None:
            raise UsageError(f"{engine.id}: {engine.operators.runtime or 'it'} has no compiler that runs here")
        if scales is None and weights is None and precision == "int8":
            scales = shipped_scales(network_of(stage)[0])
        prepared = prepare(stage, engine, precision, weights, None, scales)
        model = model_for(compiler, prepared.package, prepared.onnx)
        built = build(compiler, prepared.package, model)
        helper = Helper(environment(compiler.environment))
        try:
            (helper.folder / MODEL).write_bytes(model)
            for name in built.files:
                (helper.folder / name).write_bytes((built.folder / name).read_bytes())
            helper.ask("load", model=compiler.simulates or MODEL, target=dict(built.target))
        except BaseException:
            helper.close()
            raise
        names, package = prepared.names, prepared.package
        inputs = {names.get(name, name): name for name in package.inputs}
        return cls(helper, inputs, {names.get(name, name): name for name in package.outputs})

    def __call__(self, arrays: list[Any]) -> dict[str, Any]:
        """Return the outputs by port for input arrays in the order of `inputs`."""
        folder = self._helper.folder
        given = {name: f"in{index}.npy" for index, name in enumerate(self.inputs.values())}
        made = {name: f"out{index}.npy" for index, name in enumerate(self.outputs.values())}
        for file, array in zip(given.values(), arrays, strict=True):
            np.save(folder / file, np.ascontiguousarray(array, np.float32), allow_pickle=False)
        self._helper.ask("run", inputs=given, outputs=made)
        results = [np.load(folder / file, allow_pickle=False) for file in made.values()]
        return dict(zip(self.outputs, results, strict=True))

    def close(self) -> None:
        """End the simulator's process."""
        self._ends()
