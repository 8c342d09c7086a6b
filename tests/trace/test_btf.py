"""BTF traces are read back as they were, follow the state chart of a process, and are refused with a position."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.errors import SocschedError
from socsched.interchange.btf_pipeline import import_btf
from socsched.sim.simulate import simulate
from socsched.trace import blocks, btf, io, stored
from socsched.trace.trace import Job, Trace
from tests.sim.rich_plan import DURATION, rich_faults, rich_plan


def jobs(trace: Trace) -> list[tuple[Any, ...]]:
    return [
        (j.task, j.frame, j.activation_ns, j.deadline_ns, j.start_ns, j.finish_ns if j.finish_ns >= 0 else -1, j.status)
        for j in trace.jobs
    ]


def pieces(trace: Trace) -> list[tuple[Any, ...]]:
    owners = trace.jobs
    return sorted(
        (s.engine, s.lanes, owners[s.job].task, owners[s.job].frame, s.name, s.start_ns, s.end_ns) for s in trace.slices
    )


@pytest.fixture(scope="module")
def simulated() -> Trace:
    return simulate(rich_plan(), DURATION, faults=rich_faults())


def test_a_trace_is_read_back_as_it_was(simulated: Trace, tmp_path: Path) -> None:
    (tmp_path / "t.btf").write_text(btf.text(simulated))
    found = btf.read(tmp_path / "t.btf")
    assert {job.status for job in simulated.jobs} >= {"done", "dropped", "aborted"}
    assert sorted(jobs(found)) == sorted(jobs(simulated))
    assert pieces(found) == pieces(simulated)
    assert (found.kind, found.seed, found.duration_ns) == (simulated.kind, simulated.seed, simulated.duration_ns)


def test_processes_follow_the_state_chart_of_the_specification(simulated: Trace) -> None:
    """Activate, start, then preempt and resume in turn, then terminate; times never go back."""
    states: dict[tuple[str, str], str] = {}
    follows = {"start": ("activate",), "preempt": ("start", "resume"), "resume": ("preempt",),
               "terminate": ("start", "resume")}  # fmt: skip
    before = 0
    for line in btf.text(simulated).splitlines():
        if line.startswith("#"):
            continue
        time, _, _, kind, target, instance, event, *_ = line.split(",")
        assert int(time) >= before
        before = int(time)
        if kind == "T" and event in follows:
            last = states.get((target, instance), "activate" if "/" in target else "")
            assert last in follows[event], line
        if kind == "T":
            states[target, instance] = event


def test_a_long_trace_is_written_in_parts(simulated: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = btf.text(simulated)
    monkeypatch.setattr(blocks, "BLOCK", 7)
    monkeypatch.setattr(stored, "SMALL", 0)
    monkeypatch.setattr(btf, "_AT_ONCE", 5)
    io.save(simulated, tmp_path / "trace.bin")
    long = io.load(tmp_path / "trace.bin")
    assert long.columns.stored is not None
    assert btf.text(long) == whole
    assert len([*btf.parts(long)]) > len(simulated.jobs) // 5


def test_names_with_separators_are_kept(tmp_path: Path) -> None:
    name = "#a,b/1 é\n%2C"
    made = Trace("measured", 10, 0, [Job(name, 0, 1, 5)])
    (tmp_path / "t.btf").write_text(btf.text(made))
    assert btf.read(tmp_path / "t.btf").jobs[0].task == name


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("0,a,0", "t.btf:1:1: event: expected time,source"),
        ("x,a,0,T,a,0,activate", "t.btf:1:1: event: expected a whole number"),
        ("0,s,0,T,a,-1,activate", "t.btf:1:11: event: expected a whole number"),
        ("#creator socsched\n0,s,0,T,a,0,activate\n0,c,0,T,a,0,start", "t.btf:3:1: event: expected a core"),
        ("5,s,0,T,a,0,activate\n4,s,0,T,a,1,activate\n", "t.btf:2:1: event: expected a time from 5 ns on"),
        ("5,s,0,T,a,0,activate\n#timeScale ms\n", "t.btf:2:1: event: expected #timeScale before the first event"),
        ("#timeScale h", "t.btf:1:1: event: expected #timeScale ps, ns, us, ms, s, got 'h'"),
    ],
)
def test_a_wrong_trace_is_reported_with_its_position(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "t.btf").write_text(text)
    with pytest.raises(SocschedError) as caught:
        btf.read(tmp_path / "t.btf")
    assert where in str(caught.value)


Event = tuple[int, str, str, int, str]
"""Time, source, process, instance, event."""


def schedule(seed: int, interrupts: bool) -> tuple[list[Event], dict[str, list[tuple[int, int]]]]:
    """Return the events of two tasks on two cores, and (activation, time on its core) of every job.

    `interrupts`: a handler of 10 interrupts some jobs of `fast`, whose preemption is recorded.
    """
    rng, events, jobs = random.Random(seed), list[Event](), dict[str, list[tuple[int, int]]]()
    for core, (task, period) in enumerate((("fast", 1000), ("slow", 3000))):
        for frame in range(8):
            release = frame * period
            start, work = release + rng.randrange(100), rng.randrange(100, 400)
            jobs.setdefault(task, []).append((release, work))
            events += [(release, "stimulus", task, frame, "activate"), (start, f"Core{core}", task, frame, "start")]
            if interrupts and task == "fast" and rng.random() < 0.5:
                middle = start + work // 2
                jobs.setdefault("irq", []).append((middle, 10))
                events += [(middle, "Core0", task, frame, "preempt"), (middle + 10, "Core0", task, frame, "resume")]
                number = len(jobs["irq"]) - 1
                events += [
                    (middle, "Core0", "irq", number, "start"),
                    (middle + 10, "Core0", "irq", number, "terminate"),
                ]
                work += 10
            events.append((start + work, f"Core{core}", task, frame, "terminate"))
    order = ("preempt", "terminate", "activate", "start", "resume")
    return sorted(events, key=lambda event: (event[0], order.index(event[4]))), jobs


def written(events: list[Event], scale: str = "ns", factor: int = 1, creator: str = "other", end: str = "\n") -> str:
    lines = ["#version 2.2.0", f"#creator {creator}", f"#timescale {scale}", "0,Core0,0,C,Core0,0,execute"]
    for time, source, process, number, event in events:
        kind = "I" if process == "irq" else "T"
        lines.append(f"{time * factor},{source},0,{kind},{process},{number},{event}")
    return end.join(lines) + end


def times(trace: Trace, scale: int = 1) -> dict[str, list[tuple[int, int]]]:
    """Return (activation after the first event, time on cores) of every finished job."""
    done: dict[str, list[tuple[int, int]]] = {}
    for job in trace.jobs:
        if job.status == "done":
            done.setdefault(job.task, []).append((job.activation_ns // scale, job.exec_ns // scale))
    return done


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["ps", "ns", "us", "ms", "s"]), st.booleans())
def test_every_writer_s_trace_gives_the_times_that_were_drawn(
    tmp_path_factory: pytest.TempPathFactory, seed: int, scale: str, interrupts: bool
) -> None:
    file = tmp_path_factory.mktemp("btf") / "t.btf"
    events, jobs = schedule(seed, interrupts)
    ns, factor = {"ps": (1, 1000), "ns": (1, 1), "us": (10**3, 1), "ms": (10**6, 1), "s": (10**9, 1)}[scale]
    jobs = {task: sorted(listed) for task, listed in jobs.items()}

    file.write_text(written(events, scale, factor))
    assert times(btf.read(file), ns) == jobs
    hidden = [event for event in events if event[4] not in ("preempt", "resume")]  # a handler over a task that goes on
    file.write_text(written(hidden, scale, factor))
    assert times(btf.read(file), ns) == jobs

    file.write_text(written([e for e in events if e[4] != "activate"], scale, factor))
    trace, notes = btf.read_noted(file)
    assert {task: [work for _, work in listed] for task, listed in times(trace, ns).items()} == {
        task: [work for _, work in listed] for task, listed in jobs.items()
    }
    assert any("No activations are recorded of" in note for note in notes)


def test_switches_of_freertos_are_jobs_whatever_core_a_task_is_on(tmp_path: Path) -> None:
    """Names are [CORE/NUMBER]NAME, several tasks may share NAME, and the source of a resume is the task before."""
    rows = ["#creator FreeRTOS trace logger", "#timeScale us"]
    rows += ["900,Core_0,0,T,[0/0001]task,0,preempt,create pri:4", "900,Core_0,0,T,[0/0003]IDLE1,0,preempt,create"]
    for frame in range(4):
        core, time = frame % 2, 1000 + 100 * frame
        rows += [
            f"{time},[{core}/0009]x,0,T,[{core}/0001]task,0,resume,",
            f"{time + 20 + frame},Core_{core},0,T,[{core}/0001]task,0,preempt,",
            f"{time + 30},[{core}/0001]task,0,T,[{core}/0002]task,0,resume,",
            f"{time + 35},TICK,0,T,TICK,0,resume,tick_1",
            f"{time + 36},TICK,0,T,TICK,0,preempt,",
            f"{time + 40},[{core}/0002]task,0,T,[{core}/0002]task,0,preempt,",
            f"{time + 40},[{core}/0002]task,0,T,[{core}/0003]IDLE1,0,resume,",
            f"{time + 90},[{core}/0003]IDLE1,0,T,[{core}/0003]IDLE1,0,preempt,",
        ]
    (tmp_path / "t.btf").write_text("\r\n".join(rows))
    trace, notes = btf.read_noted(tmp_path / "t.btf")
    works = {task: [work for _, work in listed] for task, listed in times(trace, 1000).items()}
    assert works["[0001]task"] == [20, 21, 22, 23] and works["TICK"] == [1] * 4
    assert works["[0002]task"] == [9, 10, 9, 10], "a tick states no core, so that it interrupts what is on the first"
    assert set(works) == {"[0001]task", "[0002]task", "TICK"}
    assert {piece.lanes for piece in trace.slices if trace.jobs[piece.job].task == "[0001]task"} == {(0,), (1,)}
    assert any("Only switches" in note for note in notes) and any("idle tasks" in note for note in notes)
    found = import_btf(tmp_path / "t.btf")
    assert list(found.mapping["stages"]) == ["tick", "0001-task", "0002-task"]


def test_waits_separate_jobs_where_no_task_terminates(tmp_path: Path) -> None:
    rows = ["0,s,0,T,loop,0,activate"]
    for time in (10, 110, 210):
        rows += [f"{time - 5},e,0,T,loop,0,release"] if time > 10 else []
        rows += [f"{time},C0,0,T,loop,0,{'start' if time == 10 else 'resume'}", f"{time + 30},C0,0,T,loop,0,preempt"]
        rows += [f"{time + 40},C0,0,T,loop,0,resume", f"{time + 50},C0,0,T,loop,0,wait"]
    (tmp_path / "t.btf").write_text("\n".join(rows) + "\n")
    trace, _ = btf.read_noted(tmp_path / "t.btf")
    assert times(trace) == {"loop": [(0, 40), (105, 40), (205, 40)]}


def test_runnables_within_others_and_preempted_ones_count_once(tmp_path: Path) -> None:
    rows = ["0,s,0,T,a,0,activate", "0,C,0,T,a,0,start", "0,a,0,R,outer,0,start", "10,a,0,R,inner,0,start"]
    rows += ["15,C,0,T,a,0,preempt", "20,C,0,T,a,0,resume", "30,a,0,R,inner,0,terminate", "40,a,0,R,outer,0,terminate"]
    (tmp_path / "t.btf").write_text("\n".join([*rows, "45,C,0,T,a,0,terminate", "50,b,3,R,stray,0,start", ""]))
    trace, notes = btf.read_noted(tmp_path / "t.btf")
    found = [(piece.name, piece.start_ns, piece.end_ns) for piece in trace.slices]
    assert found == [("outer", 0, 10), ("inner", 10, 15), ("inner", 20, 30), ("outer", 30, 40), ("a", 40, 45)]
    assert trace.jobs[0].exec_ns == 40 and any("1 events of runnables" in note for note in notes)


def test_clocks_that_jump_and_lines_cut_off_are_left_out_and_counted(tmp_path: Path) -> None:
    events, jobs = schedule(5, False)
    epoch = 1_700_000_000_000_000_000
    later = [(time + epoch, *rest) for time, *rest in events]
    lines = written([(0, "s", "boot", 0, "activate"), *later])  # type: ignore[list-item]
    (tmp_path / "t.btf").write_text(lines + "17000000000000")
    trace, notes = btf.read_noted(tmp_path / "t.btf")
    assert times(trace) == jobs
    assert any("jumps by more than an hour 1 times" in note and "2 events" in note for note in notes)
    assert any("cut off" in note for note in notes)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "gzip", "crlf"])
def test_traces_in_any_encoding_are_the_same(encoding: str, tmp_path: Path) -> None:
    text = written(schedule(3, True)[0]).replace("fast", "schnell \N{GREEK SMALL LETTER ALPHA}")
    (tmp_path / "plain").write_text(text, encoding="utf-8")
    raw = {"gzip": lambda: gzip.compress(text.encode()), "crlf": lambda: text.replace("\n", "\r\n").encode()}
    (tmp_path / "t").write_bytes(raw.get(encoding, lambda: text.encode(encoding))())
    assert btf.read(tmp_path / "t") == btf.read(tmp_path / "plain")


def test_a_burst_at_the_start_gives_no_period(tmp_path: Path) -> None:
    rows = ["#timeScale us"]
    for frame in range(20):
        rows += [f"{frame * 1000},C,0,T,steady,{frame},start", f"{frame * 1000 + 100},C,0,T,steady,{frame},terminate"]
        if frame < 1:
            for number in range(5):
                rows += [
                    f"{110 + 10 * number},C,0,T,boot,{number},start",
                    f"{115 + 10 * number},C,0,T,boot,{number},terminate",
                ]
    (tmp_path / "t.btf").write_text("\n".join(rows) + "\n")
    found = import_btf(tmp_path / "t.btf")
    assert list(found.mapping["stages"]) == ["steady"]
    assert any("Left out, activated in a burst, not over the recording: boot" in note for note in found.notes)


def test_tasks_whose_names_differ_in_signs_or_script_are_all_stages(tmp_path: Path) -> None:
    names = ["a b", "a-b", "a_b", "检测", "识别"]
    rows = [
        f"{time + 10 * place + late},C,0,T,{name},{frame},{event}"
        for frame, time in enumerate((0, 1000))
        for place, name in enumerate(names)
        for late, event in ((0, "start"), (5, "terminate"))
    ]
    (tmp_path / "t.btf").write_text("\n".join(rows) + "\n", encoding="utf-8")
    stages = import_btf(tmp_path / "t.btf").mapping["stages"]
    assert [stage["title"] for stage in stages.values()] == names and len(stages) == 5
