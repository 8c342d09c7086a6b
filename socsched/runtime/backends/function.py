"""Host functions of built-in models: voxelisation, decoding, image preprocessing."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from socsched.compiler.native.host_stages import compiled_stages
from socsched.descriptor.pipeline import Stage
from socsched.models.registry import get_model
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Setting, gather


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
