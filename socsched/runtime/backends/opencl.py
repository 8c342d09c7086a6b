"""Stages on the first OpenCL device: kernels of networks and functions, run to completion."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from socsched.descriptor.pipeline import Stage
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Placed, Setting, gather
from socsched.runtime.backends.device_code import compiled

if TYPE_CHECKING:
    from socsched.compiler.targets.opencl.device import Device


class OpenClBackend:
    """Compiles a stage for its planned engine, or takes it from the cache; one instance serves a run.

    Tensors are copied to the device and back for every stage.  Outputs of a function lose their unused rows.
    """

    title = "OpenCL"
    real = True

    def __init__(self) -> None:
        self._device: Device | None = None
        self._lock = threading.Lock()

    def prepare(self, task: Task, stage: Stage | None, setting: Setting) -> Call:
        """Return the loaded stage with its inputs bound; input tensors are converted to its input layouts."""
        from socsched.compiler.targets.gpu_functions.program import valid_rows
        from socsched.compiler.targets.opencl.device import Device
        from socsched.compiler.targets.opencl.run import OpenClStage

        assert stage is not None
        artifact = compiled(task, stage, setting)
        with self._lock:
            self._device = self._device or Device()
            run = OpenClStage(artifact, self._device)
        inputs = {name: setting.bound[stage.name][name] for name in artifact.input_names}

        def call(values: Mapping[str, Outputs]) -> Outputs:
            found = dict(zip(artifact.output_names, run(*gather(inputs, values, artifact.inputs)), strict=True))
            rows = valid_rows(found)
            placed = zip(found.items(), artifact.outputs, strict=True)
            return {name: Placed(array[:rows], kind) for (name, array), kind in placed}

        return call
