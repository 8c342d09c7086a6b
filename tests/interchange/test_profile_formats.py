"""Scheduler events, QNN's CSV, RKNN's tables and jtop's logs become costs; damaged ones end in one error."""

from __future__ import annotations

import lzma
import random
import re
from pathlib import Path

import pytest
from mutations import changed
from profile_samples import HEAD, JTOP, QNN, TABLE, TRACE_CMD, XAVIER, rknn

from socsched.api.interchange import import_profile, save_recording
from socsched.cli.root import run
from socsched.errors import SocschedError
from socsched.planning.io import load

EVENTS = Path(__file__).parents[1] / "data" / "scheduler_events"
CHANGES = 60


def recorded(name: str, folder: Path) -> Path:
    file = folder / name
    file.write_bytes(lzma.decompress((EVENTS / f"{name}.xz").read_bytes()))
    return file


def busy_by_hand(text: str) -> dict[str, float]:
    """Return pid -> ms on CPUs from its first switch-in to its last switch-out, from single lines of the text."""
    on, total = dict[str, float](), dict[str, float]()
    for line in text.splitlines():
        found = re.search(r" (\d+\.\d+): .*prev_pid=(\d+) .*next_pid=(\d+)", line)
        if found:
            now = float(found[1]) * 1000
            if found[2] in on:
                total[found[2]] = total.get(found[2], 0.0) + now - on.pop(found[2])
            on[found[3]] = now
    return total


@pytest.mark.parametrize("name", ["tracefs.txt", "perf_script.txt"])
def test_a_recording_of_two_threads_is_jobs_with_preemptions(name: str, tmp_path: Path) -> None:
    file = recorded(name, tmp_path)
    picked = {"control": "control", "detect": "detect"}
    found = import_profile([file], XAVIER, precision="fp32", stages=picked)
    costs = {cost.stage: cost for cost in found.profile.costs}
    (recording,) = found.recordings
    assert recording.tool == ("perf script" if name.startswith("perf") else "ftrace") and set(costs) == set(picked)
    assert 1.9e6 < costs["control"].median_ns < 2.6e6 and 8.9e6 < costs["detect"].median_ns < 10e6
    text = file.read_text()
    by_hand = busy_by_hand(text)
    for section in recording.sections:
        pid = next(p for c, p in re.findall(r"comm=(\w+) \w*pid=(\d+)", text) if c == section.stage)
        whole = sum(section.times_ns) / 1e6
        assert by_hand[pid] * 0.9 <= whole <= by_hand[pid] + 0.01, "all but the parts at the ends of the recording"
    assert recording.trace is not None and any(job.preemptions for job in recording.trace.jobs if job.task == "detect")


def test_a_recording_becomes_a_result_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = recorded("tracefs.txt", tmp_path)
    found = import_profile([file], XAVIER, precision="fp32", stages={"control": "control", "detect": "detect"})
    save_recording(found, XAVIER, tmp_path / "r")
    plan = load(tmp_path / "r" / "plan.json")
    tasks = {task.name: task for task in plan.tasks}
    assert set(tasks) == {"control", "detect"} and tasks["control"].lanes == (1,)
    assert tasks["control"].period_ns == pytest.approx(10_000_000, rel=0.1)
    assert run(["why", str(tmp_path / "r"), "--chain", "detect"]) == 0
    assert "control" in capsys.readouterr().out, "the thread that preempted it is named"
    assert run(["report", str(tmp_path / "r"), "-q", "-o", str(tmp_path / "r.html")]) == 0
    assert run(["compare", str(tmp_path / "r"), str(tmp_path / "r"), "-q"]) == 0


def test_threads_of_the_kernel_get_names_that_plans_accept(tmp_path: Path) -> None:
    names = {"cam": "kworker/u4:2+events", "hog": "(sd-pam)"}
    text = TRACE_CMD
    for plain, odd in names.items():
        text = re.sub(rf"\b{plain}([:-])", rf"{odd}\1", text)
    (tmp_path / "t").write_text(text)
    found = import_profile([tmp_path / "t"], XAVIER, precision="fp32")
    save_recording(found, XAVIER, tmp_path / "r")
    assert [task.name for task in load(tmp_path / "r" / "plan.json").tasks] == ["kworker-u4:2+events", "sd-pam-"]
    assert run(["why", str(tmp_path / "r"), "-q"]) == 0


def test_trace_cmd_report(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TRACE_CMD)
    found = import_profile([tmp_path / "t"], XAVIER, precision="fp32")
    assert {s.stage: (s.times_ns, s.spans_ns) for s in found.recordings[0].sections} == {
        "cam": ((1_500_000,), ((10_000_100_000, 10_000_200_000, 10_002_200_000),)),
        "hog": ((500_000,), ((10_001_200_000, 10_001_200_000, 10_001_700_000),)),
    }


