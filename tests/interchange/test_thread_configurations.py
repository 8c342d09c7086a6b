"""Configurations of Autoware's callback isolated executor and of CyberRT: dialects, identities, kernel limits."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import yaml

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import SocschedError
from socsched.interchange.autoware_pipeline import import_autoware
from socsched.interchange.cyberrt_pipeline import import_cyberrt
from socsched.planning.export import autoware, cyberrt
from socsched.planning.export.linux import MOST_PERIOD_NS, ExportRequest, Thread, entries, linux, refused
from tests.sim.builders import engine, plan, task

MS = 1_000_000


def read(folder: Path, text: str) -> tuple[Pipeline, str]:
    (folder / "a.yaml").write_text(text, encoding="utf-8")
    found = import_autoware(folder / "a.yaml")
    (folder / "p.yaml").write_text(found.text(), encoding="utf-8")
    return load_pipeline(folder / "p.yaml"), "\n".join(found.notes)


def entry(name: str, more: str) -> str:
    return f'  - {{id: "{name}", affinity: ~, {more}}}\n'


def deadline(runtime: int, due: int, period: int, more: str = "") -> str:
    return f"policy: SCHED_DEADLINE, runtime: {runtime}, deadline: {due}, period: {period}{more}"


# What `thread_configurator_node --prerun` of the executor wrote before `nice` was a key, ids as in its README.
TEMPLATE = """hardware_info:
  model_name: Intel(R) Xeon(R) Silver 4216 CPU @ 2.10GHz
callback_groups:
  - id: /sample_node@Subscription(/topic_in)@Waitable
    affinity: ~
    policy: SCHED_OTHER
    priority: 0

  - id: /sample_node@Timer(1333000000)
    affinity: ~
    policy: SCHED_BATCH
    priority: -5
non_ros_threads:
  []
