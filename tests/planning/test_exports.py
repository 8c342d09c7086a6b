"""Exports to middleware and operating systems are read back: by our readers, by protobuf, by systemd, by the kernel."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from socsched.api.export import FORMATS
from socsched.cli import root
from socsched.errors import SocschedError, UsageError
from socsched.planning.export import autoware, cyberrt
from socsched.planning.export.linux import ExportRequest, Thread, entries, escape, rclcpp, systemd, threads
from socsched.planning.io import save
from socsched.planning.plan import Plan
from tests.planning.test_hostile_plans import EVIL
from tests.sim.builders import chain, engine, plan, task
from tools.verify import applied

MS = 1_000_000


def small(policy: str = "fp", name: str = "track") -> Plan:
    """Return a plan of two cores, with a task on both, and of a GPU."""
    tasks = [
        task("sense", 2 * MS, period_ns=20 * MS, deadline_ns=20 * MS, priority=0, lanes=(1,)),
        task("net", 5 * MS, engine="gpu", after=("sense",), period_ns=20 * MS),
        task(name, 3 * MS, after=("net",), period_ns=40 * MS, deadline_ns=40 * MS, priority=3, lanes=(0, 1)),
    ]
    cores, gpu = engine("cpu", lanes=3, policy=policy), engine("gpu", preemption="segment")
    return plan(tasks, [cores, gpu], chains=(chain("all", ("sense", "net", name), 60 * MS),), policy=policy)


def request_of(policy: str = "fp", name: str = "track", **more: object) -> ExportRequest:
    return ExportRequest(small(policy, name), {"cpu": (4, 5, 6)}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["fp", "edf"])
def test_autoware_reads_back_the_entries_of_the_plan(policy: str, tmp_path: Path) -> None:
    asked = request_of(policy)
    (tmp_path / "a.yaml").write_text(autoware.write(asked))
    found = {thread.name: thread for thread in autoware.load(tmp_path / "a.yaml")}
    assert list(found.values()) == sorted(threads(asked), key=lambda thread: thread.worker)
    lanes = [(e.task, 4 + e.lane, e.runtime_ns, e.deadline_ns, e.period_ns, e.priority) for e in entries(asked.plan)]
    assert sorted(
        (t.task, t.processors[0], t.runtime_ns, t.deadline_ns, t.period_ns, t.priority) for t in found.values()
    ) == sorted(lanes)
    text = (tmp_path / "a.yaml").read_text()
    assert "net on gpu" in text and "wcet 2000000 ns" in text


def test_cyberrt_is_text_that_protobuf_parses_by_the_schema_of_apollo() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

    tables = {
        "InnerThread": "name:s cpuset:s policy:s prio:u",
        "ChoreographyTask": "name:s processor:i prio:u",
        "ChoreographyConf": "choreography_processor_num:u choreography_affinity:s choreography_processor_policy:s "
        "choreography_processor_prio:i choreography_cpuset:s pool_processor_num:u pool_affinity:s "
        "pool_processor_policy:s pool_processor_prio:i pool_cpuset:s tasks:*ChoreographyTask",
        "SchedulerConf": "policy:s routine_num:u default_proc_num:u process_level_cpuset:s threads:*InnerThread "
        "choreography_conf:ChoreographyConf",
        "CyberConfig": "scheduler_conf:SchedulerConf",
    }
    file = descriptor_pb2.FileDescriptorProto(name="conf.proto", package="cyber", syntax="proto2")
    kinds = {"s": 9, "u": 13, "i": 5}
    for name, fields in tables.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate((item.split(":") for item in fields.split()), 1):
            added = message.field.add(name=field, number=number, label=3 if kind.startswith("*") else 1)
            added.type = kinds.get(kind, 11)
            if kind not in kinds:
                added.type_name = f".cyber.{kind.strip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    conf = message_factory.GetMessageClass(pool.FindMessageTypeByName("cyber.CyberConfig"))()
    for name in ("track", *EVIL):
        conf.Clear()
        text_format.Parse(cyberrt.write(request_of(name=name)), conf)
        choreography = conf.scheduler_conf.choreography_conf
        assert [t.name for t in choreography.tasks] == ["sense", name]
        cpus = [int(cpu) for cpu in choreography.choreography_cpuset.split(",")]
        assert [cpus[t.processor] for t in choreography.tasks] == [5, 4]


def test_rclcpp_has_the_keys_and_values_of_rep_2017() -> None:
    asked = request_of(names={"sense": "front camera"})
    rows = yaml.safe_load(rclcpp(asked))
    assert all(set(row) == {"name", "scheduling_policy", "priority", "core_affinity"} for row in rows)
    assert [row["name"] for row in rows] == ["front camera", "track", "track/1"]
    assert [(row["priority"], tuple(row["core_affinity"])) for row in rows] == [
        (thread.priority, thread.processors) for thread in threads(asked)
    ]
    with pytest.raises(UsageError, match="no budgets"):
        rclcpp(request_of("edf"))


def test_systemd_drop_ins_have_names_of_their_own(tmp_path: Path) -> None:
    found = systemd(request_of(name="a-b>c"))
    assert list(found) == ["sense.service.d/50-socsched.conf", r"a\x2db\x3ec.service.d/50-socsched.conf"]
    assert "CPUAffinity=4 5\nCPUSchedulingPolicy=fifo\n" in found[r"a\x2db\x3ec.service.d/50-socsched.conf"]
    for name, escaped in ((".x", r"\x2ex"), ("é", r"\xc3\xa9"), ("a/b", "a-b")):
        assert escape(name) == escaped


@pytest.mark.needs("systemd")
def test_systemd_accepts_its_drop_ins(tmp_path: Path) -> None:
    found = systemd(request_of(name="a-b>c"))
    for path, text in found.items():
        unit = tmp_path / path.partition(".d/")[0]
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(text)
        unit.write_text("[Service]\nExecStart=/bin/true\n")
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
        assert "socsched" not in done.stderr, done.stderr


TEMPLATE = """
hardware_info: {model_name: "Some CPU"}
callback_groups:
  - {id: /perception/sense@Subscription(/image), affinity: ~, policy: SCHED_OTHER, nice: 0}
  - id: /perception/sense@Service(/sense/get_parameters)@Subscription(/parameter_events)
    policy: SCHED_OTHER
    nice: 5
  - {id: /other@Timer(1000), policy: SCHED_OTHER, nice: 0}
