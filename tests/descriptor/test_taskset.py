"""Task-set files: files as research exchanges them are read exactly, and errors are reported with their positions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.taskset import Policy, load_taskset, taskset_from_mapping
from socsched.errors import DescriptorError


def write(folder: Path, text: str) -> Path:
    path = folder / "set.yaml"
    path.write_text(text)
    return path


def faults(path: Path) -> list[str]:
    with pytest.raises(DescriptorError) as caught:
        load_taskset(path)
    return [f"{f.line}:{f.column} {f.field} {f.expected}" for f in caught.value.findings]


def test_every_published_file_is_read_to_the_nanosecond(data: Path) -> None:
    paths = sorted((data / "simso").glob("*.taskset.json"))
    assert len(paths) >= 7
    for path in paths:
        raw, made = json.loads(path.read_text()), load_taskset(path)
        assert (made.name, made.unit_ns, made.processors) == (raw["name"], 1000, raw["processors"])
        assert made.horizon_ns == raw["horizon"] * 1000
        for row, task in zip(raw["tasks"], made.tasks, strict=True):
            assert (task.id, task.name) == (row["id"], row["name"])
            for key in ("period", "deadline", "wcet", "offset"):
                assert getattr(task, f"{key}_ns") == row[key] * 1000
            assert task.bcet_ns == task.wcet_ns and task.jitter_ns == 0
            assert task.cpu == (0 if made.processors == 1 else row.get("cpu"))


def test_ranks_of_a_partitioned_set_are_the_published_ones(data: Path) -> None:
    path = data / "simso" / "w3_prm_4cpu_off_1.taskset.json"
    raw, made = json.loads(path.read_text()), load_taskset(path)
    assert made.policy == Policy("rm", "partitioned", True)
    for cpu in range(4):
        here = [i for i, row in enumerate(raw["tasks"]) if row["cpu"] == cpu]
        assert sorted(here, key=lambda i: raw["tasks"][i]["rm_rank"]) == sorted(here, key=made.ranks.__getitem__)


@pytest.mark.parametrize(("file", "count"), [("sag/np_oracle.json.xz", 100), ("chains/e2e_oracle.json", 30)])
def test_every_published_case_is_read(file: str, count: int) -> None:
    cases = read(file)["cases"]
    assert len(cases) >= count
    for case in cases:
        made = taskset_from_mapping(case, file)
        assert [t.wcet_ns for t in made.tasks] == [t["wcet"] for t in case["tasks"]]
        assert made.unit_ns == 1 and list(made.chain) == case.get("chain", [])
        assert made.policy.preemptive == ("policy" not in case) and made.policy.rule == "fp"
        assert made.policy.scheme == ("partitioned" if case.get("processors", 1) == 1 else "global")


@pytest.mark.parametrize(
    ("text", "processors", "expected"),
    [
        ("EDF", 1, Policy("edf", "partitioned", True)),
        ("EDF", 4, Policy("edf", "global", True)),
        ("EDF_mono", 1, Policy("edf", "partitioned", True)),
        ("P_RM", 4, Policy("rm", "partitioned", True)),
        ("P_EDF", 4, Policy("edf", "partitioned", True)),
        ("G_FP", 4, Policy("fp", "global", True)),
        ("NP-FP", 2, Policy("fp", "global", False)),
        ("NP-EDF", 1, Policy("edf", "partitioned", False)),
        ("P_NP-FP", 2, Policy("fp", "partitioned", False)),
        ("FP-P", 1, Policy("fp", "partitioned", True)),
        ("FP-NP", 1, Policy("fp", "partitioned", False)),
        ("dm", 1, Policy("dm", "partitioned", True)),
        ("FIFO", 1, Policy("fifo", "partitioned", False)),
        (None, 1, Policy("fp", "partitioned", True)),
    ],
)
def test_policies_are_normalised(text: str | None, processors: int, expected: Policy) -> None:
    cpu = {"cpu": 0} if processors > 1 and expected.scheme == "partitioned" else {}
    task = {"period": 10, "wcet": 1, "prio": 3, **cpu}
    data: dict[str, Any] = {"processors": processors, "tasks": [task], **({"policy": text} if text else {})}
    assert taskset_from_mapping(data, "test").policy == expected


def test_decimals_are_exact_or_refused(tmp_path: Path) -> None:
    task = "tasks: [{period: 10.000000, wcet: %s}]\ntime_unit: ms\n"
    assert load_taskset(write(tmp_path, task % "2.026")).tasks[0].wcet_ns == 2_026_000
    assert load_taskset(write(tmp_path, task % "1e-6")).tasks[0].wcet_ns == 1
    # beyond what a float holds, which takes it for 8639999.999999998 s
    long = "tasks: [{period: 1, wcet: 1}]\ntime_unit: s\nhorizon: 8639999.999999999\n"
    assert load_taskset(write(tmp_path, long)).horizon_ns == 8639999999999999
    assert faults(write(tmp_path, task % "1.0000001")) == [
        "1:35 tasks[0].wcet expected a whole number of ns, got 1.0000001 ms; nothing is rounded"
    ]
    # equal to 0.1 as a float
    assert "nothing is rounded" in faults(write(tmp_path, task % "0.1000000000000000055"))[0]


def test_names_and_chains() -> None:
    rows = [{"name": "camera", "period": 5, "wcet": 1}, {"period": 7, "wcet": 1, "phase": 2}]
    made = taskset_from_mapping({"tasks": rows, "chain": ["camera", 1]}, "folder/pair.taskset.json")
    assert made.name == "pair" and made.chain == (0, 1)
    assert [(t.id, t.name, t.offset_ns) for t in made.tasks] == [(0, "camera", 0), (1, "t1", 2)]


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    text = """\
time_unit: ms
policy: FPP
tasks:
  - {id: 1, period: 10, wcet: 1.0000001}
  - {id: 1, period: 0, wcet: 2, bcet: 3}
  - {period: x, wcet: -1, foo: 2}