"""


def test_the_template_of_the_prerun_mode_is_imported(tmp_path: Path) -> None:
    pipeline, notes = read(tmp_path, TEMPLATE)
    (stage,) = pipeline.stages
    assert stage.period_ns == 1_333_000_000 and "SCHED_BATCH -5" in stage.title
    assert "/sample_node@Subscription(/topic_in)@Waitable" in notes


@pytest.mark.parametrize("policy", ["SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE", "SCHED_FIFO", "SCHED_RR"])
def test_every_policy_of_the_specification_is_read(policy: str, tmp_path: Path) -> None:
    for key, value in (("nice", 3), ("priority", 3)):
        if key == "priority" or policy not in ("SCHED_FIFO", "SCHED_RR"):
            text = "callback_groups:\n" + entry("/n@Timer(1000000)", f"policy: {policy}, {key}: {value}")
            pipeline, _ = read(tmp_path, text)
            assert f"{policy} 3 on CPUs all" in pipeline.stages[0].title


def test_equal_ids_in_two_domains_and_names_alike_are_all_kept(tmp_path: Path) -> None:
    names = ["/n@Timer(100000000)", "/n-@Timer(100000000)", "/前視@Timer(100000000)", "/後視@Timer(100000000)"]
    rows = [entry(name, deadline(n * MS, 100 * MS, 100 * MS)) for n, name in enumerate(names, 1)]
    rows.append(entry(names[0], deadline(70 * MS, 100 * MS, 100 * MS, ", domain_id: 7")))
    pipeline, _ = read(tmp_path, "callback_groups:\n" + "".join(rows))
    assert sorted(stage.costs[0].time_ns.value // MS for stage in pipeline.stages) == [1, 2, 3, 4, 70]
    assert [stage.title.partition(": SCHED")[0] for stage in pipeline.stages] == [*names, f"{names[0]} in domain 7"]
    assert len(pipeline.chains) == 5


def test_an_id_twice_in_a_domain_is_refused(tmp_path: Path) -> None:
    rows = [entry("/n@Timer(1000000)", "policy: SCHED_FIFO, priority: 3")]
    rows.append(entry("/n@Timer(1000000)@Waitable", "policy: SCHED_FIFO, priority: 4"))
    with pytest.raises(SocschedError, match=r"a\.yaml:3:\d+: callback_groups\[1\]\.id: expected every id once"):
        read(tmp_path, "callback_groups:\n" + "".join(rows))


@pytest.mark.parametrize(
    ("times", "where"),
    [
        ((60 * MS, 40 * MS, 50 * MS), "runtime: expected at most the deadline of 40000000 ns, got 60000000"),
        ((10 * MS, 60 * MS, 50 * MS), "deadline: expected at most the period of 50000000 ns"),
        ((1023, 40 * MS, 50 * MS), "runtime: expected at least 1024 ns"),
        ((2000, 50_000, 99_999), "period: expected 100000 to 4194304000 ns"),
        ((2000, 50_000, 4_194_304_001), "period: expected 100000 to 4194304000 ns"),
        ((0, 40 * MS, 50 * MS), "runtime: expected a whole number from 1"),
        ((-1, 40 * MS, 50 * MS), "got -1"),
        ((2**63, 2**63, 2**63), "got '9223372036854775808'"),
        ((20_000, 100_000, 100_000), r"period: expected nanoseconds, as in the id's Timer\(100000000\), got 100000"),
    ],
)
def test_what_the_kernel_refuses_is_refused_with_its_position(
    times: tuple[int, int, int], where: str, tmp_path: Path
) -> None:
    with pytest.raises(SocschedError, match=rf"a\.yaml:2:\d+: callback_groups\[0\]\..*{where}"):
        read(tmp_path, "callback_groups:\n" + entry("/n@Timer(100000000)", deadline(*times)))


def test_a_budget_renewed_at_another_rate_than_the_timer_has_a_note(tmp_path: Path) -> None:
    text = entry("/n@Timer(100000000)@Timer(20000000)", deadline(MS, 10 * MS, 10 * MS))
    pipeline, notes = read(tmp_path, "callback_groups:\n" + text)
    assert pipeline.stages[0].period_ns == 10 * MS
    assert "has 2 timers" in notes and "its budget is renewed every 10000000 ns" in notes


def test_exported_budgets_are_ones_the_kernel_takes(tmp_path: Path) -> None:
    """Whatever period a task has: over the kernel's longest period the budget is renewed more often."""
    draw = Random(3)
    for number in range(300):
        period = round(10 ** draw.uniform(5.01, 12))
        due = draw.randint(2, period)
        work = min(draw.randint(1, due), MOST_PERIOD_NS)
        tasks = [task("t", work, period_ns=period, deadline_ns=due)]
        given = plan(tasks, [engine("cpu", policy="edf")], policy="edf")
        (found,) = entries(given)
        assert refused(found.runtime_ns, found.deadline_ns, found.period_ns) is None, (number, period, due, work)
        assert found.runtime_ns >= work and found.deadline_ns <= max(due, 1024) and found.period_ns <= max(period, due)
        (tmp_path / "a.yaml").write_text(autoware.write(ExportRequest(given)))
        import_autoware(tmp_path / "a.yaml")
    fast = plan([task("t", 9_000, period_ns=50_000, deadline_ns=50_000)], [engine("cpu", policy="edf")], policy="edf")
    assert "NOT ACCEPTED by the kernel: period of t" in linux(ExportRequest(fast))


def test_a_template_with_an_id_in_two_domains_keeps_both(tmp_path: Path) -> None:
    rows = [entry("/t@Timer(20000000)", f"domain_id: {n}, policy: SCHED_OTHER, nice: {n}") for n in (1, 2)]
    (tmp_path / "t.yaml").write_text("callback_groups:\n" + "".join(rows))
    given = plan([task("t", MS, period_ns=20 * MS)], [engine("cpu", policy="fp")], policy="fp")
    made = yaml.safe_load(autoware.write(ExportRequest(given, template=tmp_path / "t.yaml")))["callback_groups"]
    assert [(row["domain_id"], row["policy"]) for row in made] == [(1, "SCHED_FIFO"), (2, "SCHED_OTHER")]


CLASSIC = """
scheduler_conf {
  policy: "classic"
  threads: [ { name: "async_log" cpuset: "1" policy: "SCHED_OTHER" prio: 0 },
             { name: "shm" cpuset: "2" policy: "SCHED_RR" prio: 10 } ]
  classic_conf {
    groups: [
      { name: "compute" processor_num: 16 affinity: "range" cpuset: "0-3,8" processor_policy: "SCHED_OTHER"
        processor_prio: 0
        tasks: [ { name: "Detection" prio: 10 }, { name: "Fusion" prio: 15 } ] },
      { name: "urgent" processor_num: 2 affinity: "1to1" cpuset: "4-5" processor_policy: "SCHED_FIFO"
        processor_prio: 20 tasks: [ { name: "control" prio: 1 } ] }
    ]
  }
}
"""
DAG = """
module_config {
  components { class_name: "D" config { name: "Detection" readers { channel: "/lidar" } } }
  components { class_name: "F" config { name: "Fusion" readers { channel: "/boxes" } } }
  timer_components { class_name: "C" config { name: "control" interval: 10 } }
}
"""


