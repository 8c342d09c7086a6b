"""Task sets of SimSo, PARTSim and rt-app, and job sets of nptest, as their tools write them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from socsched.api.loading import import_taskset as load
from socsched.cli.root import run
from socsched.descriptor.taskset import TaskSet
from socsched.errors import SocschedError
from socsched.interchange.nptest import read_jobs
from socsched.interchange.taskset_import import form_of


def read(file: Path, text: str, processors: int = 0) -> tuple[TaskSet, str]:
    file.write_text(text, encoding="utf-8")
    tasks, notes = load(file, processors)
    return tasks, "\n".join(notes)


def analyzed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    code = run(["analyze", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def us(*values: float) -> list[int]:
    return [round(value * 1000) for value in values]


# As Configuration.save of SimSo 0.8.5 writes it.
def simso(scheduler: str, tasks: str, processors: int = 1, more: str = "") -> str:
    units = "".join(f'<processor name="CPU {n}" id="{n}" speed="1.0" cs_overhead="0"/>' for n in range(processors))
    return (
        '<?xml version="1.0" ?>\n<simulation duration="100000000" cycles_per_ms="1000000" etm="wcet">\n'
        f'\t<sched overhead="0" class="simso.schedulers.{scheduler}"{more}/>\n\t<caches memory_access_time="100"/>\n'
        f"\t<processors>{units}</processors>\n\t<tasks>\n{tasks}\t</tasks>\n</simulation>\n"
    )


def row(name: str, period: float, wcet: float | str, more: str = "", kind: str = "Periodic") -> str:
    return (
        f'\t\t<task name="{name}" id="1" task_type="{kind}" abort_on_miss="yes" period="{period}" activationDate="0" '
        f'list_activation_dates="" deadline="{period}" WCET="{wcet}" ACET="0" {more}/>\n'
    )


def test_simso_gives_policy_processors_times_and_horizon(tmp_path: Path) -> None:
    tasks, notes = read(
        tmp_path / "s.xml", simso("EDF_mono", row("TASK T1", 7.0, 3.5) + row("視", 12, 3) + row("視", 20, 5))
    )
    assert [task.name for task in tasks.tasks] == ["TASK T1", "視", "視-2"]
    assert [(t.period_ns, t.wcet_ns) for t in tasks.tasks] == [
        (7_000_000, 3_500_000),
        (12_000_000, 3_000_000),
        (20_000_000, 5_000_000),
    ]
    assert (tasks.policy.rule, tasks.processors, tasks.horizon_ns) == ("edf", 1, 100_000_000)
    assert "aborts late jobs" in notes


@pytest.mark.parametrize(
    ("scheduler", "count", "rule", "scheme"),
    [
        ("RM_mono", 1, "rm", "partitioned"),
        ("RM", 2, "rm", "global"),
        ("EDF", 4, "edf", "global"),
        ("FP", 1, "fp", "partitioned"),
    ],
)
def test_every_scheduler_of_simso_that_is_analysed(
    scheduler: str, count: int, rule: str, scheme: str, tmp_path: Path
) -> None:
    rows = row("a", 10, 1, 'priority="1"') + row("b", 20, 1, 'priority="5"')
    tasks, _ = read(tmp_path / "s.xml", simso(scheduler, rows, count))
    assert (tasks.policy.rule, tasks.policy.scheme, tasks.processors) == (rule, scheme, count)
    if rule == "fp":
        assert tasks.ranks == (1, 0)  # the larger number first


@pytest.mark.parametrize(
    ("scheduler", "cpus"),
    [
        ("P_EDF", [0, 1, 0, 1, 0]),
        ("P_EDF2", [0, 0, 1, 0, 1]),
        ("P_EDF_WF", [0, 1, 0, 1, 1]),
        ("P_RM", [0, 1, 1, 0, 0]),
    ],
)
def test_partitioned_schedulers_of_simso_place_tasks_as_simso_does(
    scheduler: str, cpus: list[int], tmp_path: Path
) -> None:
    """Placements that SimSo 0.8.5 logs for these tasks."""
    shares = {"a": 5, "b": 3, "c": 4, "d": 2, "e": 1}
    tasks, _ = read(tmp_path / "s.xml", simso(scheduler, "".join(row(n, 10, w) for n, w in shares.items()), 2))
    assert [task.cpu for task in tasks.tasks] == cpus


def test_tasks_that_simso_cannot_place_are_refused(tmp_path: Path) -> None:
    rows = row("a", 10, 6) + row("b", 10, 6) + row("c", 10, 6)
    with pytest.raises(SocschedError, match=r":9:\d+: task: expected a task that P_EDF can place"):
        read(tmp_path / "s.xml", simso("P_EDF", rows, 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (simso("PD2", row("a", 10, 1)), r":3:\d+: sched: expected one of the schedulers .*got 'PD2'"),
        (simso("EDF_mono", row("a", 10, 1), 2), "expected one processor under EDF_mono"),
        (simso("EDF", row("a", 10, "x")), r":7:\d+: task: WCET: expected a number"),
        (simso("EDF", row("a", 10, 0)), r":7:\d+: tasks\[0\].wcet: expected a positive time"),
        (simso("EDF", row("a", 10, 1e300)), "WCET: expected a number from 0"),
        (simso("EDF", row("a", 10, 1, kind="APeriodic")), "expected a periodic or sporadic task"),
        (simso("EDF", row("a", 10, 1)).replace('speed="1.0"', 'speed="1e-300"'), "of one speed of at least"),
        (simso("EDF", ""), "expected a task"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><simulation/>', "no document type"),
    ],
)
def test_what_simso_files_cannot_be_analysed_for_is_said_with_a_position(
    text: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(SocschedError, match=expected) as caught:
        read(tmp_path / "s.xml", text)
    assert caught.value.exit_code == 2


def test_sporadic_tasks_of_simso_have_their_shortest_distance(tmp_path: Path) -> None:
    rows = row("a", 10, 1) + row("b", 9, 1, kind="Sporadic").replace('dates=""', 'dates="3.5, 60, 68"')
    tasks, notes = read(tmp_path / "s.xml", simso("EDF_mono", rows))
    assert [(t.sporadic, t.period_ns) for t in tasks.tasks] == [(False, 10_000_000), (True, 8_000_000)]
    assert "shortest distance is 8 ms" in notes


PARTSIM = """# as simconf/tasksets of PARTSim
taskset:
  - name: T1
    iat: 32
    deadline: 32
    server_type: grub
    cbs_runtime: 8
    startcpu: 0
    code:
      - fixed(7)
  - name: T1
    iat: unif(48, 60)
    rdl: 40
    ph: 3
    startcpu: 1
    code:
      - delay(uniform(2,14))
      - fixed(1, bzip2);
