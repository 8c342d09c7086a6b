"""Untrusted plan.json files: no text reaches a shell unquoted, and invalid values are rejected with their positions."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from socsched.descriptor.json_file import MAX_BYTES, MAX_VALUES, positions
from socsched.errors import DescriptorError, InputError
from socsched.planning.checks import inconsistencies
from socsched.planning.export.linux import ExportRequest, linux
from socsched.planning.io import load, to_document
from socsched.planning.plan import Plan
from tests.sim.rich_plan import rich_plan

EVIL = ("$(touch PWNED)", "`touch PWNED`", "'; touch PWNED; '", '"; touch PWNED; "', "x\ntouch PWNED\n", "a\r\x1b[2J")


def renamed(plan: Plan, name: str) -> Plan:
    """Return the plan with the name in every place for one, as no loader would let through."""
    engine = plan.engines[0].id
    tasks = tuple(
        replace(t, name=t.name + name, after=(), timer=True, engine=t.engine + name * (t.engine == engine))
        for t in plan.tasks
    )
    engines = tuple(replace(e, id=e.id + name) if e.id == engine else e for e in plan.engines)
    return replace(plan, platform=name, mode=name, pipeline=name, engines=engines, tasks=tasks)


@pytest.mark.parametrize("name", EVIL)
def test_no_name_of_a_plan_is_executed_by_its_script(name: str, tmp_path: Path) -> None:
    plan = renamed(rich_plan(), name)
    environment = {**os.environ, "RUN": "echo"}
    for mode in (3, None):
        (tmp_path / "plan.sh").write_text(linux(ExportRequest(plan, mode_id=mode)))
        for verb in (["show"], ["prepare"], ["apply", plan.tasks[0].name, "1", "2", "3", "4"]):
            done = subprocess.run(
                ["sh", "plan.sh", *verb], cwd=tmp_path, capture_output=True, text=True, env=environment
            )
            assert done.returncode == 0, done.stderr
        assert sorted(file.name for file in tmp_path.iterdir()) == ["plan.sh"]
    assert subprocess.run(["sh", "plan.sh", "apply", "no such task"], cwd=tmp_path, capture_output=True).returncode == 2


def test_engines_of_like_names_keep_their_own_processors() -> None:
    plan = rich_plan()
    one = plan.engines[0]
    twin = replace(plan.tasks[0], name="twin", engine="c.u")
    engines = (replace(one, id="c.u"), replace(one, id="c-u"), *plan.engines)
    made = replace(plan, engines=engines, tasks=(twin, replace(twin, name="other", engine="c-u"), *plan.tasks))
    text = linux(ExportRequest(made, {"c.u": [7, 8, 9, 10], "c-u": [11, 12, 13, 14]}))
    assert 'units_c_u="7 8 9 10"' in text and 'units_c_u_1="11 12 13 14"' in text


def _set(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for part in path[:-1]:
            document = document[part]
        document[path[-1]] = to

    return change


DAMAGE = {
    "tasks[0].name: expected a name": _set("tasks", 0, "name", to="decode$(touch PWNED)"),
    "tasks[0].name: expected a name of": _set("tasks", 0, "name", to="a\nb"),
    "pipeline: expected a name": _set("pipeline", to="x\ntouch PWNED"),
    "platform: expected a name": _set("platform", to="../../etc/passwd"),
    "tasks[1].cost_ns: expected a number not below 0": _set("tasks", 1, "cost_ns", to=-1),
    "tasks[1].cost_ns: expected from 0 to 3600000000000": _set("tasks", 1, "cost_ns", to=9 * 10**12),
    "tasks[1].wcet_ns: expected a number not above": _set("tasks", 1, "wcet_ns", to=2**60),
    "tasks[1].queue: expected a number not below 0": _set("tasks", 1, "queue", to=-1),
    "tasks[1].period_ns: expected a number not below 1": _set("tasks", 1, "period_ns", to=0),
    "tasks[1].cost_ns: expected a whole number, got 1.5": _set("tasks", 1, "cost_ns", to=1.5),
    "tasks[1].timer: expected true or false, got 1": _set("tasks", 1, "timer", to=1),
    "tasks[1].error: expected a number not above": _set("tasks", 1, "error", to=1e300),
    "tasks[1].criticality: expected one of hard, firm, soft": _set("tasks", 1, "criticality", to="HARD"),
    "tasks[1].why: expected one line of text": _set("tasks", 1, "why", to="\x1b]0;title\x07"),
    "tasks[2].name: expected a unique name": _set("tasks", 2, "name", to="net"),
    "tasks[1].lanes: expected different lanes": _set("tasks", 1, "lanes", to=[0, 0]),
    "tasks[1].segments[0].fixed_ns: expected at most": _set("tasks", 1, "segments", 0, "fixed_ns", to=10**9),
    "tasks[2].segments[1].engine: expected an engine": _set("tasks", 2, "segments", 1, "engine", to="tpu"),
    "tasks[0].times.values_ns: expected at least one": _set("tasks", 0, "times", "values_ns", to=[3, 1]),
    "tasks[0].after: expected triggers without a cycle": _set("tasks", 0, "after", to=["net"]),
    "tasks[1].after: expected triggers without a cycle": _set("tasks", 1, "after", to=["net"]),
    "tasks[0].after: expected what triggers": _set("tasks", 0, "after", to=[]),
    "tasks[0].after[0]: expected a task or sensor": _set("tasks", 0, "after", to=["radar"]),
    "tasks[0].params: expected a part": _set("tasks", 0, "params", to={"part": {"stage": 1}}),
    "engines[0].lanes: expected a number not above 1024": _set("engines", 0, "lanes", to=10**6),
    "engines[0].capacities: expected one for each": _set("engines", 0, "capacities", to=[1, 2]),
    "power.cap_mw: expected a number": _set("power", to={"cap_mw": "60 W"}),
    "solver.modes.X.verdict: expected text": _set("solver", to={"modes": {"X": {"verdict": 3}}}),
    "solver.objective: expected one or more of latency, longest": _set("solver", to={"objective": "latency,speed"}),
    "solver.options.share: expected text, a number": _set("solver", to={"options": {"share": [1]}}),
    "solver.proof.text: expected text": _set(
        "solver", to={"proof": {"method": "bounds", "necessities": [], "text": 1}}
    ),
    "solver.value: expected a number": _set("solver", to={"value": True}),
    "bandwidth.terms: expected a list": _set("bandwidth", to={"terms": {"a": 1}}),
    "uncertainty.ties[0].stage: expected text": _set(
        "uncertainty", to={"ties": [{"stage": 1, "instead": "", "difference": 0, "error": 0}]}
    ),
    "provenance.error: expected a number not below 0": _set("provenance", to={"error": -0.5}),
    "contention.engines.cpu: expected text": _set("contention", to={"engines": {"cpu": 1}}),
    "throttle.period_ns: expected a number not below 1": _set("throttle", to={"period_ns": 0}),
    "schema_version: expected one of '1', got \"2\"": _set("schema_version", to="2"),
    "file: expected valid JSON": _set("dram_picojoule_per_byte", to=float("nan")),
}


@pytest.mark.parametrize("expected", DAMAGE)
def test_what_does_not_fit_is_refused_with_its_place(expected: str, tmp_path: Path) -> None:
    document = json.loads(json.dumps(to_document(rich_plan())))
    DAMAGE[expected](document)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document, indent=1))
    with pytest.raises(DescriptorError) as caught:
        load(file)
    found = str(caught.value).replace('"', "'")
    assert expected.replace('"', "'") in found
    line = int(found.split("plan.json:")[1].split(":")[0])
    key = expected.split(":")[0].split(".")[-1].split("[")[0]
    assert key in ("file", "X") or any(key in text for text in file.read_text().splitlines()[line - 2 : line])


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"tasks": [', "expected valid JSON: EOF"),
        (b"[" * 100_000, "expected valid JSON: recursion limit"),
        (b'{"a": "\\ud800"}', "expected valid JSON: "),
        (b'{"a": "\xff"}', "expected valid JSON: invalid unicode"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "expected valid JSON: number out of range"),
        (b"[" + b"[]," * MAX_VALUES + b"[]]", f"expected at most {MAX_VALUES} values"),
        (b"[]", "expected a mapping"),
        (b'"' + b"x" * MAX_BYTES + b'"', "larger than the 16 MiB"),
    ],
)
def test_what_is_no_plan_is_refused_with_a_reason(raw: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(raw)
    with pytest.raises((DescriptorError, InputError), match=r"plan\.json") as caught:
        load(tmp_path / "plan.json")
    assert expected in str(caught.value)


def test_every_fault_of_a_plan_is_listed_at_once(tmp_path: Path) -> None:
    document = json.loads(json.dumps(to_document(rich_plan())))
    document["power"] = {"cap_mw": -1}
    document["solver"] = {"objective": "speed"}
    document["tasks"][0]["queue"] = "2"
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(DescriptorError) as caught:
        load(tmp_path / "plan.json")
    assert {finding.field for finding in caught.value.findings} == {
        "power.cap_mw",
        "solver.objective",
        "tasks[0].queue",
    }


def test_an_endless_device_is_not_read_to_its_end() -> None:
    with pytest.raises(InputError, match="larger than"):
        load("/dev/zero")


def test_a_circle_is_reported_at_a_task_in_it_not_at_one_that_follows_it() -> None:
    plan = rich_plan()
    after = {"decode": ("net",), "net": ("seg",), "seg": ("lanes", "net")}
    changed = replace(plan, tasks=tuple(replace(t, after=after.get(t.name, t.after)) for t in plan.tasks))
    (found,) = [where for where, text in inconsistencies(changed) if "without a cycle" in text]
    assert plan.tasks[0].name == "decode" and found == ("tasks", 1, "after")


def test_positions_are_those_of_the_text() -> None:
    text = '{"a": [1,\n  {"b,}": "x]\\"", "c": null}],\n "d": {}, "e": [[], [2]]}'
    paths = [("a", 0), ("a", 1, "b,}"), ("a", 1, "c"), ("d",), ("e", 1, 0), ("missing",)]
    found = {path: (mark.line, mark.column) for path, mark in positions(text, paths).items()}
    assert found == {
        (): (1, 1), ("a",): (1, 7), ("a", 0): (1, 8), ("a", 1): (2, 3), ("a", 1, "b,}"): (2, 11),
        ("a", 1, "c"): (2, 24), ("d",): (3, 7), ("e",): (3, 16), ("e", 1): (3, 21), ("e", 1, 0): (3, 22),
    }  # fmt: skip


def test_a_chain_has_a_path() -> None:
    made = rich_plan()
    empty = replace(made, chains=(replace(made.chains[0], path=()), *made.chains[1:]))
    assert list(inconsistencies(empty)) == [(("chains", 0, "path"), "expected a path of at least one task")]
