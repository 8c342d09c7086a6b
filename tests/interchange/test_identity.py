"""What an exchange format carries survives: plan -> export -> import gives the same figures, for drawn plans."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from socsched.api.folders import preview
from socsched.api.interchange import import_pipeline
from socsched.cli.root import run
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import SocschedError, UsageError
from socsched.interchange.ros2 import _Architecture
from socsched.planning.export import amalthea, autoware, cyberrt
from socsched.planning.export.linux import ExportRequest, threads
from socsched.planning.io import load
from socsched.planning.plan import Plan
from socsched.trace import btf
from tests.sim.builders import chain, engine, plan, task

MS = 1_000_000
quick = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def plans(draw: st.DrawFn, policy: str = "fp", joins: bool = True) -> Plan:
    """Draw a plan of one to six tasks on two cores and a GPU: timers, successors, reads, chains."""
    tasks: list[Any] = []
    for number in range(draw(st.integers(1, 6))):
        before = [t.name for t in tasks]
        most = min(len(before), 2 if joins else 1)
        after = tuple(draw(st.lists(st.sampled_from(before), max_size=most, unique=True)) if before else ())
        same = {t.name: t.period_ns for t in tasks}
        after = tuple(name for name in after if same[name] == same[after[0]])
        others = [name for name in before if name not in after]
        reads = tuple(draw(st.lists(st.sampled_from(others), max_size=1)) if others and after else ())
        period = next((t.period_ns for t in tasks if t.name in after), draw(st.sampled_from([5, 10, 20, 40])) * MS)
        place = draw(st.sampled_from([("cpu", (0,)), ("cpu", (1,)), ("cpu", (0, 1)), ("gpu", (0,))]))
        cost = draw(st.integers(1000, MS // 2))
        more = {"engine": place[0], "lanes": place[1], "priority": number, "period_ns": period, "deadline_ns": period}
        tasks.append(task(f"t{number}", cost, after=after, reads=reads, **more))
    ends = draw(st.lists(st.sampled_from(tasks), max_size=2, unique_by=lambda t: t.name))
    by_name = {t.name: t for t in tasks}
    paths = []
    for last in ends:
        paths.append([last.name])
        while after := by_name[paths[-1][0]].after:
            paths[-1].insert(0, after[0])
    chains = tuple(chain(f"c{i}", path, (i + 1) * 7 * MS) for i, path in enumerate(paths))
    engines = [engine("cpu", lanes=2, policy=policy), engine("gpu", kind="gpu", preemption="segment")]
    return plan(tasks, engines, chains=chains, policy=policy)


def back(form: str, text: str, **more: Any) -> Pipeline:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "m.x"
        file.write_text(text, encoding="utf-8")
        extra = {}
        if "conf" in more:
            extra["conf"] = Path(folder) / "c.conf"
            extra["conf"].write_text(more["conf"], encoding="utf-8")
        return import_pipeline(form, file, **extra).pipeline("p.yaml")


@quick
@given(plans())
def test_amalthea(made: Plan) -> None:
    found = back("amalthea", amalthea.write(ExportRequest(made)))
    assert {s.name for s in found.stages} == {t.name for t in made.tasks}
    for t in made.tasks:
        stage = found.stage(t.name)
        assert (stage.period_ns or 0, set(stage.after)) == (t.period_ns if t.timer else 0, set(t.after))
        assert set(stage.reads) == set(t.reads)
        assert [(c.engine, c.time_ns.value) for c in stage.costs] == [(t.engine, t.wcet_ns)]
    stated = {(c.name, c.path, c.deadline_ns) for c in made.chains}
    assert {(c.name, c.path, c.deadline_ns) for c in found.chains} == stated


@quick
@given(plans(joins=False))
def test_cyberrt(made: Plan) -> None:
    cpus = {t.name: t for t in threads(ExportRequest(made)) if not t.worker}
    conf = {"conf": cyberrt.write(ExportRequest(made))} if cpus else {}
    found = back("cyberrt", cyberrt.write_dag(ExportRequest(made)), **conf)
    assert {s.name for s in found.stages} == {t.name for t in made.tasks}
    for t in made.tasks:
        stage = found.stage(t.name)
        assert (stage.period_ns or 0, stage.after) == (t.period_ns if t.timer else 0, t.after)
        assert set(stage.reads) == set(t.reads)
        if t.name in cpus:
            assert f"priority {cpus[t.name].priority} on CPUs " in stage.title


@quick
@given(plans("edf"))
def test_autoware(made: Plan) -> None:
    own = [t for t in threads(ExportRequest(made)) if not t.worker]
    if not own:
        with pytest.raises(SocschedError, match="no thread has a period"):
            back("autoware", autoware.write(ExportRequest(made)))
        return
    found = back("autoware", autoware.write(ExportRequest(made)))
    carried = {
        (s.name, s.period_ns, s.share, s.costs[0].time_ns.value, c.deadline_ns)
        for s, c in ((found.stage(c.path[0]), c) for c in found.chains)
    }
    lanes = {t.name: len(t.lanes) for t in made.tasks}
    assert carried == {(t.name, t.period_ns, lanes[t.name], t.runtime_ns, t.deadline_ns) for t in own}


@quick
@given(plans("edf", joins=False))
def test_btf(made: Plan) -> None:
    trace = preview(made)
    jobs: dict[str, list[Any]] = {}
    for job in trace.jobs:
        jobs.setdefault(job.task, []).append(job)
    seen = {name for name, mine in jobs.items() if len(mine) > 1 and any(j.status == "done" for j in mine)}
    assume(seen)
    found = back("btf", btf.text(trace))
    assert {s.name for s in found.stages} == seen
    for t in made.tasks:
        if t.name not in seen:
            continue
        stage, done = found.stage(t.name), [j for j in jobs[t.name] if j.status == "done"]
        assert stage.costs[0].time_ns.value == max(j.exec_ns for j in done)
        assert stage.share == len(t.lanes) and stage.costs[0].engine == t.engine
        if t.timer:
            assert (stage.period_ns, stage.jitter_ns) == (t.period_ns, 0)
            assert [c.deadline_ns for c in found.chains if c.path == (t.name,)] == [t.deadline_ns]


def test_the_amalthea_export_uses_classes_and_references_of_the_metamodel() -> None:
    """Every reference names an element of its type, and every class is one that WATERS 2019's own model uses too."""
    tasks = [task("a", MS), task("b c&d", MS, after=("a",), reads=()), task("e", MS, after=("a", "b c&d"))]
    root = ET.fromstring(amalthea.write(ExportRequest(plan(tasks, chains=(chain("x", ("a", "e"), 9 * MS),)))))
    kind = f"{{{amalthea.XSI}}}type"
    tags = {e: e[0].upper() + e[1:-1] for e in ("tasks", "runnables", "labels", "eventChains", "taskSchedulers")}
    tags |= {e: e[0].upper() + e[1:-1] for e in ("schedulerDefinitions", "schedulingParameterDefinitions")}
    named = {(e.get("name"), tags.get(e.tag) or e.get(kind, "").removeprefix("am:")) for e in root.iter()}
    from urllib.parse import unquote_plus

    count = 0
    for element in root.iter():
        for value in element.attrib.values():
            for word in value.split():
                if "?type=" in word:
                    name, _, wanted = word.partition("?type=")
                    assert (unquote_plus(name), wanted) in named, word
                    count += 1
    assert count > 20
    known = """Group RunnableCall InterProcessTrigger LabelAccess Ticks DiscreteValueStatistics ProcessingUnitDefinition
    ProcessingUnit FrequencyDomain InterProcessStimulus PeriodicStimulus IntegerObject ProcessEvent EventChainContainer
    EventChainLatencyConstraint BooleanObject"""
    assert {e.get(kind, "am:Group").removeprefix("am:") for e in root.iter()} <= set(known.split())


