"""Cuts that a pipeline requires: networks that no engine takes whole, divided into parts that engines take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from socsched.cost.model import CostModel
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.models.parts import cut_pipeline, parts_of
from socsched.planning.cutting.divisible import Divisible, Legs, divisible
from socsched.planning.cutting.segmentation import duration_ns, segmentations


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
