"""Stages of accelerators in their vendor's simulator: what the vendor's own compiler makes of them, computed here.

Each stage has a helper process with the compiled model loaded (`compiler.toolchains`); tensors cross the border
as fp32 in plain layout, and the model converts them as it does on the device.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.toolchains.package import MODEL
from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.planning.plan import Task
from socsched.runtime.backends.base import Call, Outputs, Setting, gather
from socsched.runtime.backends.tvm_cpu import scales_of, weights_of


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
