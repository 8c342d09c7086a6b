"""AMALTHEA models as their tools write them: switches, equal names, triggers, stimuli, models without times."""

from __future__ import annotations

from pathlib import Path
from random import Random
from xml.sax.saxutils import quoteattr

import pytest

from socsched.cli.root import run
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import DescriptorError
from socsched.interchange.amalthea import import_amalthea
from socsched.planning.export import amalthea as export
from socsched.planning.export.linux import ExportRequest
from tests.planning.test_exports import MS, small
from tests.sim.builders import chain, engine, plan, task

CORE = '<definitions xsi:type="am:ProcessingUnitDefinition" name="Core" puType="CPU"/>'
ACCELERATOR = '<definitions xsi:type="am:ProcessingUnitDefinition" name="Fast" puType="GPU"/>'
CLOCK = '<domains name="F"><defaultValue value="100" unit="MHz"/></domains>'
TIMER = '<stimuli xsi:type="am:PeriodicStimulus" name="S"><recurrence value="100" unit="ms"/></stimuli>'


def unit(name: str) -> str:
    return (
        f'<modules xsi:type="am:ProcessingUnit" name="{name}0" frequencyDomain="F?type=FrequencyDomain" '
        f'definition="{name}?type=ProcessingUnitDefinition"/>'
    )


def model(software: str, stimuli: str = TIMER, more: str = "", hardware: str | None = None) -> str:
    units = unit("Core") + unit("Fast")
    whole = f"{CORE}{ACCELERATOR}<structures structureType='System' name='X'>{units}</structures>{CLOCK}"
    parts = f"<hwModel>{whole if hardware is None else hardware}</hwModel><stimuliModel>{stimuli}</stimuliModel>"
    return (
        '<am:Amalthea xmlns:am="http://app4mc.eclipse.org/amalthea/0.9.5" xmlns:xsi="x">\n'
        f"<swModel>{software}</swModel>\n{parts}{more}</am:Amalthea>"
    )


def call(name: str) -> str:
    return f'<items xsi:type="am:RunnableCall" runnable="{name}?type=Runnable"/>'


def trigger(stimulus: str) -> str:
    return f'<items xsi:type="am:InterProcessTrigger" stimulus="{stimulus}?type=InterProcessStimulus"/>'


def runnable(name: str, ticks: int, more: str = "") -> str:
    work = f'<items xsi:type="am:Ticks"><default xsi:type="am:DiscreteValueConstant" value="{ticks}"/></items>'
    return f"<runnables name={quoteattr(name)}><callGraph>{work}{more}</callGraph></runnables>"


def process(name: str, items: str, stimulus: str = "S") -> str:
    return f"<tasks name={quoteattr(name)} stimuli={quoteattr(stimulus)}><callGraph>{items}</callGraph></tasks>"


def limit(process_name: str, ms: int) -> str:
    return (
        f'<requirements name="r" process="{process_name}?type=Task"><limit limitType="UpperLimit" '
        f'metric="ResponseTime"><limitValue value="{ms}" unit="ms"/></limit></requirements>'
    )


