"""Which data types a network may have: as asked for, or as its file computes; never another one in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from socsched.errors import SocschedError, UsageError
from socsched.models.registry import get_model

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage

AUTO = "auto"
CHOICES = (AUTO, "int8", "fp16", "fp32")


def settled(pipeline: Pipeline, asked: Sequence[str] = ()) -> Pipeline:
    """Return a pipeline whose networks accept the data types asked for only, each with the reason (`Stage.stated`).

    `asked`: PRECISION for all networks or STAGE=PRECISION, in place of the pipeline's own `precision`.  "auto" leaves
    the choice among a stage's `precisions` to planning, but a file that computes in integers is planned in int8.
    UsageError for an unknown stage or data type, or a stage without a network.
    """
    wanted = _wanted(pipeline, asked)
    stages = tuple(_settled(stage, wanted.get(stage.name, pipeline.precision)) for stage in pipeline.stages)
    return replace(pipeline, stages=stages)


def _wanted(pipeline: Pipeline, asked: Sequence[str]) -> dict[str, str]:
    """Return the data type asked for by stage."""
    stages = {stage.name: stage for stage in pipeline.stages}
    own: dict[str, str] = {}
    every: dict[str, str] = {}
    for text in asked:
        name, equals, precision = text.rpartition("=")
        if precision not in CHOICES:
            raise UsageError(f"--precision {text}: expected [STAGE=]{'|'.join(CHOICES)}")
        if not equals:
            every = dict.fromkeys(stages, precision)
        elif name not in stages or _quantised(stages[name]) is None:
            networks = ", ".join(one for one, stage in stages.items() if _quantised(stage) is not None)
            raise UsageError(f"--precision {text}: {pipeline.name} has no network {name!r}", f"one of {networks}")
        else:
            own[name] = precision
    return {**every, **own}


def _settled(stage: Stage, wanted: str) -> Stage:
    integers = _quantised(stage)
    if integers is None or (wanted == AUTO and not integers):
        return stage
    if wanted == AUTO:
        return replace(stage, precisions=("int8",), stated="int8 as the file's integers")
    left = "; the file's int8 is left out" if integers and wanted != "int8" else ""
    return replace(stage, precisions=(wanted,), stated=f"{wanted} as asked{left}")


def _quantised(stage: Stage) -> bool | None:
    """Return whether a stage's network computes in integers, None for a stage without network or an unusable one."""
    if stage.model is None:
        return None
    try:
        model = get_model(stage.model, stage.params)
        return None if model.network is None else model.quantised is not None
    except SocschedError:  # told where the network is needed
        return None
