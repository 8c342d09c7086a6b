"""Saving a trace loses nothing, gives the same bytes again, and a damaged file is rejected with a message."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import reference_io
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from random_traces import recorded

import socsched as ss
from socsched.errors import InputError
from socsched.planning.plan import Plan
from socsched.reporting import timeline
from socsched.sim import recorder
from socsched.sim.simulate import run, simulate
from socsched.trace import blocks, io, stored
from socsched.trace.io import ResultDocument
from socsched.trace.metrics import result
from socsched.trace.trace import Trace
from socsched.trace.why import Why
from tests.sim.builders import engine, plan, sensor, task
from tests.sim.rich_plan import DURATION, rich_faults, rich_plan


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


@pytest.mark.parametrize("name", ["trace.bin", "trace.json"])
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


def test_a_file_of_the_first_version_is_refused(tmp_path: Path) -> None:
    document = {**reference_io.document(sample()), "schema_version": "1"}
    (tmp_path / "old.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="version '1'") as refused:
        io.load(tmp_path / "old.json")
    assert "simulate PLAN.json -o DIR" in refused.value.hint


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
    data = reference_io.document(sample())
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
    trace = Trace("measured", 1, 0)
    trace.details = {0: {"scores": numpy.array([0.5, 1.0]), "count": numpy.int64(2)}}
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
    reference_io.save(sample(), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=problem):
        io.load(file)


def indexed(raw: bytes) -> tuple[bytes, dict[str, Any]]:
    length = int.from_bytes(raw[-16:-8], "little")
    return raw[: -16 - length], json.loads(gzip.decompress(raw[-16 - length : -16]))


def change_index(edit: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def apply(raw: bytes) -> bytes:
        blocks, index = indexed(raw)
        edit(index)
        data = gzip.compress(json.dumps(index).encode())
        return blocks + data + len(data).to_bytes(8, "little") + raw[-8:]

    return apply


def jobs(index: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = index["tables"]["jobs"]
    return found


def overlong(index: dict[str, Any]) -> None:
    first = jobs(index)["blocks"][0]
    jobs(index)["blocks"] = [[first[0] + 10 * n, 10, 1 << 16, 0, 0] for n in range(first[1] // 10)]


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda raw: raw[: len(raw) // 2], "its end is missing"),
        (lambda raw: raw[:-16] + (2**60).to_bytes(8, "little") + raw[-8:], "its end is missing"),
        (lambda raw: raw[:8] + bytes(len(raw) - 24) + raw[-16:], "is not a trace"),
        (change_index(lambda index: index.update(format="other")), "format"),
        (change_index(lambda index: index.update(schema_version="9")), "version '9'"),
        (change_index(lambda index: index["tables"].pop("jobs")), "damaged"),
        (change_index(lambda index: jobs(index)["blocks"][0].__setitem__(0, 0)), "overlap"),
        (change_index(lambda index: jobs(index)["blocks"].append([10**9, 10**9, 1, 0, 0])), "beyond the end"),
        (change_index(lambda index: jobs(index)["blocks"][0].__setitem__(2, 1 << 40)), "too long"),
        (change_index(lambda index: jobs(index)["blocks"][0].__setitem__(2, 7)), "damaged"),
        (change_index(overlong), "damaged"),
        (change_index(lambda index: jobs(index)["bounds"].update(task=[0, 0])), "task from 0 to 0"),
        (change_index(lambda index: jobs(index)["bounds"].pop("task")), "damaged"),
        (change_index(lambda index: jobs(index)["late"].append([0, 1 << 30, *[0] * 12])), "late row"),
        (change_index(lambda index: index.update(tasks=[])), "damaged"),
        (change_index(lambda index: index.update(reads=[])), "reads of 0"),
        (change_index(lambda index: index["counters"]["power_mw"].__setitem__(0, "jobs")), "in no table"),
    ],
)
def test_damaged_blocks_are_refused(tmp_path: Path, damage: Callable[[bytes], bytes], problem: str) -> None:
    file = tmp_path / "trace.bin"
    io.save(sample(), file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(InputError, match=problem):
        io.load(file)


@given(place=st.floats(0, 1), value=st.integers(0, 255))
def test_any_damaged_byte_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, place: float, value: int
) -> None:
    file = tmp_path_factory.getbasetemp() / "bytes.bin"
    io.save(sample(), file)
    raw = bytearray(file.read_bytes())
    raw[int(place * (len(raw) - 1))] = value
    file.write_bytes(raw)
    with contextlib.suppress(InputError):
        assert io.load(file).jobs


def test_a_long_trace_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 16 rows: rows, one mended late, columns, windows, counters and figures are those of memory."""
    plan, duration, faults = rich_plan(), DURATION // 2, rich_faults()
    whole = run(plan, duration, 1, None, faults).trace
    assert whole is not None
    monkeypatch.setattr(blocks, "BLOCK", 16)
    monkeypatch.setattr(recorder, "BLOCK", 16)
    monkeypatch.setattr(stored, "SMALL", 0)
    monkeypatch.setattr(recorder.Recorder.__init__, "__defaults__", (0,))
    streamed = run(plan, duration, 1, None, faults).trace
    assert streamed is not None and streamed.columns.stored is not None
    assert len(streamed.columns.stored.tables["jobs"].blocks) > 8
    io.save(streamed, tmp_path / "t.bin")
    loaded = io.load(tmp_path / "t.bin")
    io.save(loaded, tmp_path / "again.bin")
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "t.bin").read_bytes()
    assert result(whole, plan) == result(streamed, plan) == result(loaded, plan)
    assert Why(whole, plan).worst() == Why(loaded, plan).worst()
    record, ours = timeline.Recorded.of(plan, whole), timeline.Recorded.of(plan, loaded)
    for tenth in range(0, duration, duration // 10):
        window = tenth, tenth + duration // 10
        assert timeline.document(record, window, window)["jobs"] == timeline.document(ours, window, window)["jobs"]
    assert list(loaded.columns.counters) == list(whole.columns.counters)
    assert whole == streamed and whole == loaded


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
