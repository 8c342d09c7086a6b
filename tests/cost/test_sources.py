"""Sources of costs: precedence, parts of a network, and rejected sources."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from socsched import plugins
from socsched.cost.cost import Cost
from socsched.cost.model import CostModel
from socsched.cost.sources import GROUP, CostSource, Known, cost_sources
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import MachineError, UsageError
from socsched.graph.expand import layer_types
from socsched.graph.partition import prefixes
from socsched.models.parts import cut_pipeline, parts_of
from socsched.models.registry import get_model
from socsched.models.work import stage_work

ORIN = get_platform("jetson-agx-orin-64gb")
MAXN = ORIN.mode("MAXN")
EARLY = CostSource("early", 0, lambda request: None)
LATE = CostSource("late", 3, lambda request: None)


def source(name: str, rank: float, answer: Known | None) -> CostSource:
    return CostSource(name, rank, lambda request: answer if request.stage.name == "backbone" else None)


def backbone(*more: CostSource) -> Cost:
    """Return the cost of PointPillars' backbone on Orin's GPU, which only the roofline knows, with sources added."""
    sources = tuple(sorted((*cost_sources(), *more), key=lambda one: one.rank))
    model = CostModel(ORIN, MAXN, stage_work, sources=sources)
    found = model.at(get_pipeline("pointpillars").stage("backbone"), "gpu", "fp16", MAXN.engines["gpu"].units)
    assert found is not None
    return found


def test_the_source_with_the_least_rank_that_knows_a_time_decides() -> None:
    plain = backbone()
    time = Known(plain.time_ns * 2, "published", "a table", 0.1)
    assert backbone(source("silent", 1, None)) == plain
    first = backbone(source("silent", 1, None), source("table", 5, time))
    assert (first.time_ns, first.provenance, first.source, first.error) == (
        plain.time_ns * 2,
        "published",
        "a table",
        0.1,
    )
    assert [segment.name for segment in first.segments] == [segment.name for segment in plain.segments]
    assert backbone(source("table", 25, time)) == plain, "the roofline knows one before"


def test_a_time_from_other_hardware_yields_to_a_later_answer_that_is_more_certain() -> None:
    there = Known(1_000_000, "derived", "elsewhere", 0.5, exact=False, foreign=True)
    here = Known(2_000_000, "derived", "here", 0.01)
    assert backbone(source("there", 1, there), source("here", 2, here)).source == "here"
    vague = replace(here, error=0.6)
    assert backbone(source("there", 1, replace(there, error=0.001)), source("here", 2, vague)).source == "elsewhere"


def test_a_part_of_a_network_gets_its_share_of_a_time_that_an_installed_source_knows() -> None:
    stage, units = get_pipeline("pointpillars").stage("backbone"), MAXN.engines["gpu"].units
    table = source("table", 5, Known(10_000_000, "measured", "a table", 0.1))
    model = CostModel(ORIN, MAXN, stage_work, sources=(*cost_sources()[:1], table, *cost_sources()[1:]))
    factory = get_model(stage.model or "", stage.params).network
    assert factory is not None
    network = factory()
    types = layer_types(network)
    pieces = parts_of(stage.name, network, [list(prefixes(network, types))[5].after], types)
    cut = cut_pipeline(get_pipeline("pointpillars"), {stage.name: pieces})
    times = []
    for piece in pieces:
        found = model.at(cut.stage(piece.name), "gpu", "fp16", units)
        assert found is not None and found.source == "a table" and found.provenance == "derived"
        times.append(found.time_ns)
    assert len(times) == 2 and sum(times) == pytest.approx(10_000_000, rel=0.05)


def test_the_profile_is_asked_first_and_no_installed_source_precedes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in cost_sources()] == ["profile", "anchors", "vendor-model", "roofline"]
    group = dict(plugins.entries(GROUP))
    monkeypatch.setattr(plugins, "entries", lambda _: group)
    group["late"] = EntryPoint("late", f"{__name__}:LATE", GROUP)
    assert [one.name for one in cost_sources()] == ["profile", "late", "anchors", "vendor-model", "roofline"]
    group["early"] = EntryPoint("early", f"{__name__}:EARLY", GROUP)
    with pytest.raises(UsageError, match="'early' precedes the measured profile"):
        cost_sources()
    group.clear()
    with pytest.raises(MachineError, match="no sources of costs are registered"):
        cost_sources()


def test_a_source_states_its_provenance_in_known_words() -> None:
    with pytest.raises(UsageError, match="'guessed'"):
        Known(1, "guessed", "a table", 0.1)