"""


def test_partsim_gives_distances_deadlines_and_what_code_runs(tmp_path: Path) -> None:
    tasks, notes = read(tmp_path / "p.yml", PARTSIM)
    first, second = tasks.tasks
    assert (first.name, second.name) == ("T1", "T1-2")
    assert (first.period_ns, first.wcet_ns, first.cpu) == (32_000_000, 7_000_000, 0)
    assert (second.period_ns, second.sporadic, second.deadline_ns, second.offset_ns) == (
        48_000_000,
        True,
        40_000_000,
        3_000_000,
    )
    assert (second.bcet_ns, second.wcet_ns, second.cpu, tasks.processors) == (3_000_000, 15_000_000, 1, 2)
    assert "Budgets of servers are left out" in notes and "Processors assumed, from startcpu: 2" in notes


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("fixed(7)", "lock(m)", r"p\.yml:10:9: taskset\[0\]\.code\[0\]: expected tasks that do not wait"),
        ("fixed(7)", "delay(exponential(3))", "has no longest time"),
        ("fixed(7)", "fixed(0)", r"taskset\[0\]\.code: expected a list of instructions"),
        ("iat: 32", "iat: soon", r"p\.yml:4:10: taskset\[0\]\.iat: expected a time"),
        ("iat: 32", "iat: -1", r"taskset\[0\]\.iat: expected a time"),
        ("startcpu: 1", "startcpu: -1", "expected a processor from 0"),
    ],
)
def test_a_partsim_file_that_cannot_be_analysed_is_refused(old: str, new: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SocschedError, match=expected):
        read(tmp_path / "p.yml", PARTSIM.replace(old, new))


def test_partsim_tasks_are_all_placed_or_none(tmp_path: Path) -> None:
    more = "  - {name: T3, iat: 50, code: [fixed(1)]}\n"
    with pytest.raises(SocschedError, match="expected startcpu for every task, or for none"):
        read(tmp_path / "p.yml", PARTSIM + more)
    tasks, _ = read(tmp_path / "p.yml", PARTSIM.replace("startcpu: 1", "startcpu: 0"), 4)
    assert tasks.policy.scheme == "global" and tasks.processors == 4


RTAPP = """{
  /* a comment, as rt-app's examples have */
  "tasks" : {
    "cam" : { "policy" : "SCHED_DEADLINE", "instance" : 2, "dl-runtime" : 2000, "dl-period" : 10000,
              "dl-deadline" : 8000, "loop" : -1, "run" : 1000, "run" : 500,
              "timer" : { "ref" : "unique", "period" : 10000 } },
    "log" : { "policy" : "SCHED_OTHER", "run" : 900000, "suspend", "sleep" : 1 },
    "cam" : { "policy" : "SCHED_DEADLINE", "dl-runtime" : 1000, "dl-period" : 30000, "run" : 400, "sleep" : 39600, },
  },
  "global" : { "duration" : 2 }
}
"""


def test_rtapp_keeps_every_thread_and_every_event_of_a_name(tmp_path: Path) -> None:
    tasks, notes = read(tmp_path / "r.json", RTAPP)
    assert [task.name for task in tasks.tasks] == ["cam", "cam-2", "cam-3"]
    assert [(t.period_ns, t.deadline_ns, t.wcet_ns) for t in tasks.tasks[:2]] == [tuple(us(10_000, 8000, 1500))] * 2
    last = tasks.tasks[2]
    assert (last.sporadic, last.deadline_ns, last.wcet_ns) == (True, *us(30_000, 400))
    assert tasks.policy.rule == "edf" and tasks.horizon_ns == 2 * 10**9
    assert "no real-time policy: log" in notes and "sleeps between its loops" in notes


def fifo(first: str, second: str) -> str:
    timer = '"timer": {"ref": "unique", "period": 10000}'
    return '{"tasks": {%s}}' % ", ".join(  # noqa: UP031
        f'"{name}": {{"policy": "SCHED_FIFO", {more} "run": 1000, {timer}}}'
        for name, more in (("a", first), ("b", second))
    )


def test_rtapp_with_fixed_priorities_and_with_one_priority(tmp_path: Path) -> None:
    tasks, _ = read(tmp_path / "r.json", fifo('"priority": 10, "cpus": [1],', '"priority": 90, "cpus": [0],'))
    assert tasks.policy.rule == "fp" and tasks.ranks == (1, 0) and [t.cpu for t in tasks.tasks] == [1, 0]
    tasks, _ = read(tmp_path / "r.json", fifo("", ""), 1)
    assert tasks.policy.rule == "fifo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (RTAPP.replace('"run" : 1000', '"lock" : "m"'), r"r\.json:5:\d+: cam\.lock: expected threads that do not wait"),
        (RTAPP.replace(": 8000", ": 1000"), r"r\.json:4:\d+: cam\.dl-runtime: expected at most the deadline"),
        (RTAPP.replace('"dl-runtime" : 2000', '"dl-runtime" : 1'), "cam.dl-runtime: expected at least 1024 ns"),
        (RTAPP.replace('"period" : 10000 }', '"period" : -1 }'), "cam.timer.period: expected a time in us"),
        (fifo('"priority": 100,', ""), "a.priority: expected 1 to 99 under SCHED_FIFO, got 100"),
        (fifo('"priority": 9, "policy": "SCHED_RR",', '"priority": 9,'), "threads with one priority"),
        (fifo('"policy": "SCHED_DEADLINE",', ""), "threads of SCHED_DEADLINE and of SCHED_FIFO"),
        (fifo('"cpus": [0, 1],', '"cpus": [2],'), "neither one processor each nor all"),
        ('{"tasks": {"a": {"run": 5}}}', "no thread of a real-time policy"),
        (RTAPP.replace('"instance" : 2', '"instance" : 1e400'), "cam.instance: expected a whole number"),
        (fifo('"cpus": [1e400],', ""), "a.cpus: expected CPU numbers"),
        ('{"tasks": {"a": [}}', r"r\.json:1:18: file: expected a value"),
        ('{"tasks": {"a": ' + "[" * 5000, "expected at most 64 levels"),
    ],
)  # fmt: skip
def test_an_rtapp_file_that_cannot_be_analysed_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SocschedError, match=expected):
        read(tmp_path / "r.json", text)


def test_a_thread_that_runs_over_its_budget_is_analysed_as_its_budget(tmp_path: Path) -> None:
    """As doc/examples/deadline_reclaim-2.json of rt-app: 30 ms of work on a budget of 10 ms in 30 ms."""
    text = (
        '{"tasks": {"t": {"instance": 3, "run": 30000, "timer": {"ref": "unique", "period": 30000}, '
        '"dl-runtime": 10000, "dl-period": 30000, "dl-reclaim": true}}, "global": {"default_policy": "SCHED_DEADLINE"}}'
    )
    tasks, notes = read(tmp_path / "r.json", text)
    assert [t.wcet_ns for t in tasks.tasks] == us(10_000) * 3 and "it is throttled" in notes


HEAD = "   Task ID,     Job ID,  Arrival min, Arrival max, Cost min, Cost max, Deadline, Priority\n"
FIGURE_1 = "".join(
    f"{task}, {job}, {at}, {at}, {least}, {most}, {due}, {due}\n"
    for task, job, at, least, most, due in (
        *((1, n, 10 * (n - 1), 1, 2, 10 * n) for n in range(1, 7)),
        (2, 7, 0, 7, 8, 30), (2, 8, 30, 7, 7, 60), (3, 9, 0, 3, 13, 60),
    )
)  # fmt: skip
EDGES = "Predecessor TID,\tPredecessor JID,\tSuccessor TID, Successor JID\n1, 1,    1, 2\n1, 2,    3, 9\n"


def test_figure_1_of_the_paper_is_decided_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not on one processor, on two, and on one with precedence: Nasri & Brandenburg 2017."""
    jobs, edges = tmp_path / "jobs.csv", tmp_path / "jobs.prec.csv"
    jobs.write_text(HEAD + FIGURE_1)
    edges.write_text(EDGES)
    code, shown = analyzed([str(jobs)], capsys)
    assert (code, shown["verdict"], shown["missed"]) == (
        1,
        "infeasible",
        {"task": 1, "job": 2, "end": 24, "deadline": 20},
    )
    code, shown = analyzed([str(jobs), "--processors", "2"], capsys)
    assert (code, shown["verdict"]) == (0, "feasible")
    code, shown = analyzed([str(jobs), "--precedence", str(edges)], capsys)
    assert (code, shown["verdict"]) == (0, "feasible") and len(shown["completions"]) == 9  # type: ignore[arg-type]


