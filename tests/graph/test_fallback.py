"""What falls back: nothing of a network that is taken, refused operators by count, what programs leave."""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.graph.operators import Operator, StageWork
from socsched.graph.rules import fall_back
from socsched.models.work import stage_work

DLA = get_platform("jetson-agx-orin-64gb").engine("dla0")
BACKBONE = stage_work(get_pipeline("pointpillars").stage("backbone"), "int8")


def refused(flops: int) -> Operator:
    return Operator("sort", "topk", "int8", (), (), flops, 0, 0)


def with_operators(*added: Operator) -> StageWork:
    return replace(BACKBONE, operators=(*BACKBONE.operators, *added))


def test_a_network_that_is_taken_stays() -> None:
    found = fall_back(BACKBONE, DLA)
    assert (found.unit, found.elsewhere, found.share, found.reasons) == ("dla", 0, 0.0, ())
    assert found.operators == len(BACKBONE.operators)


def test_refused_operators_are_counted_with_the_reason() -> None:
    found = fall_back(with_operators(refused(10), refused(10)), DLA)
    assert (found.unit, found.elsewhere) == ("dla", 2)
    assert found.operators == len(BACKBONE.operators) + 2
    assert [count for _, count in found.reasons] == [2] and "topk" in found.reasons[0][0]


def test_the_unit_is_that_of_most_operators() -> None:
    found = fall_back(with_operators(*[refused(BACKBONE.flops)] * 2 * len(BACKBONE.operators)), DLA)
    assert found.unit == "cpu" and found.share > 0.5


def test_a_program_may_leave_what_the_compiler_takes() -> None:
    """TFLite keeps batch normalisations in fp32, which a tensor processor without floating point lacks."""
    engine = get_platform("qcs6490").engine("npu")
    work = with_operators(Operator("norm", "multiply", "int8", (), (), 1, 0, 0, node="batch_norm"))
    assert fall_back(work, engine).elsewhere == 0
    assert fall_back(work, engine, "AI Hub Models v0.65.0 qnn_dlc qairt=2.50").elsewhere == 0
    assert fall_back(work, engine, "AI Hub Models v0.65.0 tflite qairt=2.50").elsewhere == 1
