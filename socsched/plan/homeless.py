"""Whether a platform has an engine for every stage of a pipeline, in any of its power modes."""

from __future__ import annotations

from socsched.cost.model import CostModel, WorkOf
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree


def require_engines(pipeline: Pipeline, platform: Platform, work: WorkOf) -> None:
    """Raise DescriptorError at every stage that no engine can run in any mode, with what engines say against it."""
    document = read(pipeline.file)
    models = [CostModel(platform, mode, work) for mode in platform.modes]
    for stage in pipeline.stages:
        if any(model.candidates(stage) for model in models):
            continue
        against = dict.fromkeys(str(r) for model in models for r in model.refused(stage) if " off in " not in str(r))
        reasons = "; ".join(against)
        Tree(document, ("stages", stage.name), None).report(
            f"no engine of {platform.name} can run this: {reasons}", key=True
        )
    document.check()