@pytest.fixture
def imported(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read(text: str) -> tuple[Pipeline, str]:
        file = tmp_path / "m.amxmi"
        file.write_text(text, encoding="utf-8")
        found = import_amalthea(file)
        (tmp_path / "m.yaml").write_text(found.text(), encoding="utf-8")
        return load_pipeline(tmp_path / "m.yaml"), "\n".join(found.notes)

    return read


def times(pipeline: Pipeline, stage: str) -> dict[str, float]:
    return {cost.engine: cost.time_ns.value for cost in pipeline.stage(stage).costs}


class Tree:
    """A random call graph: the text of its items, and the time (ns) it takes on each unit, computed here."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.runnables = draw, list[str]()
        self.text, self.worst = self.items(3, 3)

    def items(self, depth: int, many: int) -> tuple[str, dict[str, int]]:
        text, total = "", {"Core": 0, "Fast": 0}
        for _ in range(self.draw.randint(1, many)):
            part, took = self.item(depth)
            text += part
            total = {name: total[name] + took[name] for name in total}
        return text, total

    def item(self, depth: int) -> tuple[str, dict[str, int]]:
        kind = self.draw.choice(("call", "group", "mode", "chance", "deep")) if depth else "call"
        if kind == "group":
            text, took = self.items(depth - 1, 2)
            return f'<items xsi:type="am:Group" name="g">{text}</items>', took
        if kind in ("mode", "chance"):
            entries, worst = "", {"Core": 0, "Fast": 0}
            for number in range(self.draw.randint(1, 3)):
                text, took = self.items(depth - 1, 2)
                worst = {name: max(worst[name], took[name]) for name in worst}
                tag = "defaultEntry" if kind == "mode" and number == 2 else "entries"
                entries += f'<{tag} probability="{self.draw.random()}">{text}</{tag}>'
            switch = {"mode": "ModeSwitch", "chance": "ProbabilitySwitch"}[kind]
            return f'<items xsi:type="am:{switch}">{entries}</items>', worst
        name = f"R{len(self.runnables)}"
        self.runnables.append("")
        inner, took = self.items(depth - 1, 2) if kind == "deep" else ("", {"Core": 0, "Fast": 0})
        own = {unit: self.draw.randint(1, 1000) * 1000 for unit in took}
        rows = "".join(
            f'<extended key="{unit}?type=ProcessingUnitDefinition"><value upperBound="{ticks}"/></extended>'
            for unit, ticks in own.items()
        )
        ticks = f'<items xsi:type="am:Ticks">{rows}</items>'
        self.runnables[int(name[1:])] = f'<runnables name="{name}"><callGraph>{ticks}{inner}</callGraph></runnables>'
        return call(name), {unit: took[unit] + own[unit] * 10 for unit in took}


def test_random_call_graphs_take_their_longest_way_on_every_unit(imported) -> None:  # type: ignore[no-untyped-def]
    for seed in range(60):
        tree = Tree(Random(seed))
        pipeline, _ = imported(model(process("T", tree.text) + "".join(tree.runnables)))
        assert times(pipeline, "t") == {"cpu": tree.worst["Core"], "gpu": tree.worst["Fast"]}, seed


def test_accesses_to_labels_count_in_the_choice_of_an_entry(imported) -> None:  # type: ignore[no-untyped-def]
    access = '<items xsi:type="am:LabelAccess" data="big?type=Label" access="read"/>'
    switch = f'<items xsi:type="am:ModeSwitch"><entries>{call("A")}</entries><entries>{call("B")}</entries></items>'
    latency = '<accessElements><readLatency xsi:type="am:Constant" value="100"/></accessElements>'
    units = unit("Core").replace("/>", f">{latency}</modules>", 1)
    hardware = f"{CORE}<structures>{units}</structures>{CLOCK}"
    label = '<labels name="big"><size value="640" unit="B"/></labels>'
    text = process("T", switch) + runnable("A", 500) + runnable("B", 100, access) + label
    pipeline, _ = imported(model(text, hardware=hardware))
    assert times(pipeline, "t") == {"cpu": 1000 + 10 * 1000}  # 100 ticks at 10 ns, 10 lines of 1 us; A takes 5 us


@pytest.mark.parametrize(("first", "second"), [("T", "T"), ("T-1", "T 1"), ("前視", "後視"), ("Ä", "Ö")])
def test_tasks_whose_names_are_alike_are_all_kept(first: str, second: str, imported) -> None:  # type: ignore[no-untyped-def]
    text = process(first, call("A")) + process(second, call("B")) + runnable("A", 100) + runnable("B", 200)
    pipeline, notes = imported(model(text))
    assert sorted(cost.time_ns.value for stage in pipeline.stages for cost in stage.costs[:1]) == [1000, 2000]
    assert len({stage.name for stage in pipeline.stages}) == 2
    assert [stage.title.partition(":")[0] for stage in pipeline.stages] == [first, second]
    assert "numbered" in notes and second in notes


@pytest.mark.parametrize("what", ["runnables", "stimuli", "definitions", "domains"])
def test_a_name_of_two_elements_is_refused_where_a_reference_cannot_tell_them(what: str, tmp_path: Path) -> None:
    text = model(process("T", call("A")) + runnable("A", 100))
    twice = {
        "runnables": (runnable("A", 100), runnable("A", 100) + runnable("A", 999)),
        "stimuli": (TIMER, TIMER + TIMER.replace("100", "1")),
        "definitions": (CORE, CORE + CORE),
        "domains": (CLOCK, CLOCK + CLOCK.replace("100", "200")),
    }[what]
    file = tmp_path / "m.amxmi"
    file.write_text(text.replace(*twice))
    with pytest.raises(DescriptorError, match=r"m\.amxmi:\d+:\d+: .*('A'|'S'|'Core'|'F').*(several|twice)"):
        import_amalthea(file)


def test_a_limit_on_a_triggered_task_is_a_chain_from_the_timer(imported) -> None:  # type: ignore[no-untyped-def]
    steps = process("A", call("R") + trigger("IB")) + process("B", call("R") + trigger("IC"), "IB")
    text = steps + process("C", call("R"), "IC") + runnable("R", 100)
    pulses = "".join(f'<stimuli xsi:type="am:InterProcessStimulus" name="{name}"/>' for name in ("IB", "IC"))
    pipeline, notes = imported(model(text, TIMER + pulses, f"<constraintsModel>{limit('C', 20)}</constraintsModel>"))
    assert [(c.path, c.deadline_ns) for c in pipeline.chains] == [(("a", "b", "c"), 20 * MS)]
    assert "on a task that B triggers: its chain begins at the timer of A" in notes


def test_every_task_of_a_stimulus_and_every_trigger_of_a_task_counts(imported) -> None:  # type: ignore[no-untyped-def]
    """A stimulus of two tasks starts both; a task that two others trigger runs once for each of them."""
    switch = f'<items xsi:type="am:ModeSwitch"><entries>{trigger("I")}</entries></items>'
    text = process("A", call("R") + switch) + process("B", call("R") + trigger("I"), "U")
    text += process("X", call("R") + trigger("J"), "I") + process("Y", call("R"), "I") + process("Z", call("R"), "J")
    stimuli = TIMER + TIMER.replace('"S"', '"U"').replace("100", "50")
    stimuli += "".join(f'<stimuli xsi:type="am:InterProcessStimulus" name="{name}"/>' for name in "IJ")
    pipeline, notes = imported(model(text + runnable("R", 100), stimuli))
    edges = {(stage.after, stage.title[0]) for stage in pipeline.stages if stage.after}
    assert edges == {(("a",), "X"), (("b",), "X"), (("a",), "Y"), (("b",), "Y"), (("x",), "Z"), (("x-2",), "Z")}
    assert "several triggers: X, Y, Z" in notes


def test_a_task_that_triggers_itself_through_others_ends(imported) -> None:  # type: ignore[no-untyped-def]
    text = process("A", call("R") + trigger("I")) + process("B", call("R") + trigger("J"), "I")
    text += process("C", call("R") + trigger("I"), "J") + runnable("R", 100)
    stimuli = TIMER + "".join(f'<stimuli xsi:type="am:InterProcessStimulus" name="{name}"/>' for name in "IJ")
    pipeline, notes = imported(model(text, stimuli))
    assert [stage.after for stage in pipeline.stages] == [(), ("a",), ("b",)]
    assert "B is triggered by what it triggers itself" in notes


@pytest.mark.parametrize(
    ("stimulus", "period_ns", "note"),
    [
        ('<stimuli name="S"><offset value="3" unit="ms"/><recurrence value="9" unit="ms"/></stimuli>', 9 * MS, ""),
        ('<stimuli name="S"><nextOccurrence><lowerBound value="4" unit="ms"/><upperBound value="9" unit="ms"/>'
         "</nextOccurrence></stimuli>", 4 * MS, "S is relative: its shortest distance"),
        ('<stimuli name="S"><recurrence value="10" unit="ms"/><occurrenceTimes value="1" unit="ms"/>'
         '<occurrenceTimes value="4" unit="ms"/></stimuli>', 3 * MS, "S occurs 2 times a period"),
        ('<stimuli name="S" occurrenceCount="3"><recurrence value="10" unit="ms"/><burstLength value="6" unit="ms"/>'
         '<occurrenceMinDistance value="2" unit="ms"/></stimuli>', 2 * MS, "in bursts of 3"),
    ],
)  # fmt: skip
def test_stimuli_give_the_shortest_distance_of_activations(  # type: ignore[no-untyped-def]
    stimulus: str, period_ns: int, note: str, imported
) -> None:
    pipeline, notes = imported(model(process("T", call("A")) + runnable("A", 100), stimulus))
    assert pipeline.stage("t").period_ns == period_ns and note in notes
    assert pipeline.stage("t").offset_ns == (3 * MS if "offset" in stimulus else 0)


def test_a_stimulus_without_a_shortest_distance_leaves_its_task_out(imported) -> None:  # type: ignore[no-untyped-def]
    """As in APP4MC's modelling example 2: the lower bound is 0, without a unit."""
    relative = '<stimuli name="R"><nextOccurrence><lowerBound value="0"/></nextOccurrence></stimuli>'
    text = process("T", call("A")) + process("U", call("A"), "R") + runnable("A", 100)
    pipeline, notes = imported(model(text, TIMER + relative))
    assert [stage.name for stage in pipeline.stages] == ["t"]
    assert "R states no shortest distance" in notes and "nothing states when they run: U" in notes


@pytest.mark.parametrize(
    ("hardware", "work", "why"),
    [
        ("", call("A"), "states 100 ticks, but no frequency of a processing unit for T"),
        (f"{CORE}<structures>{unit('Core')}</structures>", call("A"), "100 ticks, but no frequency"),
        (f"{CORE}<structures>{unit('Core')}</structures>{CLOCK}", "", "states no ticks for T"),
    ],
)
def test_a_task_without_a_time_is_named_with_its_line_and_has_a_placeholder(  # type: ignore[no-untyped-def]
    hardware: str, work: str, why: str, imported
) -> None:
    pipeline, notes = imported(model(process("T", work) + runnable("A", 100), hardware=hardware))
    assert "m.amxmi:2: the model " in notes and why in notes and "placeholder" in notes
    (cost,) = pipeline.stage("t").costs
    assert (cost.time_ns.value, cost.time_ns.kind) == (1, "assumed")


def test_an_event_chain_of_unlinked_tasks_is_left_out_and_one_with_gaps_is_filled(imported) -> None:  # type: ignore[no-untyped-def]
    text = process("A", call("R") + trigger("I")) + process("B", call("R") + trigger("J"), "I")
    text += process("C", call("R"), "J") + process("D", call("R")) + runnable("R", 100)
    stimuli = TIMER + "".join(f'<stimuli xsi:type="am:InterProcessStimulus" name="{name}"/>' for name in "IJ")
    events = "".join(f'<events name="e{name}" entity="{name}?type=Task"/>' for name in "ABCD")
    chains = "".join(
        f'<eventChains name="{name}" stimulus="e{first}?type=E" response="e{last}?type=E"/>'
        f'<timingConstraints xsi:type="am:EventChainLatencyConstraint" scope="{name}?type=EventChain" type="{kind}">'
        f'<maximum value="{ms}" unit="ms"/></timingConstraints>'
        for name, first, last, kind, ms in (("x", "A", "C", "Reaction", 30), ("y", "A", "D", "Reaction", 40))
    )
    age = (
        '<timingConstraints xsi:type="am:EventChainLatencyConstraint" scope="x?type=EventChain" type="Age">'
        '<maximum value="70" unit="ms"/></timingConstraints>'
    )
    more = f"<eventModel>{events}</eventModel><constraintsModel>{chains}{age}</constraintsModel>"
    pipeline, notes = imported(model(text, stimuli, more))
    assert [(c.path, c.deadline_ns, c.max_age_ns) for c in pipeline.chains] == [(("a", "b", "c"), 30 * MS, 70 * MS)]
    assert "event chain y, whose tasks neither trigger nor read each other: a -> d" in notes


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('<recurrence value="100" unit="ms"/>', '<recurrence value="0" unit="ms"/>', "from 1 ns to 1 hour"),
        ('<recurrence value="100" unit="ms"/>', '<recurrence value="1e18" unit="s"/>', "from 1 ns to 1 hour"),
        ('value="100"/></items>', 'value="1e18"/></items>', "T: expected at most an hour on Core"),
        (call("A"), '<items xsi:type="am:WhileLoop"/>', "expected no loop"),
        ('value="100"/></items>', f'value="100"/></items>{call("A")}', "no cycle of calls"),
    ],
)
def test_numbers_and_graphs_that_no_pipeline_holds_are_refused_in_the_model(
    old: str, new: str, expected: str, tmp_path: Path
) -> None:
    file = tmp_path / "m.amxmi"
    text = model(process("T", call("A")) + runnable("A", 100))
    file.write_text(text.replace(old, new, 1))
    assert old in text
    with pytest.raises(DescriptorError, match=rf"m\.amxmi:\d+:\d+: .*{expected}"):
        import_amalthea(file)


