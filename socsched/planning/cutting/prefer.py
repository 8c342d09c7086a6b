"""Preferred engines of a network: parts fixed there as far as the engine accepts its layers, the rest anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.errors import UsageError
from socsched.models.parts import cut_pipeline, parts_of
from socsched.planning.cutting.divisible import Divisible, divisible

PARTS = 16
"""Maximum number of parts of a network; the shortest runs of units on a preferred engine are released first."""


def with_preferences(pipeline: Pipeline, model: CostModel, wishes: Mapping[str, Sequence[str]]) -> Pipeline:
    """Return the pipeline with stages on their preferred engines: whole if one accepts all layers, else in parts.

    `wishes`: engines (ids or kinds) by stage; each layer goes to the first that accepts it, and layers that none
    accepts may run anywhere.  UsageError if no layer of a stage can run on any of its engines.
    """
    for name, engines in wishes.items():
        pipeline = _preferring(pipeline, pipeline.stage(name), model, tuple(engines))
    return pipeline


def _preferring(pipeline: Pipeline, stage: Stage, model: CostModel, engines: tuple[str, ...]) -> Pipeline:
    able = {cost.engine for cost in model.candidates(stage)}
    if whole := _first(model, engines, able):
        stages = tuple(replace(s, engines=(whole,)) if s.name == stage.name else s for s in pipeline.stages)
        return replace(pipeline, stages=stages)
    divided = divisible(pipeline, stage, model)
    legs = _legs(model, divided, engines) if divided else []
    if divided is None or not any(engine for _, engine in legs):
        against = "; ".join(dict.fromkeys(str(r) for r in model.refused(stage) if _is(model, r.engine, engines)))
        raise UsageError(f"--prefer: no layer of {stage.name!r} can run on {', '.join(engines)}", against)
    parts = parts_of(stage.name, divided.network, [divided.cuts[end - 1] for end, _ in legs[:-1]], divided.types)
    chosen = {part.name: engine for part, (_, engine) in zip(parts, legs, strict=True) if engine}
    cut = cut_pipeline(pipeline, {stage.name: parts})
    return replace(
        cut, stages=tuple(replace(s, engines=(chosen[s.name],)) if s.name in chosen else s for s in cut.stages)
    )


def _is(model: CostModel, engine: str, names: Sequence[str]) -> bool:
    return engine in names or model.platform.engine(engine).kind in names


def _first(model: CostModel, names: Sequence[str], able: set[str]) -> str:
    """Return the first of some engines or kinds that matches an engine in `able`, "" for none."""
    return next((name for name in names if any(_is(model, engine, (name,)) for engine in able)), "")


def _legs(model: CostModel, stage: Divisible, engines: Sequence[str]) -> list[tuple[int, str]]:
    """Return (end unit, engine or "" for any) of consecutive parts."""
    chosen = [_first(model, engines, set(floor.lanes_ns)) for floor in stage.floors]
    while True:
        legs: list[tuple[int, str]] = []
        for unit, engine in enumerate(chosen, 1):
            if legs and legs[-1][1] == engine:
                legs[-1] = (unit, engine)
            else:
                legs.append((unit, engine))
        if len(legs) <= PARTS:
            return legs
        begins = [0, *(end for end, _ in legs[:-1])]
        stretches = [
            (sum(floor.time_ns for floor in stage.floors[begin:end]), begin, end)
            for begin, (end, engine) in zip(begins, legs, strict=True)
            if engine
        ]
        _, begin, end = min(stretches)
        chosen[begin:end] = [""] * (end - begin)
