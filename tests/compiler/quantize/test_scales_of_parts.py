"""Scales that were calibrated for a network serve the parts and tiles a plan cuts it into."""

from __future__ import annotations

import pytest

from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import Scales, of_stage, per_tensor
from socsched.compiler.toolchains.package import check_scales
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.partition import prefixes
from socsched.models.parts import cut_pipeline, part_of, parts_of
from socsched.models.registry import get_model


def calibrated(stage: Stage) -> dict[str, Scales]:
    """Return the calibration of a stage, every value with its own scale."""
    assert stage.model is not None
    found = get_model(stage.model, stage.params).network
    assert found is not None
    graph = fuse_network(found())
    names = (*graph.inputs, *(group.output for group in graph.groups))
    return {stage.name: Scales({name: Scale(1.0 + number, True) for number, name in enumerate(names)})}


def parts(pipeline: Pipeline, name: str, *numbers: int) -> list[Stage]:
    stage = pipeline.stage(name)
    network = get_model(stage.model or "", stage.params).network
    assert network is not None
    types = layer_types(whole := network())
    cuts = list(prefixes(whole, types))
    found = parts_of(name, whole, [cuts[number].after for number in numbers], types)
    cut = cut_pipeline(pipeline, {name: found})
    return [one for one in cut.stages if (part := part_of(one.params)) is not None and part.stage == name]


@pytest.mark.parametrize(("name", "stage"), [("camera-detection", "detect"), ("pointpillars", "backbone")])
def test_every_tensor_of_every_part_has_the_scale_it_has_in_the_whole(name: str, stage: str) -> None:
    pipeline = get_pipeline(name)
    scales = calibrated(pipeline.stage(stage))
    network = get_model(pipeline.stage(stage).model or "", pipeline.stage(stage).params).network
    assert network is not None
    steps = check_scales(whole := network(), per_tensor(whole, scales[stage]))
    for cut in ((1,), (3, 9), (6, 7)):
        found = parts(pipeline, stage, *cut)
        assert len(found) == len(cut) + 1
        for part in found:
            own = of_stage(scales, part)
            assert own is not None, "the part is called otherwise than the stage"
            inner = get_model(part.model or "", part.params).network
            assert inner is not None
            mine = check_scales(taken := inner(), per_tensor(taken, own))
            assert {layer: mine[layer] for layer in mine if layer in steps} == {layer: steps[layer] for layer in mine}


def test_scales_of_the_part_itself_come_first_and_other_stages_have_none() -> None:
    pipeline = get_pipeline("camera-detection")
    (first, *_) = parts(pipeline, "detect", 1)
    whole, own = Scales({"a": Scale(1.0, True)}), Scales({"a": Scale(2.0, True)})
    assert of_stage({"detect": whole, first.name: own}, first) is own
    assert of_stage({"detect": whole}, first) is whole
    assert of_stage({"detect": whole}, pipeline.stage("preprocess")) is None