irqs:
  - {irq: 103, name: nvidia, affinity: [4, 5, 6]}
  - {irq: 0, name: timer, affinity: UNMANAGEABLE}
kernel_threads:
  - {comm: irq/103-nvidia, policy: SCHED_FIFO, priority: 50, affinity: [4]}
"""


def test_a_template_keeps_its_ids_and_leaves_interrupts_on_other_cpus(tmp_path: Path) -> None:
    file = tmp_path / "template.yaml"
    file.write_text(TEMPLATE)
    with pytest.raises(UsageError, match="no callback group of a node named like task track"):
        autoware.write(request_of(template=file))
    asked = request_of(template=file, names={"track": "/other@Timer(1000)"})
    made = yaml.safe_load(autoware.write(asked))
    groups = {group["id"]: group for group in made["callback_groups"]}
    assert list(groups) == [
        "/perception/sense@Subscription(/image)",
        "/other@Timer(1000)",
        "/perception/sense@Service(/sense/get_parameters)@Subscription(/parameter_events)",
    ]
    assert groups["/perception/sense@Subscription(/image)"]["affinity"] == [5]
    assert groups["/perception/sense@Service(/sense/get_parameters)@Subscription(/parameter_events)"]["nice"] == 5
    assert [row["affinity"] for row in made["irqs"]] == [[6], "UNMANAGEABLE"]
    assert made["kernel_threads"] == [
        {"comm": "irq/103-nvidia", "policy": "SCHED_FIFO", "priority": 50, "affinity": [6]}
    ]
    assert made["hardware_info"] == {"model_name": "Some CPU"}
    left_out = yaml.safe_load(autoware.write(replace(asked, names={"track": ""})))
    assert [g["policy"] for g in left_out["callback_groups"]] == ["SCHED_FIFO", "SCHED_OTHER", "SCHED_OTHER"]


@pytest.mark.parametrize(
    ("task", "group"),
    [
        ("detect-callback-0", "/perception/detect@Subscription(/image)"),
        ("perception-detect-callback-0", "/perception/detect@Subscription(/image)"),
        ("detect-front-callback-1", "/detect_front@Timer(1000)"),
        ("detected", ""),
    ],
)
def test_names_of_imported_callbacks_find_the_group_of_their_node(task: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "template.yaml"
    ids = ("/perception/sense@Timer(9)", "/perception/detect@Subscription(/image)", "/detect_front@Timer(1000)")
    rows = [{"id": identity, "policy": "SCHED_OTHER", "nice": 0} for identity in ids]
    file.write_text(yaml.safe_dump({"callback_groups": rows}))
    asked = request_of(template=file, name=task)
    if not group:
        with pytest.raises(UsageError, match="no callback group of a node named like task detected"):
            autoware.write(asked)
        return
    made = yaml.safe_load(autoware.write(asked))
    assert [row["id"] for row in made["callback_groups"] if row["policy"] == "SCHED_FIFO"] == [ids[0], group]


def test_two_tasks_of_one_callback_group_are_an_error_that_names_them(tmp_path: Path) -> None:
    file = tmp_path / "template.yaml"
    file.write_text(yaml.safe_dump({"callback_groups": [{"id": "/sense@Timer(9)@Subscription(/image)"}]}))
    with pytest.raises(UsageError, match="sense and sense-callback-1 have the same callback group") as found:
        autoware.write(request_of(template=file, name="sense-callback-1"))
    assert "--map 'sense-callback-1='" in found.value.hint


@pytest.mark.parametrize("name", [*EVIL, "\x85- evil", "\u2028- evil", "\U0001f600", "# x", "a: b"])
def test_no_name_of_a_plan_adds_to_an_export(name: str, tmp_path: Path) -> None:
    asked = request_of(name=name)
    made = yaml.safe_load(autoware.write(asked))
    assert [group["id"] for group in made["callback_groups"]] == ["sense", name]
    assert [row["name"] for row in yaml.safe_load(rclcpp(asked))] == ["sense", name, f"{name}/1"]
    (tmp_path / "c.conf").write_text(cyberrt.write(asked))
    assert [thread.name for thread in cyberrt.load(tmp_path / "c.conf")] == ["sense", name, f"{name}/1"]
    for path, text in systemd(asked).items():
        assert path.count("/") == 1 and path.isascii() and "\n" not in path
        assert next(line for line in text.splitlines() if not line.startswith("#")) == "[Service]"
        assert sum(not line.startswith("#") for line in text.splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("callback_groups: 3", "1:18: callback_groups: expected a list"),
        ("callback_groups:\n- {id: a, policy: SCHED_FIFO, priority: 100}", "2:41: callback_groups[0].priority"),
        ("callback_groups:\n- {id: a, policy: FIFO}", "callback_groups[0].policy: expected one of"),
        ("callback_groups:\n- {policy: SCHED_OTHER, nice: 0, affinity: [-1]}", "affinity: expected a list of CPU"),
    ],
)
def test_a_wrong_configuration_of_autoware_is_reported_with_its_position(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(SocschedError) as caught:
        autoware.load(tmp_path / "a.yaml")
    assert where in str(caught.value)


EXAMPLE = """
scheduler_conf {  # as Apollo's example is written
  policy: "choreography"
  threads: [ { name: "lidar" cpuset: "1" policy: "SCHED_FIFO" prio: 10 }, { name: "shm" cpuset: "2-3"
               policy: "SCHED_OTHER" } ]
  choreography_conf {
    choreography_cpuset: "0-1, 6"  pool_cpuset: '7'
    tasks: [ { name: "convert" processor: 2 prio: 11 }, { name: "rest" } ]
  }
}
"""


def test_a_configuration_of_apollo_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.conf").write_text(EXAMPLE)
    assert cyberrt.load(tmp_path / "c.conf") == [
        Thread("convert", "fifo", (6,), priority=11),
        Thread("rest", "other", (7,), priority=1),
        Thread("lidar", "fifo", (1,), priority=10),
        Thread("shm", "other", (2, 3), priority=1),
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (EXAMPLE.replace("processor: 2", "processor: 3"), "8:32: processor: expected an index below 3"),
        (EXAMPLE.replace("0-1, 6", "0-99999"), "choreography_cpuset: expected CPU numbers"),
        (EXAMPLE.replace("}\n", ""), "file: expected the name of a field or }"),
        ("x" * 10, "1:11: file: expected : or {"),
        ("a {" * 100, "expected less nesting"),
        ("\x00", "1:1: file: expected a field"),
        ("a: 1e999999", "scheduler_conf: expected one message"),
    ],
)
def test_a_wrong_configuration_of_apollo_is_reported_with_its_position(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "c.conf").write_text(text)
    with pytest.raises(SocschedError) as caught:
        cyberrt.load(tmp_path / "c.conf")
    assert where in str(caught.value)


def test_the_command_line_writes_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = replace(small(), platform="jetson-agx-orin-64gb", mode="MAXN")
    save(made, tmp_path / "plan.json")
    call = ["plan", str(tmp_path / "plan.json"), "-q", "--export"]
    for form in FORMATS:
        if form == "onnxruntime":
            assert root.run([*call, form, "-o", str(tmp_path / form)]) == 2
            assert "no stage of the plan is a network" in capsys.readouterr().err
            continue
        assert root.run([*call, form, "-o", str(tmp_path / form)]) in (0, 4), capsys.readouterr().err
        assert (tmp_path / form).is_dir() == FORMATS[form].folder
    assert root.run([*call, "amalthea", "-o", str(tmp_path / "s"), "--map", "sense=x"]) == 2
    assert root.run([*call, "autoware", "-o", str(tmp_path / "s"), "--map", "nothing=x"]) == 2
    assert root.run([*call, "autoware", "-o", str(tmp_path)]) == 2
    assert "is a directory" in capsys.readouterr().err


@pytest.mark.needs("real-time threads")
@pytest.mark.parametrize("form", ["autoware", "linux"])
def test_the_kernel_reads_back_what_was_exported(form: str, tmp_path: Path) -> None:
    made = applied.two_tasks(10)
    listed = threads(ExportRequest(made))
    running = applied.Running(applied.compiled(tmp_path), made, 10 * MS)
    try:
        {"autoware": applied.by_autoware, "linux": applied.by_linux}[form](made, listed, running.tids, tmp_path)
        assert [applied.read_back(thread.name, running.tids[thread.name]) for thread in listed] == listed
    finally:
        running.close()


@pytest.mark.needs("real-time threads")
def test_the_kernel_admits_the_exported_budgets(tmp_path: Path) -> None:
    made = applied.two_tasks(10, "edf")
    listed = threads(ExportRequest(made))
    running = applied.Running(applied.compiled(tmp_path), made, 10 * MS)
    try:
        applied.by_autoware(made, listed, running.tids, tmp_path)
        found = [applied.read_back(thread.name, running.tids[thread.name]) for thread in listed]
        assert found == [replace(thread, processors=()) for thread in listed]
    finally:
        running.close()