def test_the_classic_policy_gives_groups_cpus_and_priorities(tmp_path: Path) -> None:
    (tmp_path / "c.conf").write_text(CLASSIC)
    (tmp_path / "d.dag").write_text(DAG)
    assert cyberrt.load(tmp_path / "c.conf") == [
        Thread("Detection", "other", (0, 1, 2, 3, 8), priority=10, scope="group compute"),
        Thread("Fusion", "other", (0, 1, 2, 3, 8), priority=15, scope="group compute"),
        Thread("control", "fifo", (4, 5), priority=1, scope="group urgent"),
        Thread("async_log", "other", (1,), priority=0),
        Thread("shm", "rr", (2,), priority=10),
    ]
    found = import_cyberrt(tmp_path / "d.dag", tmp_path / "c.conf", {"/lidar": "100ms"})
    pipeline, notes = found.pipeline("p.yaml"), "\n".join(found.notes)
    assert [(stage.name, stage.title) for stage in pipeline.stages] == [
        ("detection", "Detection: priority 10 on CPUs 0, 1, 2, 3, 8 in group compute"),
        ("control", "control: priority 1 on CPUs 4, 5 in group urgent"),
    ]
    assert "group urgent, threads of SCHED_FIFO on CPUs 4, 5; priorities: control 1" in notes
    assert "no component of the DAG: async_log, shm" in notes


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"classic"', '"modern"', "policy: expected classic or choreography, got 'modern'"),
        ('"SCHED_RR" prio: 10', '"SCHED_RR" prio: 0', "prio: expected 1 to 99, got 0"),
        ("processor_prio: 20", "processor_prio: 100", "processor_prio: expected 1 to 99, got 100"),
        ("processor_prio: 0", "processor_prio: -21", "processor_prio: expected -20 to 19, got -21"),
        ('"SCHED_FIFO"', '"SCHED_DEADLINE"', "processor_policy: expected one of"),
        ('name: "Fusion"', 'name: "Detection"', "name: expected every task once, got 'Detection' again"),
    ],
)
def test_a_classic_configuration_that_linux_or_cyberrt_would_not_take_is_refused(
    old: str, new: str, where: str, tmp_path: Path
) -> None:
    (tmp_path / "c.conf").write_text(CLASSIC.replace(old, new))
    with pytest.raises(SocschedError, match=rf"c\.conf:\d+:\d+: {where}"):
        cyberrt.load(tmp_path / "c.conf")


def test_components_and_channels_with_names_alike_are_all_kept(tmp_path: Path) -> None:
    names = ["前視", "後視", "a_b", "a-b", "a_b"]
    body = "".join(
        f'timer_components {{ config {{ name: "{name}" interval: {10 * n} }} }}' for n, name in enumerate(names, 1)
    )
    channels = ["/x/y", "/x-y"]
    body += "".join(
        f'components {{ config {{ name: "c{n}" readers {{ channel: "{c}" }} }} }}' for n, c in enumerate(channels)
    )
    (tmp_path / "d.dag").write_text(f"module_config {{ {body} }}", encoding="utf-8")
    found = import_cyberrt(tmp_path / "d.dag", None, {"/x/y": "10ms", "/x-y": "20ms"})
    pipeline = found.pipeline("p.yaml")
    assert [stage.title for stage in pipeline.stages[2:]] == names
    assert [stage.period_ns for stage in pipeline.stages[2:]] == [10 * n * MS for n in range(1, 6)]
    assert sorted(sensor.period_ns for sensor in pipeline.sensors) == [10 * MS, 20 * MS]
    assert all(one.name != other.name for one, other in pairwise(pipeline.stages))


def test_an_interval_that_no_pipeline_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.dag").write_text('module_config { timer_components { config { name: "a" interval: 3600001 } } }')
    with pytest.raises(SocschedError, match=r"d\.dag:1:\d+: interval: expected 1 to 3600000"):
        import_cyberrt(tmp_path / "d.dag")
