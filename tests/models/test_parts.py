"""Parts of networks as stages: layers shared out, triggers and chains that follow, the same work as the compiler's."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.graph.expand import layer_types
from socsched.graph.network import Network
from socsched.graph.partition import prefixes
from socsched.graph.taskgraph import task_graph
from socsched.models.parts import PartOf, cut_pipeline, part_of, parts_of, whole_stage
from socsched.models.registry import bindings, get_model
from socsched.models.work import stage_work
from socsched.planning.cutting.divisible import Sliced


def network_of(pipeline: Pipeline, stage: str) -> Network:
    """Return the network of a stage."""
    chosen = pipeline.stage(stage)
    factory = get_model(chosen.model or "", chosen.params).network
    assert factory is not None
    return factory()


def parts(pipeline: Pipeline, stage: str, *numbers: int) -> list[PartOf]:
    """Cut a stage after its units of these numbers."""
    network = network_of(pipeline, stage)
    types = layer_types(network)
    cuts = list(prefixes(network, types))
    return parts_of(stage, network, [cuts[number].after for number in numbers], types)


@pytest.fixture(scope="module")
def stack() -> Pipeline:
    return get_pipeline("perception-stack")


@pytest.mark.parametrize(("stage", "numbers"), [("backbone", (3, 9)), ("camera-detect", (6, 7, 14)), ("head", (0,))])
def test_parts_hold_every_layer_once_and_what_they_need_is_found(
    stack: Pipeline, stage: str, numbers: tuple[int, ...]
) -> None:
    found = parts(stack, stage, *numbers)
    cut = cut_pipeline(stack, {stage: found})
    layers: list[str] = []
    bound = bindings(cut)
    for part in found:
        made = cut.stage(part.name)
        layers += [layer.name for layer in network_of(cut, part.name).layers]
        providers = set(bound[part.name].values())
        reached, queue = set(made.after), list(made.after)
        while queue:
            name = queue.pop()
            more = set(cut.stage(name).after) - reached if name in {s.name for s in cut.stages} else set()
            reached |= more
            queue += more
        assert providers <= reached, "a part starts when all its tensors are there"
        assert part_of(made.params) == part and whole_stage(made) == replace(
            stack.stage(stage), after=made.after, queue=made.queue, title=made.title
        )
    assert sorted(layers) == sorted(layer.name for layer in network_of(stack, stage).layers)


def test_chains_go_through_linked_parts(stack: Pipeline) -> None:
    cut = cut_pipeline(
        stack, {"backbone": parts(stack, "backbone", 3, 9), "camera-detect": parts(stack, "camera-detect", 5)}
    )
    graph = task_graph(cut)
    for chain, whole in zip(cut.chains, stack.chains, strict=True):
        for before, name in pairwise(chain.path):
            stage = cut.stage(name)
            assert before in (*stage.after, *stage.reads)
        assert [segment.period_ns for segment in graph.segments(chain)] == [
            segment.period_ns for segment in task_graph(stack).segments(whole)
        ]
    readers = [stage for stage in cut.stages if "backbone.3" in stage.after]
    assert [stage.name for stage in readers] == ["head"]


def test_a_stage_with_the_name_of_a_part_is_refused(stack: Pipeline) -> None:
    found = parts(stack, "backbone", 3)
    taken = replace(stack, stages=(*stack.stages, replace(stack.stage("track"), name="backbone.2")))
    with pytest.raises(UsageError, match=r"backbone\.2"):
        cut_pipeline(taken, {"backbone": found})


@pytest.mark.parametrize(
    ("stage", "numbers", "precision"),
    [("backbone", (6, 12), "fp16"), ("camera-detect", (7, 14), "int8"), ("head", (0, 1), "fp16")],
)
def test_work_sliced_from_the_whole_is_what_the_compiler_reads_from_the_part(
    stack: Pipeline, stage: str, numbers: tuple[int, ...], precision: str
) -> None:
    found = parts(stack, stage, *numbers)
    cut = cut_pipeline(stack, {stage: found})
    sliced = Sliced(stage_work)
    for part in found:
        made = cut.stage(part.name)
        mine, compiled = sliced(made, precision), stage_work(made, precision)
        assert (mine.inputs, mine.outputs) == (compiled.inputs, compiled.outputs)
        assert [replace(op, name="") for op in mine.operators] == [replace(op, name="") for op in compiled.operators]
