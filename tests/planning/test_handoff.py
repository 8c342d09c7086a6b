"""Exports are read back: as YAML, by a shell, by Perfetto's own protocol buffers."""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from socsched.cli import root
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.export.linux import SHARE, ExportRequest, admission, entries, linux
from socsched.planning.io import save
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan


class Plans(dict[str, Plan]):
    """The plan of each policy, made when it is asked for."""

    def __missing__(self, policy: str) -> Plan:
        pipeline, board = get_pipeline("perception-stack"), get_platform("jetson-agx-orin-64gb")
        return self.setdefault(policy, make_plan(pipeline, board, "MAXN", policy=policy, work=stage_work, budget=12))


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return Plans()


@pytest.fixture
def exported(plans: dict[str, Plan], tmp_path: Path):
    def export(form: str, policy: str = "edf") -> Path:
        file, target = tmp_path / "plan.json", tmp_path / f"plan.{form}"
        save(plans[policy], file)
        assert root.run(["plan", str(file), "--export", form, "-o", str(target), "-q"]) == 0
        return target

    return export


@pytest.mark.parametrize("policy", ["edf", "fp"])
@pytest.mark.sampled(2)
def test_the_script_for_linux_is_a_script_and_says_what_the_plan_says(
    policy: str, plans: dict[str, Plan], exported
) -> None:
    plan, script = plans[policy], str(exported("linux", policy))
    shown = subprocess.run(["sh", script], capture_output=True, text=True, check=True).stdout.splitlines()
    head, *rows = [line.split() for line in shown]
    table = [dict(zip(head, row, strict=True)) for row in rows]
    tasks = {task.name: task for task in plan.tasks}
    on_cores = {engine.id for engine in plan.engines if engine.preemption == "full"}
    wanted = {(task.name, lane) for task in plan.tasks if task.engine in on_cores for lane in task.lanes}
    assert {(row["task"], int(row["lane"])) for row in table} == wanted
    for row in table:
        task = tasks[row["task"]]
        if policy == "edf":
            runtime, deadline, period = (int(row[key]) for key in ("runtime_ns", "deadline_ns", "period_ns"))
            assert 1024 <= task.wcet_ns <= runtime <= deadline <= period == task.period_ns
            assert deadline + task.jitter_ns <= task.deadline_ns or deadline == runtime
        else:
            assert row["policy"] == "fifo" and 1 <= int(row["priority"]) <= 80
    if policy == "fp":
        order = sorted(table, key=lambda row: -int(row["priority"]))
        assert [tasks[row["task"]].priority for row in order] == sorted(tasks[row["task"]].priority for row in table)
    env = {"RUN": "echo", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", script, "prepare"], capture_output=True, text=True, check=True, env=env).stdout
    assert done.startswith("nvpmodel -m 0\n"), "mode MAXN"
    last = table[-1]["task"]
    lanes = [row for row in table if row["task"] == last]
    call = ["sh", script, "apply", last, *(str(100 + n) for n in range(len(lanes)))]
    done = subprocess.run(call, capture_output=True, text=True, check=True, env=env).stdout
    assert done.count("chrt --") == len(lanes)
    assert subprocess.run(["sh", script, "apply", "nobody", "1"], capture_output=True, env=env).returncode == 2


def test_reservations_the_kernel_refuses_are_reported(plans: dict[str, Plan]) -> None:
    from dataclasses import replace

    plan = plans["edf"]
    assert all(used <= SHARE for used in admission(entries(plan)).values())
    assert "NOT ADMITTED" not in linux(ExportRequest(plan, mode_id=0))
    task = next(t for t in plan.tasks if t.name == "plan")
    full = replace(
        plan, tasks=tuple(replace(t, wcet_ns=t.period_ns * 97 // 100) if t == task else t for t in plan.tasks)
    )
    assert "NOT ADMITTED" in linux(ExportRequest(full, mode_id=0))


def test_export_needs_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["plan", "pointpillars", "-p", "jetson-agx-orin-64gb", "--export", "linux"]) == 2
    assert "-o FILE" in capsys.readouterr().err
    assert root.run(["plan", "pointpillars"]) == 2


def test_a_perfetto_trace_of_a_plan_says_that_it_is_planned(exported) -> None:
    pytest.importorskip("perfetto")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace()
    trace.ParseFromString(gzip.decompress(exported("perfetto").read_bytes()))
    named = [packet.track_descriptor.process.process_name for packet in trace.packet]
    assert [name.rpartition(", ")[2] for name in named if name] == ["planned"]
