"""Saving a trace loses nothing, gives the same bytes again, and a damaged file is rejected with a message."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference_io
from hypothesis import given
from pydantic import TypeAdapter
from random_traces import recorded

import socsched as ss
from socsched.errors import InputError
from socsched.planning.plan import Plan
from socsched.sim.simulate import simulate
from socsched.trace import io
from socsched.trace.io import ResultDocument
from socsched.trace.trace import Trace
from tests.sim.builders import engine, plan, sensor, task


def sample() -> Trace:
    tasks = [
        task("a", 8, after=("s",), period_ns=10, queue=1, priority=1, bytes=40),
        task("b", 5, after=("a",), period_ns=10, deadline_ns=6, lanes=(0, 1), reads=("s",)),
    ]
    sensors = [sensor("s", 10, jitter_ns=3)]
    made = plan(tasks, [engine(lanes=2, dynamic_mw=9)], sensors=sensors, dram_bandwidth=4 * 10**9)
    trace = simulate(made, 500, seed=3)
    trace.details[2] = {"boxes": [[1.5, 2.0]], "labels": ["Car"]}
    return trace


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_survives(tmp_path: Path, name: str) -> None:
    trace = sample()
    assert trace.jobs and trace.slices and trace.instants and len(trace.counters) > 2
    file = tmp_path / name
    io.save(trace, file)
    loaded = io.load(file)
    assert loaded == trace
    assert type(loaded.counters["power_mw"][0]) is tuple and type(loaded.slices[0].lanes) is tuple
    before = file.read_bytes()
    io.save(loaded, file)
    assert file.read_bytes() == before


@given(recorded())
def test_any_trace_survives(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Plan, Trace]) -> None:
    _, trace = drawn
    file = tmp_path_factory.getbasetemp() / "any.json.gz"
    io.save(trace, file)
    loaded = io.load(file)
    assert loaded == trace
    assert list(loaded.counters) == list(trace.counters) and list(loaded.releases) == list(trace.releases)


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    trace = sample()
    reference_io.save(trace, tmp_path / "old.json.gz")
    assert io.load(tmp_path / "old.json.gz") == trace


@pytest.mark.parametrize(
    ("table", "column", "value"), [("jobs", "status", 0), ("slices", "job", 10**6), ("jobs", "frame", 2**60)]
)
def test_a_damaged_file_of_the_version_before_is_refused(tmp_path: Path, table: str, column: str, value: int) -> None:
    """Each once caused a traceback when the trace was read."""
    reference_io.save(sample(), tmp_path / "old.json")
    data = json.loads((tmp_path / "old.json").read_bytes())
    data[table][column][0] = value
    (tmp_path / "old.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="damaged trace"):
        io.load(tmp_path / "old.json")


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(b" " * 2**28, 1),
        gzip.compress(b"[" * 10**6),
        gzip.compress(b"{}") + b"rest",
        gzip.compress(b"{}")[:-1],
    ],
    ids=["blanks", "brackets", "more behind it", "cut off"],
)
def test_a_bomb_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "trace.json.gz").write_bytes(content)
    with pytest.raises(InputError, match="is not a trace"):
        io.load(tmp_path / "trace.json.gz")


def test_a_column_of_billions_is_refused(tmp_path: Path) -> None:
    """It took 24 GB for 25 bytes."""
    io.save(sample(), tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_bytes())
    data["jobs"] = {name: {"count": 3 * 10**9, "start": 0} for name in data["jobs"]}
    (tmp_path / "t.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="more numbers"):
        io.load(tmp_path / "t.json")


def test_an_empty_trace_survives(tmp_path: Path) -> None:
    trace = Trace("measured", 0, 0)
    io.save(trace, tmp_path / "t.json")
    assert io.load(tmp_path / "t.json") == trace


def test_arrays_become_lists(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    trace = Trace("measured", 1, 0, details={0: {"scores": numpy.array([0.5, 1.0]), "count": numpy.int64(2)}})
    io.save(trace, tmp_path / "t.json")
    assert io.load(tmp_path / "t.json").details == {0: {"scores": [0.5, 1.0], "count": 2}}


def change(edit: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def apply(raw: bytes) -> bytes:
        data = json.loads(raw)
        edit(data)
        return json.dumps(data).encode()

    return apply


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda raw: raw[: len(raw) // 2], "is not a trace"),
        (lambda raw: gzip.compress(raw)[:-20], "is not a trace"),
        (lambda raw: b"", "is not a trace"),
        (lambda raw: b"\xff\xfe\x00", "is not a trace"),
        (lambda raw: b"[]", "format"),
        (change(lambda data: data.update(format="other")), "format"),
        (change(lambda data: data.update(schema_version="9")), "version '9'"),
        (change(lambda data: data.pop("jobs")), "damaged"),
        (change(lambda data: data["jobs"]["task"].update(count=3)), "damaged"),
        (change(lambda data: data["jobs"].update(task={"count": 2, "start": 0})), "different lengths"),
        (change(lambda data: data["jobs"]["task"].update(start=999)), "an index of no task"),
        (change(lambda data: data["jobs"]["frame"].update(start=1 << 70)), "damaged"),
        (change(lambda data: data["jobs"]["exec_ns"].update(data="%%%")), "damaged"),
        (change(lambda data: data["jobs"]["exec_ns"].update(type="O")), "damaged"),
        (change(lambda data: data["jobs"].update(frames={"count": 1, "start": 0})), "sampled frames"),
        (change(lambda data: data["slices"]["job"].update(start=-1)), "an index of no job"),
        (change(lambda data: data["counters"]["power_mw"].pop()), "damaged"),
        (change(lambda data: data.update(reads=[])), "reads of 0"),
        (change(lambda data: data.update(slices=3)), "damaged"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes], problem: str) -> None:
    file = tmp_path / "trace.json"
    io.save(sample(), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=problem):
        io.load(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        io.load(tmp_path / "none.json")


# result.json conforms to its types, whether made from a trace, from totals or from a run.


@pytest.mark.parametrize("record", [True, False])
def test_results_have_the_documented_fields(record: bool) -> None:
    plan = ss.plan("pointpillars-s", "jetson-agx-orin-64gb", "MAXN", refine=False, explain=False)
    figures = dict(ss.simulate(plan, "1s", record=record).figures)
    checked = TypeAdapter(ResultDocument).validate_python(figures, strict=True)
    assert checked == figures
    assert set(figures) <= set(ResultDocument.__annotations__)