def test_decimals_of_job_sets_are_exact_and_crlf_and_extra_commas_are_taken(tmp_path: Path) -> None:
    (tmp_path / "j.csv").write_bytes(b"TID,JID,a,b,c,d,e,f\r\n1,1,0,0.5,1.25,2,10,0.5,\r\n\r\n2,1,0,0,1,1,3,1\r\n")
    found = read_jobs(tmp_path / "j.csv")
    assert found.scale == 100 and [(j.most_release, j.least_cost, j.priority) for j in found.jobs] == [
        (50, 125, 5),
        (0, 100, 10),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1, 1, 0, 0, 1, 2, 10", r"j\.csv:2:1: line: expected 8 numbers, got 7 columns"),
        ("1, 1, 0, 0, 1, 2, 10, 1, 4", "got 9 columns"),
        ("1, 1, 0, x, 1, 2, 10, 1", r"j\.csv:2:9: release max: expected 8 numbers, got 'x'"),
        ("1, 1, 5, 0, 1, 2, 10, 1", "release max: expected at least the release min of 5, got 0"),
        ("1, 1, 0, 0, 3, 2, 10, 1", "cost max: expected at least the cost min"),
        ("1, 1, 0, 0, -1, 2, 10, 1", "cost min: expected no negative number"),
        ("1, 1, 0, 0, 1, 999999999999999999999, 10, 1", "expected 8 numbers"),
        ("1, 1, 0, 0, 1, 2, 10, 1\n1, 1, 9, 9, 1, 2, 30, 1", r"j\.csv:3:1: job: expected every job of a task once"),
        ("1, 1, 0, 0, 0, 0, 10, 1", "cost max: expected a positive cost"),
        ("", "a job set without jobs"),
    ],
)
def test_wrong_lines_of_a_job_set_are_reported_with_their_position(line: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "j.csv").write_text(HEAD + line + "\n")
    with pytest.raises(SocschedError, match=expected):
        read_jobs(tmp_path / "j.csv")


