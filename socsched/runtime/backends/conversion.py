"""Conversions between layouts and data types on a CPU, planned as separate tasks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from socsched.descriptor.pipeline import Stage
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.registry import get_model
from socsched.planning.plan import Task, Transition
from socsched.runtime.backends.base import Call, Outputs, Placed, Setting, to_layout


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
