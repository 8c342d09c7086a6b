"""The faults file: all errors in it are reported at once, and valid content is read as written."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from builders import engine, plan, sensor, task

from socsched.errors import DescriptorError
from socsched.faults.file import KINDS, draw, load_faults
from socsched.faults.model import Burst, Delay, Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.sim.simulate import simulate

PINNED = Stall("gpu", 5022054565, 5212107977)
PLAN = plan([task("head", 1, engine="gpu")], [engine("gpu")], sensors=[sensor("lidar", 10**8)])


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts: [{sensor: lidar, from: 2 s, until: 3 s}]\n"
        "slowdowns:\n  - {engine: gpu, from: 500 ms, until: 1 s, factor: 1.5}\n"
        "overruns: [{stage: head, probability: 0.01, factor: 2}]\n"
    )
    assert load_faults(file, PLAN) == Faults(
        (Dropout("lidar", 2 * 10**9, 3 * 10**9),),
        (Slowdown("gpu", 5 * 10**8, 10**9, Fraction(3, 2)),),
        (Overrun("head", Fraction(1, 100), Fraction(2)),),
    )


def test_json_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"dropouts": [{"sensor": "lidar", "from": "0 s", "until": "1 ms"}]}')
    assert load_faults(file, PLAN) == Faults(dropouts=(Dropout("lidar", 0, 10**6),))


def test_every_finding_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts:\n"
        "  - {sensor: radar, from: 2 s, until: 1}\n"
        "  - {sensor: lidar, from: 2 s, until: 1 s}\n"
        "slowdowns: 7\n"
        "overruns:\n"
        "  - {stage: head, probability: 2, factr: 1}\n"
        "meteors: []\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_faults(file, PLAN)
    found = {(f.line, f.field) for f in caught.value.findings}
    assert found == {
        (2, "dropouts[0].sensor"),
        (2, "dropouts[0].until"),
        (3, "dropouts[1].until"),
        (4, "slowdowns"),
        (6, "overruns[0].probability"),
        (6, "overruns[0].factr"),
        (6, "overruns[0].factor"),
        (7, "meteors"),
    }
    assert "lidar" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "[1, 2]", "dropouts: [", "dropouts: [3]", "overruns: [{stage: [head]}]", "random: 3", "random: {seed: 1}",
     "random: {seed: 1, rate: 6000, until: 9000 h}", "random: {kinds: []}"],
)  # fmt: skip
def test_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(text)
    with pytest.raises(DescriptorError):
        load_faults(file, PLAN)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptorError, match="readable"):
        load_faults(tmp_path / "none.yaml", PLAN)


EVERY_KIND = """
delays: [{sensor: lidar, from: 2 s, until: 3 s, by: 20 ms}]
bursts: [{sensor: lidar, at: 2 s, frames: 3}]
slowdowns: [{engine: gpu, from: 0 s, until: 1 s, factor: 2}]
throttles: [{engine: gpu, from: 5 s, until: 6 s, factor: 1.25}]
stalls: [{engine: gpu, from: 5 s, until: 6 s}]
deaths: [{engine: gpu, from: 7 s, until: 8 s}]
hogs: [{engine: gpu, from: 5 s, until: 6 s, bandwidth: 20 GB/s}]
"""


def test_every_kind_is_read(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(EVERY_KIND)
    second = 10**9
    assert load_faults(file, PLAN) == Faults(
        slowdowns=(
            Slowdown("gpu", 0, second, Fraction(2)),
            Slowdown("gpu", 5 * second, 6 * second, Fraction(5, 4), throttle=True),
        ),
        stalls=(Stall("gpu", 5 * second, 6 * second), Stall("gpu", 7 * second, 8 * second, lost=True)),
        delays=(Delay("lidar", 2 * second, 3 * second, 20_000_000),),
        bursts=(Burst("lidar", 2 * second, 3),),
        hogs=(Hog("gpu", 5 * second, 6 * second, 20 * 10**9),),
    )


def test_what_is_wrong_with_the_other_kinds_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "delays: [{sensor: lidar, from: 2 s, until: 3 s, by: 101 ms}]\n"
        "bursts: [{sensor: lidar, at: -1 s, frames: 0}]\n"
        "deaths: [{engine: npu, from: 0 s, until: 1 s}]\n"
        "hogs: [{engine: gpu, from: 0 s, until: 1 s, bandwidth: 3 s}]\n"
        "random: {seed: -1, rate: 2, kinds: [stalls, stalls, overruns], until: 1 s, sead: 2}\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_faults(file, PLAN)
    assert {(f.line, f.field) for f in caught.value.findings} == {
        (1, "delays[0].by"),
        (2, "bursts[0].at"),
        (2, "bursts[0].frames"),
        (3, "deaths[0].engine"),
        (4, "hogs[0].bandwidth"),
        (5, "random.seed"),
        (5, "random.kinds[1]"),
        (5, "random.kinds[2]"),
        (5, "random.sead"),
    }


def test_random_faults_come_from_the_seed_alone_and_at_the_rate_asked_for(tmp_path: Path) -> None:
    made = plan(PLAN.tasks, PLAN.engines, sensors=PLAN.sensors, dram_bandwidth=10**10)
    file = tmp_path / "faults.yaml"
    file.write_text(f"{EVERY_KIND}random: {{seed: 7, rate: 6, until: 10 min}}\n")
    first, alone = load_faults(file, made), draw(made, 7, Fraction(6), 600 * 10**9)
    assert first == load_faults(file, made)
    assert set(alone) == set(KINDS) and sum(map(len, alone.values())) == 60
    assert set(alone["stalls"]) < set(first.stalls) and set(alone["deaths"]) < set(first.stalls)
    assert all(hog.bandwidth <= 5 * 10**9 for hog in alone["hogs"])
    assert draw(made, 8, Fraction(6), 600 * 10**9) != alone
    # written down once: a change of what a seed means changes everybody's results
    assert draw(made, 7, Fraction(1), 60 * 10**9, ("stalls",)) == {"stalls": [PINNED]}


def test_a_fraction_of_a_fault_comes_with_that_probability() -> None:
    counts = [sum(map(len, draw(PLAN, seed, Fraction(5, 2), 60 * 10**9).values())) for seed in range(400)]
    assert set(counts) == {2, 3} and 160 < counts.count(3) < 240


def test_kinds_that_cannot_happen_are_left_out() -> None:
    bare = plan([task("alone", 1)])
    assert set(draw(bare, 1, Fraction(100), 60 * 10**9)) == {"slowdowns", "throttles", "stalls", "deaths"}
    assert draw(bare, 1, Fraction(100), 60 * 10**9, ("hogs", "bursts")) == {}


def test_faults_from_a_file_happen(tmp_path: Path) -> None:
    made = plan(
        [task("head", 20_000_000, engine="gpu", after=("lidar",), period_ns=10**8)],
        [engine("gpu")],
        sensors=[sensor("lidar", 10**8)],
    )
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts: [{sensor: lidar, from: 150 ms, until: 250 ms}]\n"
        "delays: [{sensor: lidar, from: 300 ms, until: 350 ms, by: 30 ms}]\n"
        "stalls: [{engine: gpu, from: 410 ms, until: 440 ms}]\n"
        "deaths: [{engine: gpu, from: 510 ms, until: 520 ms}]\n"
        "throttles: [{engine: gpu, from: 600 ms, until: 700 ms, factor: 2}]\n"
        "bursts: [{sensor: lidar, at: 650 ms, frames: 2}]\n"
    )
    jobs = simulate(made, 10**9, faults=load_faults(file, made)).jobs
    found = [(job.status, None if job.finish_ns is None else job.finish_ns // 10**6) for job in jobs]
    assert found[:2] == [("done", 20), ("done", 120)]
    assert ("done", 350) in found  # released at 300, there at 330
    assert ("done", 450) in found  # stood still for 30 ms
    assert [job.status for job in jobs].count("aborted") == 1
    assert ("done", 640) in found  # twice as long
    assert sum(700 <= (finish or 0) < 800 for _, finish in found) == 3  # one frame and two more


@pytest.mark.parametrize(
    ("begin", "end", "late"), [(0, 1, [0]), (150, 250, [2]), (201, 299, []), (100, 400, [1, 2, 3])]
)
def test_the_frames_released_in_the_window_are_delayed_and_no_others(begin: int, end: int, late: list[int]) -> None:
    head = task("head", 1_000_000, after=("lidar",), period_ns=10**8)
    made = plan([head], sensors=[sensor("lidar", 10**8)])
    faults = Faults(delays=(Delay("lidar", begin * 10**6, end * 10**6, 40_000_000),))
    arrivals = [job.activation_ns // 10**6 for job in simulate(made, 6 * 10**8, faults=faults).jobs]
    assert arrivals == [100 * k + (40 if k in late else 0) for k in range(6)]


def test_overlapping_stalls_end_with_the_last(tmp_path: Path) -> None:
    made = plan([task("head", 10_000_000, engine="gpu", period_ns=10**9)], [engine("gpu")])
    file = tmp_path / "faults.yaml"
    file.write_text("stalls: [{engine: gpu, from: 0 s, until: 50 ms}, {engine: gpu, from: 20 ms, until: 30 ms}]")
    (job,) = simulate(made, 10**9, faults=load_faults(file, made)).jobs
    assert job.finish_ns == 60_000_000