def test_what_a_dag_cannot_state_is_an_error() -> None:
    joined = plan([task("a", MS), task("b", MS), task("c", MS, after=("a", "b"))])
    with pytest.raises(UsageError, match="c waits for a, b"):
        cyberrt.write_dag(ExportRequest(joined))
    with pytest.raises(UsageError, match="no whole number of milliseconds"):
        cyberrt.write_dag(ExportRequest(plan([task("a", MS, period_ns=10 * MS + 1)])))


DAG = """
# as Apollo writes them
module_config { module_library : "/apollo/lib.so"
  components { class_name : "D" config { name: "detect" readers: [ { channel: "/lidar" qos_profile: { depth : 1 } },
    { channel: "/pose" } ] } }
  components { class_name: "T" config { name: "track" readers: { channel: "/boxes" } readers { channel: "/pose" } } }
  timer_components { class_name : "C" config { name: "control" interval: 10 } }
}
"""


def test_writers_and_periods_of_channels_are_the_users(tmp_path: Path) -> None:
    (tmp_path / "a.dag").write_text(DAG)
    alone = import_pipeline("cyberrt", tmp_path)
    assert [s.name for s in alone.pipeline("p").stages] == ["control"]
    assert any("detect (/lidar), track (/boxes)" in note for note in alone.notes)
    given_ = {"/lidar": "100ms", "/boxes": "detect", "/pose": "control"}
    found = import_pipeline("cyberrt", tmp_path, channels=given_).pipeline("p")
    assert [(s.name, s.period_ns) for s in found.sensors] == [("lidar", 100 * MS)]
    assert {s.name: (s.after, s.reads) for s in found.stages} == {
        "detect": (("lidar",), ("control",)), "track": (("detect",), ("control",)), "control": ((), ()),
    }  # fmt: skip
    for wrong in ({"/x": "1ms"}, {"/lidar": "soon"}):
        with pytest.raises(UsageError, match="channel"):
            import_pipeline("cyberrt", tmp_path, channels=wrong)