chain: [0, t9, 7]
"""
    found = faults(write(tmp_path, text))
    for start in (
        "2:9 policy unknown policy 'FPP'; did you mean 'FP'?",
        "4:31 tasks[0].wcet",
        "5:10 tasks[1].id",
        "5:21 tasks[1].period",
        "5:39 tasks[1].bcet",
        "6:14 tasks[2].period",
        "6:23 tasks[2].wcet",
        "6:27 tasks[2].foo unknown field",
        "7:12 chain[1]",
        "7:16 chain[2]",
    ):
        assert any(line.startswith(start) for line in found), start


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("policy: FP\ntasks: [{period: 1, wcet: 1}]", "2:9 tasks[0] expected prio"),
        ("policy: P_RM\nprocessors: 2\ntasks: [{period: 1, wcet: 1}]", "3:9 tasks[0] expected cpu"),
        ("processors: 2\ntasks: [{period: 1, wcet: 1, cpu: 2}]", "2:35 tasks[0].cpu expected a processor below 2"),
        ("policy: G_EDF\nprocessors: 2\ntasks: [{period: 1, wcet: 1, cpu: 1}]", "3:35 tasks[0].cpu expected no cpu"),
        ("policy: EDF_mono\nprocessors: 2\ntasks: [{period: 1, wcet: 1}]", "2:13 processors expected 1 processor"),
        ("tasks: [{period: 1, wcet: 1, phase: 1, offset: 1}]", "1:37 tasks[0].phase expected offset or phase"),
        ("tasks: [{period: 99999999999999999, wcet: 1}]\ntime_unit: s", "1:18 tasks[0].period expected at most"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, text: str, where: str) -> None:
    assert any(line.startswith(where) for line in faults(write(tmp_path, text))), faults(write(tmp_path, text))


def test_an_empty_name_in_a_chain_is_refused() -> None:
    """It ended in a KeyError."""
    with pytest.raises(DescriptorError, match=r"chain.*unknown task ''"):
        taskset_from_mapping({"tasks": [{"name": "a", "period": 10, "wcet": 1}], "chain": ["", 0]}, "test")


def test_json_indented_with_tabs_is_json(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    path.write_text('{\n\t"tasks": [\n\t\t{"period": 5, "wcet": 1}\n\t]\n}\n')
    assert load_taskset(path).tasks[0].period_ns == 5
