"""Built-in models by name, and the binding of tensors between stages.

A model is a network (lowered by the compiler) or a function (host code).  Its ports are named; a stage's input port is
bound to the nearest ancestor stage (along `after`, then `reads`) that has an output port of that name, or to a sensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from socsched import plugins
from socsched.errors import UsageError
from socsched.models.model import Model
from socsched.models.parts import part_model, part_of

if TYPE_CHECKING:  # descriptors need pydantic, which a board that runs a bundle does not have
    from socsched.descriptor.pipeline import Pipeline

GROUP = "socsched.models"


def get_model(name: str, params: Mapping[str, Any] | None = None) -> Model:
    """Return the built-in model `name` for `params`; UsageError for an unknown name or an invalid param.

    The param `part` selects a part of the network (`models.parts`).
    """
    if name not in plugins.names(GROUP):
        raise UsageError(f"no built-in model {name!r}", f"built-in models: {', '.join(plugins.names(GROUP))}")
    factory = plugins.load(GROUP, name)
    settings = dict(params or {})
    cut = settings.pop("part", None)
    model: Model = factory(settings)
    if cut is None:
        return model
    part = part_of({"part": cut})
    if part is None or model.network is None:
        raise UsageError(f"{name!r} is not a network: it has no parts")
    return part_model(model, part)


def bindings(pipeline: Pipeline) -> dict[str, dict[str, str]]:
    """Return, for every stage with a model, input port name -> the stage or sensor that provides it.

    Raises UsageError when a port has no provider among the stage's ancestors; a sensor provides any port that no
    ancestor stage does.
    """
    stages = {stage.name: stage for stage in pipeline.stages}
    sensors = {sensor.name for sensor in pipeline.sensors}
    outputs = {
        stage.name: {port.name for port in get_model(stage.model, stage.params).outputs} if stage.model else set()
        for stage in pipeline.stages
    }
    bound: dict[str, dict[str, str]] = {}
    for stage in pipeline.stages:
        if not stage.model:
            continue
        bound[stage.name] = {}
        for port in get_model(stage.model, stage.params).inputs:
            queue, visited, provider = [*stage.after, *stage.reads], set(), None
            while queue and provider is None:
                name = queue.pop(0)
                if name in visited:
                    continue
                visited.add(name)
                if name in sensors:
                    if not any(n in stages and port.name in outputs[n] for n in queue):
                        provider = name
                elif port.name in outputs[name]:
                    provider = name
                else:
                    queue += [*stages[name].after, *stages[name].reads]
            if provider is None:
                raise UsageError(
                    f"stage {stage.name!r}: no stage that it reads provides its input {port.name!r}",
                    "name the stage that produces it under `after` or `reads`",
                )
            bound[stage.name][port.name] = provider
    return bound
