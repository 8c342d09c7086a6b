"""Worked examples of metrics, effects of seed and load, and the command end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from socsched.cli.root import run as command_line
from socsched.errors import UsageError
from socsched.planning.io import save
from socsched.planning.plan import Plan
from socsched.trace.summary import Histogram, bin_of
from socsched_literature.studies import policies
from socsched_literature.studies.saved import save_study
from tests.sim.builders import MS, chain, engine, plan, sensor, task


def test_turnaround_and_throughput_of_two_programs() -> None:
    """Alone 10 and 20; together 30 and 40: slowed down by 3 and 2, progress of 1/3 and 1/2."""
    together, alone = [30.0, 40.0], [10.0, 20.0]
    assert policies.antt(together, alone) == 2.5
    assert policies.stp(together, alone) == pytest.approx(5 / 6)
    # of equal priority 1/3 to 1/2; where the slower one counts three times as much, 4/9 to 2
    assert policies.fairness(together, alone, [1, 1]) == pytest.approx(2 / 3)
    assert policies.fairness(together, alone, [3, 1]) == pytest.approx((1 / 9) / (1 / 2))
    assert policies.fairness(together, alone, [2, 3]) == pytest.approx(1)


def test_agreements_count_jobs_within_a_multiple_of_the_time_alone() -> None:
    values = [100, 200, 400, 401]
    seen = Histogram(np.bincount([*map(bin_of, values)]), len(values), sum(values), min(values), max(values))
    assert [policies.satisfaction(seen, 100, m) for m in (1, 2, 4, 5)] == [0.25, 0.5, 0.75, 1.0]
    assert policies.satisfaction(Histogram(), 100, 4) == 1.0


def test_intervals_are_students() -> None:
    """2, 4 and 6: mean 4, deviation 2, and 4.303 for two degrees of freedom."""
    mean, half = policies.interval([2.0, 4.0, 6.0])
    assert (mean, half) == (4.0, pytest.approx(4.303 * 2 / math.sqrt(3)))
    assert policies.interval([7.0]) == (7.0, 0.0)


def small() -> Plan:
    """Two chains on one engine that runs one job at a time."""
    stages = [
        task("see", 4 * MS, after=("cam",), engine="gpu", period_ns=10 * MS, priority=1, criticality="soft"),
        task("act", 2 * MS, engine="gpu", period_ns=8 * MS, priority=0, criticality="hard", deadline_ns=4 * MS),
    ]
    gpu = engine("gpu", kind="gpu", preemption="segment", dynamic_mw=1000)
    chains = (chain("seeing", ("cam", "see"), 10 * MS), chain("acting", ("act",), 4 * MS))
    return plan(stages, [gpu], sensors=(sensor("cam", 10 * MS),), chains=chains)


def test_a_load_makes_sources_faster_and_leaves_deadlines() -> None:
    double = policies.scale_rates(small(), 2)
    assert [s.period_ns for s in double.sensors] == [5 * MS]
    assert [(t.period_ns, t.deadline_ns) for t in double.tasks] == [(5 * MS, 10 * MS), (4 * MS, 4 * MS)]
    with pytest.raises(UsageError, match="above 0"):
        policies.scale_rates(small(), 0)


def test_a_seed_draws_phases_and_times_that_never_exceed_the_plan() -> None:
    a, b = (policies.vary_plan(small(), seed, 0.3) for seed in (1, 2))
    assert a == policies.vary_plan(small(), 1, 0.3) != b
    assert 0 <= a.sensors[0].offset_ns < 10 * MS and a.sensors[0].offset_ns != b.sensors[0].offset_ns
    assert [t.times.values_ns for t in a.tasks if t.times] == [(2_800_000, 4 * MS), (1_400_000, 2 * MS)]
    assert all(t.times is None for t in policies.vary_plan(small(), 1, 0).tasks)


def test_a_chain_alone_keeps_the_tasks_it_needs() -> None:
    made = small()
    reading = plan(
        [*made.tasks, task("end", 1, engine="gpu", reads=("see",))], made.engines, sensors=made.sensors,
        chains=(chain("whole", ("cam", "see", "end"), 10 * MS),),
    )  # fmt: skip
    assert [t.name for t in policies.alone(reading, reading.chains[0]).tasks] == ["see", "end"]
    assert [c.name for c in policies.programs(plan(made.tasks))] == ["see", "act"]
    assert policies.importance(made, made.chains[0]) == 1 and policies.importance(made, made.chains[1]) == 9


def test_policies_that_change_nothing_are_left_out_with_the_reason() -> None:
    names, left_out = policies.select_policies(small(), None)
    assert "cbs" in left_out and "reservation" in left_out["cbs"] and "reef" in names
    on_cpus = plan([task("a", 1)])
    assert set(policies.select_policies(on_cpus, None)[1]) >= {"cbs", "reef", "xauto", "edf-criticality"}
    with pytest.raises(UsageError, match="unknown scheduling policy 'nothing'"):
        policies.select_policies(small(), ["nothing"])


def test_a_study_distinguishes_policies() -> None:
    """Two chains with 4 of 10 and 2 of 8 ms: within limits, but a job that waits for most of the 4 ms is late."""
    found = policies.study(small(), ["np-fifo", "fp", "xauto:gpu=1us"], (1.0, 1.3), 12, 400 * MS, 0.3)
    late = {name: found.cell(name, 1.0).figures["misses"][0] for name in ("np-fifo", "fp", "xauto:gpu=1us")}
    assert late["np-fifo"] == late["fp"] > 0 and late["xauto:gpu=1us"] == 0
    assert "xauto:gpu=1us" in found.beats(1.0)
    planned = found.cell(policies.PLANNED, 1.0)
    assert not planned.on_front and found.cell("xauto:gpu=1us", 1.0).on_front
    own = found.cell("np-fifo", 1.0).figures
    assert own["antt"][0] > 1 and 0 < own["stp"][0] <= 2 and 0 < own["fairness"][0] <= 1 and own["sla"][0] <= 1
    assert found.cell("np-fifo", 1.3).figures["energy"][0] > own["energy"][0]


def test_one_cell_beats_another_only_beyond_what_seeds_leave_open() -> None:
    def cell(misses: tuple[float, ...], energy: tuple[float, ...]) -> policies.Cell:
        return policies.Cell("x", 1.0, {"misses": misses, "energy": energy}, {})

    base = cell((0.1, 0.2, 0.3), (100.0, 110.0, 120.0))
    assert policies.dominates(cell((0.1, 0.2, 0.3), (90.0, 100.0, 110.0)), base)
    assert not policies.dominates(cell((0.1, 0.2, 0.3), (90.0, 115.0, 119.0)), base)
    assert not policies.dominates(cell((0.1, 0.2, 0.3), (99.95, 109.95, 119.95)), base), "less than a thousandth"
    assert not policies.dominates(cell((0.2, 0.3, 0.4), (90.0, 100.0, 110.0)), base)


def test_the_picture_and_the_tables_show_every_policy(tmp_path: Path) -> None:
    found = policies.study(small(), ["fp", "edf"], (1.0, 1.3), 2, 50 * MS)
    paths = save_study(tmp_path / "new", "policies", policies.document(found), policies.figure(found))
    assert [path.name for path in paths] == ["policies.json", "policies.svg"]
    picture = paths[1].read_text()
    assert picture.count("<rect") == 1 + 2 + 3 * 3 * 2 and "as planned" in picture
    assert policies.markdown(found).count("| `fp` |") == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    file = tmp_path / "plan.json"
    save(small(), file)
    arguments = ["study", "policies", str(file), "--policies", "fp,np-fifo", "--loads", "1,1.2", "--seeds", "2"]
    assert command_line([*arguments, "--duration", "100ms", "--json", "-q"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(c["policy"], c["load"]) for c in shown["cells"]] == [
        (name, load) for load in (1.0, 1.2) for name in ("as planned", "fp", "np-fifo")
    ]
    assert all(len(cell["antt"]) == 2 for cell in shown["cells"]) and set(shown["beats_the_plan"]) == {"1", "1.2"}
    assert command_line([*arguments, "--duration", "100ms", "-o", str(tmp_path / "out")]) == 0
    table = capsys.readouterr().out
    assert "load 1.2" in table and "as planned" in table and (tmp_path / "out" / "policies.svg").exists()
    assert command_line(["study", "policies", str(file), "--policies", "nope"]) == 2
    assert command_line(["study", "policies", str(file), "--loads", "0"]) == 2
    assert "unknown scheduling policy 'nope'" in capsys.readouterr().err
