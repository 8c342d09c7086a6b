"""Network stages in ONNX Runtime within this process: references of bundles, and runs that replace the executor's."""

from __future__ import annotations

from collections.abc import Mapping

from socsched.descriptor.pipeline import Stage
from socsched.graph.operators import TensorType
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Setting, gather
from socsched.runtime.backends.tvm_cpu import known_scales, weights_of


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
