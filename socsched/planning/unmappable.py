"""Whether a platform has an engine for every stage of a pipeline, and the operators its accelerators refuse."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.cost.model import CostModel, WorkOf
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree
from socsched.graph.rules import decide
from socsched.planning.cutting.required import cut_unmappable


@dataclass(frozen=True, slots=True)
class RefusedOperator:
    """Operators of a stage that engines with operator rules refuse in a data type, with the sources of the rules."""

    stage: str
    engines: tuple[str, ...]
    precision: str
    operators: tuple[str, ...]
    reason: str
    sources: tuple[str, ...]


def refused_operators(pipeline: Pipeline, platform: Platform, work: WorkOf) -> list[RefusedOperator]:
    """Return the operators of a pipeline that engines with operator rules refuse, a row per stage, type and reason.

    Equal engines share a row.  Only data types common to stage and engine are checked, and stages restricted to named
    engines are checked on those only.
    """
    found: dict[tuple[str, str, str, tuple[str, ...]], tuple[dict[str, None], dict[str, None]]] = {}
    for stage in pipeline.stages:
        for engine in platform.engines:
            named = not stage.engines or {engine.id, engine.kind} & set(stage.engines)
            if engine.operators.allowed is None or stage.model is None or not named:
                continue
            for precision in (p for p in stage.precisions if p in engine.precisions):
                for operator in work(stage, precision).operators:
                    decision = decide(operator, engine)
                    for reason in decision.reasons:
                        key = (stage.name, precision, reason, decision.sources)
                        engines, operators = found.setdefault(key, ({}, {}))
                        engines[engine.id] = operators[operator.name] = None
    return [
        RefusedOperator(stage, tuple(engines), precision, tuple(operators), reason, sources)
        for (stage, precision, reason, sources), (engines, operators) in found.items()
    ]


def require_engines(pipeline: Pipeline, platform: Platform, work: WorkOf) -> None:
    """Raise DescriptorError for every stage that no engine can run in any mode, even in parts, with their reasons."""
    document = read(pipeline.file)
    models = [CostModel(platform, mode, work) for mode in platform.modes]
    left = {stage.name for stage in cut_unmappable(pipeline, models).pipeline.stages}
    for stage in pipeline.stages:
        if stage.name not in left or any(model.candidates(stage) for model in models):
            continue
        against = dict.fromkeys(str(r) for model in models for r in model.refused(stage) if " off in " not in str(r))
        reasons = "; ".join(against)
        Tree(document, ("stages", stage.name), None).report(
            f"no engine of {platform.name} can run this: {reasons}", key=True
        )
    document.check()
