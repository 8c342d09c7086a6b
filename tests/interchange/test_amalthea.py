"""AMALTHEA models become pipelines; WATERS 2019 gives the figures of the shipped pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest
from amalthea_writer import call, hardware, runnable, task, ticks, waters
from datafiles import read

from socsched.cli.root import run
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import SocschedError
from socsched.interchange.amalthea import import_amalthea


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("amalthea")
    file, out = folder / "waters.amxmi", folder / "waters.yaml"
    file.write_text(waters(read("waters2019.json")))
    assert (
        run(["pipelines", "import", "amalthea", str(file), "-p", "jetson-tx2", "--mode", "MAXN", "-q", "-o", str(out)])
        == 0
    )
    return load_pipeline(out)


def test_waters_2019_has_the_figures_of_the_shipped_pipeline(imported: Pipeline) -> None:
    shipped = get_pipeline("waters2019")
    stages = {stage.name: stage for stage in imported.stages}
    names = {"canbus-polling": "can-bus-polling"}
    assert {names.get(name, name) for name in stages} == {stage.name for stage in shipped.stages}
    for stage in imported.stages:
        other = shipped.stage(names.get(stage.name, stage.name))
        assert (stage.period_ns, stage.after, stage.share) == (other.period_ns, other.after, other.share)
        times, wanted = ({a.engine: a.time_ns.value for a in s.costs} for s in (stage, other))
        assert set(times) == set(wanted), stage.name
        for engine, time in times.items():
            assert time == pytest.approx(wanted[engine], abs=1000), (stage.name, engine)
    for stage in ("lidar-grabber", "dasm"):
        assert stages[stage].reads == shipped.stage(stage).reads


def test_waters_2019_has_the_deadlines_of_the_shipped_pipeline(imported: Pipeline) -> None:
    names = {"canbus-polling": "can-bus-polling"}
    found = {tuple(names.get(n, n) for n in chain.path): chain.deadline_ns for chain in imported.chains}
    stated = [chain for chain in get_pipeline("waters2019").chains if not chain.assumed]
    assert found == {chain.path: chain.deadline_ns for chain in stated} and len(found) == 9


def test_without_a_platform_costs_are_of_the_models_hardware(tmp_path: Path) -> None:
    file = tmp_path / "m.amxmi"
    file.write_text(waters(read("waters2019.json")))
    imported = import_amalthea(file)
    stage = imported.pipeline("m.yaml").stage("sfm")
    assert {(a.platform, a.engine) for a in stage.costs} == {("JetsonTX2", "cpu"), ("JetsonTX2", "gpu")}
    assert any("fp32 is assumed" in note for note in imported.notes)
    with pytest.raises(SocschedError, match="no engine for the processing unit 'Denver'"):
        import_amalthea(file, get_platform("jetson-agx-xavier"))


CHAIN = """<eventChains name="steer" stimulus="s?type=E" response="r?type=E"><segments><eventChain stimulus="s?type=E"
response="r?type=E"/></segments></eventChains><eventChains name="open" stimulus="s?type=E" response="r?type=E"/>
<timingConstraints xsi:type="am:EventChainLatencyConstraint" scope="steer?type=EventChain">
<maximum value="70" unit="ms"/>
</timingConstraints>"""
EVENTS = (
    '<eventModel><events name="s" entity="Planner?type=Task"/><events name="r" entity="DASM?type=Task"/></eventModel>'
)


def test_event_chains_with_a_limit_are_chains(tmp_path: Path) -> None:
    file = tmp_path / "m.amxmi"
    file.write_text(waters(read("waters2019.json"), CHAIN).replace("<stimuliModel>", EVENTS + "<stimuliModel>"))
    imported = import_amalthea(file)
    (chain,) = [chain for chain in imported.pipeline("m.yaml").chains if chain.name == "steer"]
    assert (chain.path, chain.deadline_ns) == (("planner", "dasm"), 70_000_000)
    assert any("no latency limit for the event chain open: planner -> dasm" in note for note in imported.notes)


def model(software: str, stimuli: str = "") -> str:
    spaces = 'xmlns:am="a" xmlns:xsi="x"'
    timer = '<stimuli xsi:type="am:PeriodicStimulus" name="t"><recurrence value="5" unit="ms"/></stimuli>'
    rest = f"<stimuliModel>{stimuli or timer}</stimuliModel>"
    return f"<am:Amalthea {spaces}>\n<swModel>{software}</swModel>\n{hardware()}{rest}</am:Amalthea>"


def test_tasks_without_an_activation_are_left_out_with_a_note(tmp_path: Path) -> None:
    file = tmp_path / "m.amxmi"
    work = runnable("f", [], [], ticks({"A57": 10.0}, {"A57": 5.0}))
    file.write_text(model(task("A", "t", call("f")) + task("B", "unknown", call("f")) + work))
    imported = import_amalthea(file)
    pipeline = imported.pipeline("m.yaml")
    assert [stage.name for stage in pipeline.stages] == ["a"] and not pipeline.chains
    assert pipeline.stages[0].costs[0].time_ns.value == 10_000
    assert any("nothing states when they run: B" in note for note in imported.notes)


ENTITY = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><am:Amalthea xmlns:am="a">&b;</am:Amalthea>'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no element found"),
        ("<a", "valid XML"),
        (ENTITY, ":1:.*no document type"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "no document type"),
        ("<a>" * 100, "nested at most"),
        ("<other/>", "root element Amalthea"),
        ('<am:Amalthea xmlns:am="a"/>', "expected a swModel"),
        ('<?xml version="1.0" encoding="nonsense"?><x/>', "valid XML"),
        (model(task("A", "t", call("g"))), r"2:\d+: items: expected a runnable of the model, got 'g'"),
        (model(task("A", "none", "")), "periodic stimulus"),
        (model('<labels name="l"><size value="-3" unit="B"/></labels>'), "expected a number"),
        (model('<labels name="l"><size value="3" unit="furlong"/></labels>'), "known unit"),
        (model("", '<stimuli name="t"><recurrence value="nan" unit="ms"/></stimuli>'), "expected a number"),
    ],
)
def test_hostile_models_give_one_error_with_a_position(text: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "m.amxmi"
    file.write_text(text)
    with pytest.raises(SocschedError, match=expected) as caught:
        import_amalthea(file)
    assert caught.value.exit_code == 2
