"""A TensorRT whose engines compute on the fake device what the stage's simulated engine computes, in recorded time."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_board import tensorrt
from fake_device import FakeDevice

from socsched.compiler.artifact import Artifact
from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.compiler.loading.stages import load


def replaying(device: FakeDevice, artifact: Artifact, names: tuple[str, ...], took_ms: float, **known: Any) -> Any:
    """Return a TensorRT module with one stage: `artifact` computes it, `names` are its tensors, inputs first."""
    module = tensorrt(**known)
    stage = load(artifact)
    inputs = names[: len(artifact.inputs)]
    borders = [SimpleNamespace(name=name, dtype=None, allowed_formats=0) for name in names]
    module.float16, module.int8 = "float16", "int8"
    module.TensorFormat = SimpleNamespace(CHW16=4, CHW32=5, DLA_LINEAR=9)
    module.BuilderFlag.DIRECT_IO = "DIRECT_IO"
    plain_network = module.Builder.create_network

    def create_network(self: Any, flags: int) -> Any:
        network = plain_network(self, flags)
        network.num_inputs, network.num_outputs = len(inputs), len(names) - len(inputs)
        network.get_input = lambda n: borders[n]
        network.get_output = lambda n: borders[len(inputs) + n]
        return network

    class Context:
        def __init__(self) -> None:
            self.places: dict[str, int] = {}

        def set_tensor_address(self, name: str, address: int) -> None:
            self.places[name] = address

        def execute_async_v3(self, stream: int) -> bool:
            module.log.append(("enqueued", stream))
            places = {name: device.at(address) for name, address in self.places.items()}

            def run() -> None:
                time.sleep(took_ms / 1e3)
                made = stage(*(places[name].array for name in inputs))
                for name, array, kind in zip(names[len(inputs) :], made, artifact.outputs, strict=True):
                    target = places[name]
                    assert target.array.dtype == NUMPY_DTYPES[kind.dtype]
                    target.array = np.array(array).reshape(target.array.shape)

            device.queue(stream, "dla", run)
            return True

    class Engine:
        num_io_tensors = len(names)

        def get_tensor_name(self, number: int) -> str:
            return names[number]

        def create_execution_context(self) -> Context:
            return Context()

    class Runtime(module.Runtime):  # type: ignore[misc]
        def deserialize_cuda_engine(self, data: bytes) -> Engine | None:
            return Engine() if super().deserialize_cuda_engine(data) is not None else None

    module.Builder.create_network = create_network
    module.Runtime, module.borders = Runtime, borders
    return module