@pytest.mark.parametrize(
    ("edges", "expected"),
    [("head\n1, 1, 9, 9\n", r"e\.csv:2:1: job: expected a job of the job set, got task 9, job 9"),
     ("head\n1, 1, 1, 2\n1, 2, 1, 1\n", "wait for each other in a cycle")],
)  # fmt: skip
def test_wrong_precedence_is_refused(edges: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "j.csv").write_text(HEAD + FIGURE_1)
    (tmp_path / "e.csv").write_text(edges)
    with pytest.raises(SocschedError, match=expected):
        read_jobs(tmp_path / "j.csv", tmp_path / "e.csv")


def test_files_of_other_forms_are_not_taken_for_task_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (
        ("a.csv", "time,power\n1,2\n"),
        ("b.xml", "<a/>"),
        ("c.txt", "hello\n"),
        ("d.yaml", "stages:\n"),
    ):
        (tmp_path / name).write_text(text)
        assert form_of(tmp_path / name) is None
        assert run(["analyze", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert all(word in error for word in ("neither a plan nor a task set", "SimSo", "PARTSim", "rt-app", "nptest"))


def test_the_command_line_analyses_and_simulates_what_other_tools_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"s.xml": simso("EDF_mono", row("a", 7, 3) + row("b", 12, 3)), "p.yml": PARTSIM, "r.json": RTAPP}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        code, shown = analyzed([str(tmp_path / name)], capsys)
        assert (code, shown["verdict"]) == (0, "feasible"), name
        assert run(["simulate", str(tmp_path / name), "--duration", "200ms", "--json"]) == 0
        simulated = json.loads(capsys.readouterr().out)
        assert all(task["jobs_completed"] and not task["deadline_misses"] for task in simulated["tasks"])
        for encoded in (
            gzip.compress(text.encode()),
            text.encode("utf-16"),
            text.replace("\n", "\r\n").encode("utf-8-sig"),
        ):
            (tmp_path / name).write_bytes(encoded)
            assert analyzed([str(tmp_path / name)], capsys)[1]["tasks"] == shown["tasks"], name
    (tmp_path / "j.csv").write_text(HEAD + FIGURE_1)
    assert run(["simulate", str(tmp_path / "j.csv")]) == 2
    assert "socsched analyze decides it" in capsys.readouterr().err
