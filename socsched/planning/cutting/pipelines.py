"""Pipelines with networks in parts: cut because no engine takes them whole, as preferred, or as a plan has cut them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.errors import UsageError
from socsched.models.parts import PartOf, cut_pipeline, part_of, parts_of
from socsched.models.sizes import SIZES
from socsched.planning.cutting.divisible import Divisible, Legs, divisible
from socsched.planning.cutting.segmentation import duration_ns, segmentations
from socsched.planning.plan import Plan


@dataclass(frozen=True, slots=True)
class RequiredCuts:
    """A pipeline without stages that only parts of a network can run, as far as cutting helps.

    `floors`: least time (ns) by part, wherever the network is cut: that of the whole at its first part; `notes`: where
    each network is cut, and that it has to be.
    """

    pipeline: Pipeline
    floors: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def cut_unmappable(pipeline: Pipeline, models: Sequence[CostModel]) -> RequiredCuts:
    """Return the pipeline with every stage cut that no engine runs whole in any mode and several engines run in parts.

    Of the cuts that `segmentations` lists, the fastest in sequence is taken; engines of the parts stay free.
    """
    floors, notes = dict[str, int](), dict[str, str]()
    for stage in pipeline.stages:
        if stage.model is None or any(model.candidates(stage) for model in models):
            continue
        divided, legs = _fastest(pipeline, stage, models)
        if divided is None:
            continue
        cuts = [divided.cuts[leg.end - 1] for leg in legs[:-1]]
        parts = parts_of(stage.name, divided.network, cuts, divided.types)
        pipeline = cut_pipeline(pipeline, {stage.name: parts})
        floors |= dict.fromkeys((part.name for part in parts), 0)
        floors[parts[0].name] = divided.floor_ns()
        notes[stage.name] = f"no engine takes it whole: cut after {', '.join('+'.join(cut) for cut in cuts)}"
    return RequiredCuts(pipeline, floors, notes)


def _fastest(pipeline: Pipeline, stage: Stage, models: Sequence[CostModel]) -> tuple[Divisible | None, Legs]:
    """Return a stage in units with its fastest cut, in the first mode that has one; None without any."""
    for model in models:
        divided = divisible(pipeline, stage, model)
        ways = segmentations(divided) if divided else []
        timed = {legs: time for legs in ways if divided and (time := duration_ns(divided, legs)) is not None}
        if timed:
            return divided, min(timed, key=lambda legs: (timed[legs], len(legs)))
    return None, ()


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


def _as_sized(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Return a pipeline with the sizes that its networks have in a plan."""
    own = {
        (part.stage if (part := part_of(task.params)) else task.name): {
            key: task.params[key] for key in SIZES if key in task.params
        }
        for task in plan.tasks
        if task.kind == "stage"
    }
    stages = (replace(stage, params={**stage.params, **own.get(stage.name, {})}) for stage in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))


def as_planned(pipeline: Pipeline, plan: Plan) -> Pipeline:
    """Return a pipeline with the networks cut where `plan` cuts them, as needed to compile or run a plan."""
    pipeline = _as_sized(pipeline, plan)
    parts: dict[str, list[PartOf]] = {}
    for task in plan.tasks:
        part = part_of(task.params) if task.kind == "stage" else None
        if part is not None:
            parts.setdefault(part.stage, []).append(part)
    if not parts:
        return pipeline
    ordered = {stage: sorted(found, key=lambda part: part.number) for stage, found in parts.items()}
    return cut_pipeline(pipeline, ordered)
