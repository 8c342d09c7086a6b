"""One file of faults: the same effects in a simulation and a run, and the faults that only one of them can inject."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from run_plans import MS, Scripted, plan, run, sleep, task

from socsched.errors import DescriptorError, UsageError
from socsched.faults.file import load_faults
from socsched.faults.model import RUN, SECTIONS, SIMULATION, Failure, Faults, Overrun, Slowdown, Stall
from socsched.planning.plan import Plan
from socsched.runtime.options import Options
from socsched.sim.simulate import simulate

PERIOD = 80 * MS
FRAMES = 14


def made() -> Plan:
    return plan(
        task("a", "s", period_ns=PERIOD, deadline_ns=PERIOD),
        task("b", "a", lanes=(1,), period_ns=PERIOD, deadline_ns=PERIOD),
        sensors={"s": PERIOD},
    )


def test_the_same_file_and_seed_lead_to_the_same_faults(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts: [{sensor: s, from: 200 ms, until: 360 ms}]\n"
        "slowdowns: [{engine: cpu, from: 760 ms, until: 950 ms, factor: 3}]\n"
        "overruns: [{stage: a, probability: 0.4, factor: 2}]\n"
    )
    there, here = load_faults(file, made(), SIMULATION), load_faults(file, made(), RUN)
    assert there == here

    simulated = simulate(made(), FRAMES * PERIOD, seed=5, faults=there)
    predicted = {
        (job.task, job.frame): Fraction(job.exec_ns, MS) for job in simulated.jobs if job.exec_ns and job.exec_ns > MS
    }
    trace = run(made(), Scripted(lambda *_: sleep(3)), frames=FRAMES, seed=5, options=Options(faults=here))
    kept = [number for number in range(FRAMES) if number not in (3, 4)]
    assert [job.frame for job in trace.jobs if job.task == "a"] == kept
    assert [job.frame for job in simulated.jobs if job.task == "a"] == kept
    # a job takes at least its factor times 3 ms, and a busy machine prolongs some of the others
    injected = {(job.task, job.frame): job.exec_ns / (3 * MS) for job in trace.jobs}
    assert all(injected[job] >= factor for job, factor in predicted.items())
    assert sum(injected[job] < 2 for job in injected.keys() - predicted.keys()) > len(injected) / 3
    assert {("b", 10): Fraction(3), ("b", 11): Fraction(3)}.items() <= predicted.items()
    assert 2 <= sum(factor in (2, 6) for factor in predicted.values()) < len(kept)


WHOLE = """
dropouts:  [{sensor: s, from: 2 s, until: 3 s}]
delays:    [{sensor: s, from: 2 s, until: 3 s, by: 2 ms}]
bursts:    [{sensor: s, at: 2 s, frames: 3}]
slowdowns: [{engine: cpu, from: 5 s, until: 6 s, factor: 1.5}]
throttles: [{engine: cpu, from: 5 s, until: 6 s, factor: 1.5}]
stalls:    [{engine: cpu, from: 5 s, until: 6 s}]
deaths:    [{engine: cpu, from: 5 s, until: 6 s}]
overruns:  [{stage: b, probability: 0.01, factor: 2}]
hogs:      [{engine: cpu, from: 5 s, until: 6 s, bandwidth: 20 GB/s}]
failures:  [{engine: cpu, lanes: [1], at: 2 s, kind: hang}]
"""


@pytest.mark.parametrize("by", [SIMULATION, RUN])
def test_a_fault_that_cannot_be_injected_is_a_finding_that_names_what_can(tmp_path: Path, by: str) -> None:
    file, whole = tmp_path / "faults.yaml", WHOLE.strip().splitlines()
    assert [line.partition(":")[0] for line in whole] == list(SECTIONS)
    file.write_text("\n".join(whole))
    with pytest.raises(DescriptorError) as caught:
        load_faults(file, made(), by)
    foreign = [name for name, section in SECTIONS.items() if by not in section.by]
    assert [finding.field for finding in caught.value.findings] == foreign and foreign
    other = {SIMULATION: RUN, RUN: SIMULATION}[by]
    assert f"a {by} cannot inject {foreign[0]}, only a {other} can" in str(caught.value)
    file.write_text("\n".join(line for line in whole if line.partition(":")[0] not in foreign))
    assert {fault.section for fault in load_faults(file, made(), by).all()} == SECTIONS.keys() - set(foreign)


def test_faults_made_in_python_are_checked_as_those_of_a_file(tmp_path: Path) -> None:
    for faults in (Faults(stalls=(Stall("cpu", 0, 1),)), Faults(slowdowns=(Slowdown("cpu", 0, 1, Fraction(1), True),))):
        with pytest.raises(UsageError, match=r"a run cannot inject (stalls|throttles), only a simulation can"):
            run(made(), Scripted(), frames=1, options=Options(faults=faults))
    with pytest.raises(UsageError, match="a simulation cannot inject failures, only a run can"):
        simulate(made(), MS, faults=Faults(failures=(Failure("cpu", 0, "hang"),)))
    for by in (SIMULATION, RUN):
        with pytest.raises(UsageError, match="factors from 1 to 1000"):
            excess = Faults(overruns=(Overrun("a", Fraction(1), Fraction(1001)),))
            if by == SIMULATION:
                simulate(made(), MS, faults=excess)
            else:
                run(made(), Scripted(), frames=1, options=Options(faults=excess))


def test_a_run_draws_from_a_seed_what_it_can_inject(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text("random: {seed: 3, rate: 60, until: 10 s, kinds: [dropouts, slowdowns]}\n")
    drawn = load_faults(file, made(), RUN)
    assert drawn == load_faults(file, made(), SIMULATION) and len([*drawn.all()]) == 10
    for kinds in ("", ", kinds: [dropouts, stalls]"):
        file.write_text(f"random: {{seed: 3, rate: 60, until: 10 s{kinds}}}\n")
        with pytest.raises(DescriptorError, match=r"a run cannot inject (delays|stalls), only a simulation can"):
            load_faults(file, made(), RUN)
        assert load_faults(file, made(), SIMULATION) != Faults()


def test_failures_are_read_with_all_findings(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "failures: [{engine: cpu, lanes: [1], at: 2 s, kind: hang}, {engine: cpu, at: 0 s, kind: fail}]\n"
        "overruns: [{stage: b, probability: 0.01, factor: 2}]\n"
    )
    found = load_faults(file, made(), RUN)
    assert found.failures == (Failure("cpu", 2 * 10**9, "hang", (1,)), Failure("cpu", 0, "fail"))
    file.write_text(
        "failures: [{engine: gpu, at: 2 s, kind: melt}, {engine: cpu, at: 2 s, kind: hang, lanes: [4]}]\n"
        "overruns: [{stage: b, probability: 2}]\nfire: []\n"
        "dropouts: [{sensor: s, from: 3 s, until: 2 s}]\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_faults(file, made(), RUN)
    assert {finding.field for finding in caught.value.findings} == {
        "failures[0].engine",
        "failures[0].kind",
        "failures[1].lanes",
        "overruns[0].probability",
        "overruns[0].factor",
        "fire",
        "dropouts[0].until",
    }
    text = str(caught.value)
    assert all(word in text for word in ("gpu", "melt", "lanes from 0 to 3", "faults.yaml:2"))


def test_a_stage_overruns_by_one_entry(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    one = "{stage: b, probability: 0.5, factor: 2}"
    file.write_text(f"overruns: [{one}, {one}]\n")
    with pytest.raises(
        DescriptorError,
        match=r"overruns\[1\].stage: expected one overrun for each stage, overruns\[0\] is for 'b' already",
    ):
        load_faults(file, made())