def test_exports_are_imported_whatever_joins_and_forks_they_have(tmp_path: Path) -> None:
    for number, given in enumerate((small(), small("edf"), *(_random_plan(Random(seed)) for seed in range(20)))):
        file = tmp_path / f"{number}.amxmi"
        file.write_text(export.write(ExportRequest(given)))
        out = tmp_path / f"{number}.yaml"
        assert run(["pipelines", "import", "amalthea", str(file), "-q", "-o", str(out)]) == 0
        stages = {stage.name: stage for stage in load_pipeline(out).stages}
        assert set(stages) == {t.name for t in given.tasks}
        for t in given.tasks:
            assert set(stages[t.name].after) == set(t.after)
            assert stages[t.name].costs[0].time_ns.value == t.wcet_ns
        assert [chain.deadline_ns for chain in load_pipeline(out).chains] == [c.deadline_ns for c in given.chains]


def _random_plan(draw: Random):  # type: ignore[no-untyped-def]
    tasks = [task("t0", MS, period_ns=20 * MS, deadline_ns=20 * MS)]
    for number in range(1, draw.randint(3, 9)):
        after = tuple(draw.sample([t.name for t in tasks], draw.randint(1, min(3, len(tasks)))))
        tasks.append(task(f"t{number}", MS * number, after=after, period_ns=20 * MS, priority=number))
    path = [tasks[-1]]
    while path[0].after:
        path.insert(0, next(t for t in tasks if t.name == path[0].after[0]))
    links = (chain("all", tuple(t.name for t in path), 90 * MS),)
    return plan(tasks, [engine("cpu", lanes=2, policy="fp")], chains=links, policy="fp")


def test_several_units_on_one_engine_cost_the_slowest(tmp_path: Path) -> None:
    file = tmp_path / "m.amxmi"
    slow = CLOCK.replace('"F"', '"G"').replace("100", "50")
    units = unit("Core") + unit("Fast").replace('"F?', '"G?')
    hardware = f"{CORE}{ACCELERATOR.replace('GPU', 'CPU')}<structures>{units}</structures>{CLOCK}{slow}"
    file.write_text(model(process("T", call("A")) + runnable("A", 100), hardware=hardware))
    engines = {"Core": "a57", "Fast": "a57"}
    found = import_amalthea(file, get_platform("jetson-tx2"), "MAXN", engines).pipeline("p.yaml")
    assert [cost.time_ns.value for cost in found.stage("t").costs] == [2000]