def test_qnn_profiles_give_the_time_of_the_accelerator(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(QNN)
    found = import_profile([tmp_path / "net.csv"], XAVIER, precision="fp16", engines={"QNN": "dla0"}, skip=1)
    (cost,) = found.profile.costs
    assert (cost.stage, cost.engine, cost.samples, cost.median_ns, cost.time_ns) == (
        "net",
        "dla0",
        3,
        2_000_000,
        2_100_000,
    )
    assert "300 us on the host in addition" in cost.source and "75% of the cycles in Conv" in cost.source
    assert found.layers["net"] == ("Conv", "relu")


def test_rknn_tables_of_runs_are_sections_per_target(tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text(rknn(True))
    found = import_profile([tmp_path / "net.txt"], "rk3588", engines={"cpu": "a760"})
    assert [(c.stage, c.engine, c.time_ns, c.precision) for c in found.profile.costs] == [
        ("net.1", "npu0", 500_000, "int8"),
        ("net.2", "a760", 50_000, "int8"),
    ]
    assert found.recordings[0].handover_ns == 10_000 and found.layers["net.1"] == ("/c/Conv", "/a")
    assert "npu 1000 MHz; cpu 1800 MHz" in found.profile.costs[0].state
    assert "10% assumed" in found.profile.costs[0].source


def test_rknn_tables_of_the_compiler_are_cycles_at_the_clock_of_the_mode(tmp_path: Path) -> None:
    (tmp_path / "net.log").write_text(rknn(False))
    found = import_profile([tmp_path / "net.log"], "rk3588", engines={"cpu": "a760"})
    cost = found.profile.costs[0]
    assert (cost.time_ns, cost.error) == (1000, 0.5) and "1000 cycles by the compiler's estimate" in cost.source


def test_jtop_logs_state_the_boards_condition(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(JTOP)
    (tmp_path / "net.csv").write_text(QNN)
    found = import_profile(
        [tmp_path / "net.csv", tmp_path / "log.csv"], XAVIER, precision="fp16", engines={"QNN": "dla0"}
    )
    state = found.profile.costs[0].state
    assert "2 samples of jtop; nvpmodel MAXN; jetson_clocks ON; 13.0 W on average, 14.0 W at most" in state
    assert "gpu load 70% on average; up to 51.5 C" in state


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (HEAD, "no row states the time of an execution"),
        (QNN.replace("2900", "-3"), ":3: Time: expected a whole number"),
        (QNN + "x" * 200_000, "expected comma-separated values"),
        (TABLE, "got one without rows"),
        (rknn(True).replace("390", "0").replace("110", "0").replace("50 ", "0 ").replace("/300/300", "/0/0")
         .replace("700/0/700", "0/0/0"), "the table states no time"),
        (JTOP.replace("14000", "nan"), "log.x:3: power: expected a number"),
        (JTOP.splitlines()[0], "the log holds no samples"),
        (TRACE_CMD.replace("10.002200", "9.002200"), ":6: the events are not in the order of time"),
        ("\n".join(TRACE_CMD.splitlines()[:3]), "no thread was seen from its start to its end"),
        (TRACE_CMD.replace("[000]    10.0002", "[99999]    10.0002"), "expected a CPU below 4096"),
        ("nothing", "it looks like text that begins 'nothing'"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_reported(text: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "log.x").write_text(text)
    with pytest.raises(SocschedError) as caught:
        import_profile([tmp_path / "log.x"], "rk3588", precision="fp16", engines={"cpu": "a760", "QNN": "npu0"})
    assert where in str(caught.value) and caught.value.exit_code == 2


def test_long_lines_of_spaces_are_read_in_no_time(tmp_path: Path) -> None:
    """Patterns that backtrack over a line would take minutes for these."""
    row = "1 Conv INT8 NPU " + " " * 200_000
    for text in (
        TRACE_CMD + (" " * 900 + "\n") * 2000 + " " * 10**6,
        rknn(True).split("Total Op")[0].replace("3  Add", row + "\n3  Add"),
    ):
        (tmp_path / "x").write_text(text)
        assert import_profile([tmp_path / "x"], "rk3588", precision="fp16", engines={"cpu": "a760"}).profile.costs


@pytest.mark.parametrize("text", [TRACE_CMD, QNN, rknn(True), rknn(False), JTOP + QNN])
def test_damaged_files_end_in_one_error(text: str, tmp_path: Path) -> None:
    rng, file = random.Random(4), tmp_path / "x"
    for _ in range(CHANGES):
        file.write_bytes(changed(text.encode(), rng))
        try:
            import_profile([file], "rk3588", precision="fp16", engines={"cpu": "a760", "QNN": "npu0"})
        except SocschedError as error:
            assert str(error)
