"""Which data types a network may have: as asked for, or as its file computes; never another one in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from socsched.errors import SocschedError, UsageError

if TYPE_CHECKING:
    from socsched.descriptor.pipeline import Pipeline, Stage

AUTO = "auto"
CHOICES = (AUTO, "int8", "fp16", "fp32")


def settled(pipeline: Pipeline, asked: Sequence[str] = ()) -> Pipeline:
    """Return a pipeline whose networks accept the data types asked for only, each with the reason (`Stage.stated`).

    `asked`: PRECISION for all networks or STAGE=PRECISION, in place of the pipeline's own `precision`.  "auto" leaves
    the choice among a stage's `precisions` to planning, but a file that computes in integers is planned in int8, and in
    nothing else.  UsageError for an unknown stage or data type, a stage without a network, or one that has another.
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
        elif name not in stages or _own(stages[name]) is None:
            networks = ", ".join(one for one, stage in stages.items() if _own(stage) is not None)
            raise UsageError(f"--precision {text}: {pipeline.name} has no network {name!r}", f"one of {networks}")
        else:
            own[name] = precision
    return {**every, **own}


def _settled(stage: Stage, wanted: str) -> Stage:
    own = _own(stage)
    if own is None or (wanted == AUTO and not own[0]):
        return stage
    only, reason = own
    if only and wanted not in (AUTO, only):
        hint = f"omit the precision, or export the float network for {wanted}"
        raise UsageError(f"{stage.name}: {wanted} is asked for, but {reason}", hint)
    chosen = only or wanted
    return replace(stage, precisions=(chosen,), stated=reason if only else f"{chosen} as asked")


def _own(stage: Stage) -> tuple[str, str] | None:
    """Return the only data type in which a stage's network computes what its file says and the reason, or "" for any.

    None for a stage without network, or with an unusable one.
    """
    # imported here, since the command line lists the data types whatever the verb
    from socsched.models.registry import get_model

    if stage.model is None:
        return None
    try:
        model = get_model(stage.model, stage.params)
    except SocschedError:  # told where the network is needed
        return None
    if model.network is None:
        return None
    if model.rounds:
        return "fp32", "its file rounds to integers at run time, which is exact in fp32 only"
    return ("int8", "its file states int8") if model.quantised is not None else ("", "")
