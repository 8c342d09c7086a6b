"""What a manifest says of a pipeline's stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.descriptor.pipeline import Pipeline
from socsched.graph.taskgraph import task_graph
from socsched.models.registry import bindings, get_model


def sort_of(model: str | None, params: Mapping[str, Any]) -> str:
    """Return the kind of a stage for an executor: network, function, or timed (known only by its execution times)."""
    if model is None:
        return "timed"
    return "network" if get_model(model, params).network is not None else "function"


def stages(
    pipeline: Pipeline, artifacts: list[dict[str, Any]], handovers: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the stages in execution order, each with its inputs and the indices of its artefacts."""
    bound = bindings(pipeline)
    entries = []
    for name in task_graph(pipeline).order:
        stage = pipeline.stage(name)
        sort = sort_of(stage.model, stage.params)
        entries.append(
            {
                "name": name,
                "sort": sort,
                "model": stage.model,
                "params": dict(stage.params) if sort == "function" else {},
                "inputs": bound.get(name, {}),
                "artifacts": [i for i, a in enumerate(artifacts) if a["stage"] == name and not a["part"]],
                "handovers": [i for i, h in enumerate(handovers) if h["stage"] == name],
            }
        )
    return entries
