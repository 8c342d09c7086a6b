"""The pipeline as planned: stages that the plan cuts are replaced by their parts."""

from __future__ import annotations

from socsched.descriptor.pipeline import Pipeline
from socsched.models.parts import PartOf, cut_pipeline, part_of
from socsched.models.tiles import split_into_tiles, tile_of
from socsched.planning.plan import Plan


def as_planned(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Return a pipeline with the networks cut where `plan` cuts them, as needed to compile or run a plan."""
    parts: dict[str, list[PartOf]] = {}
    for task in plan.tasks:
        part = part_of(task.params) if task.kind == "stage" else None
        if part is not None:
            parts.setdefault(part.stage, []).append(part)
    tiles = [tile for task in plan.tasks if task.kind == "stage" and (tile := tile_of(task.params))]
    if tiles:
        pipeline = split_into_tiles(pipeline, {tile.stage: tile.grid for tile in tiles})
    if not parts:
        return pipeline
    ordered = {stage: sorted(found, key=lambda part: part.number) for stage, found in parts.items()}
    return cut_pipeline(pipeline, ordered)