@pytest.mark.parametrize(
    ("form", "text", "where"),
    [
        ("cyberrt", "module_config { timer_components { config { name: 'a' interval: 0 } } }", "1:55: interval"),
        ("cyberrt", "module_config { components { } }", "config: expected one message, got 0"),
        ("cyberrt", "", "expected components"),
        ("btf", "", "it holds no jobs"),
        ("autoware", "callback_groups: [{id: a, policy: SCHED_FIFO, priority: 3}]", "no thread has a period"),
        ("autoware", "callback_groups: 3", "1:18: callback_groups: expected a list"),
    ],
)
def test_a_wrong_file_is_reported(form: str, text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(SocschedError) as caught:
        import_pipeline(form, tmp_path / "f")
    assert where in str(caught.value)


def test_timers_in_ids_give_periods(tmp_path: Path) -> None:
    rows = "callback_groups:\n- {id: /t@Timer(50000000), policy: SCHED_FIFO, priority: 3, affinity: [2]}\n"
    (tmp_path / "f").write_text(rows + "- {id: /s@Subscription(/x), policy: SCHED_OTHER, nice: 0}\n")
    found = import_pipeline("autoware", tmp_path / "f")
    (stage,) = found.pipeline("p").stages
    assert stage.period_ns == 50 * MS and "SCHED_FIFO 3 on CPUs 2" in stage.title
    assert any("/s@Subscription(/x)" in note for note in found.notes)


def test_a_btf_trace_becomes_a_result_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan([task("a", 2 * MS), task("b", 4 * MS, priority=1)], policy="fp")
    (tmp_path / "t.btf").write_text(btf.text(preview(made)))
    call = ["pipelines", "import", "btf", str(tmp_path / "t.btf"), "-o", str(tmp_path / "p.yaml"), "-q"]
    assert run([*call, "--results", str(tmp_path / "r")]) == 0, capsys.readouterr().err
    assert {t.name for t in load(tmp_path / "r" / "plan.json").tasks} == {"a", "b"}
    for verb in (["why", str(tmp_path / "r")], ["report", str(tmp_path / "r"), "-o", str(tmp_path / "r.html")],
                 ["compare", str(tmp_path / "r"), str(tmp_path / "r")]):  # fmt: skip
        assert run([*verb, "-q"]) == 0, capsys.readouterr().err


def test_paths_of_an_architecture_with_one_name_or_none_are_all_kept(tmp_path: Path) -> None:
    hops = "node_chain: [{node_name: /a, publish_topic_name: /x}, {node_name: /b, subscribe_topic_name: /x}]"
    rows = "".join(f"- {{{name}{hops}}}\n" for name in ("path_name: p, ", "path_name: p, ", "", ""))
    (tmp_path / "a.yaml").write_text(f"nodes: []\nnamed_paths:\n{rows}")
    assert [name for name, _ in _Architecture(tmp_path / "a.yaml").paths] == ["p", "p", "path", "path"]
