"""Comparison of results, and of predictions with measurements."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cli import root
from socsched.errors import DescriptorError, InputError
from socsched.planning import io
from socsched.planning.plan import Plan
from socsched.reporting.compare import Line, Tolerance, compare, load_result, predict


def test_a_result_does_not_regress_against_itself(result: dict[str, Any]) -> None:
    comparison = compare(result, result, 0.0)
    assert comparison.regressions == ()
    assert all(row.ratio == 1 for row in comparison.rows)
    assert len(comparison.rows) == 9


@given(factor=st.floats(0.5, 2.0), allowed=st.floats(0.0, 0.9))
def test_a_stage_regresses_exactly_above_the_allowance(factor: float, allowed: float) -> None:
    a = {"stages": {"pfn": {"exec_ns": {"p50": 1000.0}}}, "chains": {}}
    b = {"stages": {"pfn": {"exec_ns": {"p50": 1000.0 * factor}}}, "chains": {}}
    assert bool(compare(a, b, allowed).regressions) == (1000.0 * factor > 1000.0 * (1 + allowed))


def test_more_frames_late_or_dropped_are_a_regression_each_with_its_own_share(result: dict[str, Any]) -> None:
    worse = copy.deepcopy(result)
    released = worse["chains"]["planning"]["released"]
    late, dropped = worse["chains"]["planning"]["missed"] + 9, worse["chains"]["planning"]["dropped"] + 3
    worse["chains"]["planning"].update(missed=late, dropped=dropped)
    found = compare(result, worse, 0.05).regressions
    assert [line for line in found if "late" in line or "dropped" in line] == [
        f"planning: {late} of {released} frames late ({(late - 9) / released:.2%} -> {late / released:.2%})",
        f"planning: {dropped} of {released} frames dropped ({(dropped - 3) / released:.2%} -> "
        f"{dropped / released:.2%})",
    ]
    assert compare(worse, result, 0.05).regressions == ()
    worse["chains"]["planning"]["missed"] = 0  # fewer are late since they are dropped
    assert compare(result, worse, 0.05).regressions == (found[-1],)


def test_what_only_one_has_is_remarked_not_compared(result: dict[str, Any]) -> None:
    other = copy.deepcopy(result)
    del other["stages"]["pfn"]
    other["kind"] = "measured"
    remarks = compare(result, other, 0.05).remarks
    assert "stage pfn is only in A" in remarks
    assert "A is simulated, B is measured" in remarks


def test_a_stage_without_jobs_has_no_figures_to_compare(result: dict[str, Any]) -> None:
    other = copy.deepcopy(result)
    other["stages"]["pfn"]["exec_ns"] = {"p50": None}
    assert "pfn" not in {row.name for row in compare(result, other, 0.05).rows}


@pytest.mark.parametrize("content", [None, "no json", "[]", '{"stages": {}}'])
def test_a_folder_without_result_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises((InputError, DescriptorError), match=r"result\.json"):
        load_result(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"stages": {}, "chains": {"c": 3}}', "chains.c: expected the figures of one of the chains"),
        ('{"stages": {"a": {"exec_ns": 3}}, "chains": {}}', "stages.a.exec_ns: expected times by percentile"),
        ('{"stages": {"a": {"exec_ns": {"p50": -1}}}, "chains": {}}', "stages.a.exec_ns.p50: expected a number"),
        ('{"stages": {}, "chains": {"c": {"missed": "x"}}}', "chains.c.missed: expected a number"),
        ("[" * 100_000, "expected"),
    ],
)
def test_a_result_that_cannot_be_compared_is_refused_with_its_place(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(DescriptorError) as error:
        load_result(tmp_path)
    assert says in str(error.value) and "result.json:1:" in str(error.value)


def test_a_result_is_found_by_folder_or_file(tmp_path: Path, result: dict[str, Any]) -> None:
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert load_result(tmp_path) == load_result(tmp_path / "result.json") == result


def scaled(result: dict[str, Any], factor: float, figure: str | None = None) -> dict[str, Any]:
    """Return a result whose times are `factor` times as long, those of one figure only if it is named."""
    found = copy.deepcopy(result)
    for group, key in (("stages", "exec_ns"), ("chains", "response_time_ns")):
        for entry in found[group].values():
            for name, value in (entry.get(key) or {}).items():
                if value is not None and figure in (None, name):
                    entry[key][name] = value * factor
    return found


def test_what_is_measured_as_predicted_agrees(plan: Plan, result: dict[str, Any]) -> None:
    found = predict(plan, result, result)
    assert found.beyond == () and set(found.errors.values()) <= {0.0, None}
    assert {line.name for line in found.lines if line.what == "stage"} == {task.name for task in plan.tasks}
    assert {(line.name, line.figure) for line in found.lines if line.what == "chain"} == {
        (chain.name, figure) for chain in plan.chains for figure in ("p50", "p99", "p99_9")
    }


@given(st.floats(0.5, 2.0))
def test_an_error_is_relative_to_what_was_measured(factor: float) -> None:
    line = Line("chain", "c", "p50", None, 100.0 * factor, 100.0)
    assert line.error == pytest.approx(factor - 1)
    assert Line("chain", "c", "p50", 300.0, None, 100.0).error == 2.0, "without a simulation the plan predicts"
    assert Line("chain", "c", "p99", None, None, 100.0).error is None
    assert Line("chain", "c", "p50", 1.0, 1.0, None).error is None


def test_each_figure_has_its_own_tolerance(plan: Plan, result: dict[str, Any]) -> None:
    found = predict(plan, result, scaled(result, 1.07))
    assert [text.split(":")[0] for text in found.beyond] == ["chain p50"], "7 % is within 15 % and 10 %"
    found = predict(plan, result, scaled(result, 1.3, "p99"))
    assert [text.split(":")[0] for text in found.beyond] == ["chain p99"]
    assert predict(plan, result, scaled(result, 1.3), Tolerance(0.5, 0.5, 0.5)).beyond == ()


def test_frames_lost_beyond_the_prediction_are_reported(plan: Plan, result: dict[str, Any]) -> None:
    worse = copy.deepcopy(result)
    name = plan.chains[0].name
    worse["chains"][name]["dropped"] += 5
    found = predict(plan, result, worse)
    assert len(found.beyond) == 1 and found.beyond[0].startswith(f"{name}: ")
    assert predict(plan, worse, worse).beyond == (), "what the simulation loses too was predicted"


def test_without_a_simulation_the_plan_predicts(plan: Plan, result: dict[str, Any]) -> None:
    found = predict(plan, None, result)
    chain = next(line for line in found.lines if line.what == "chain" and line.figure == "p50")
    assert chain.predicted == plan.chains[0].expected_ns and chain.simulated is None
    assert all(line.predicted is None for line in found.lines if line.figure == "p99_9")


def test_the_command_compares_them_and_sets_its_exit_code(
    plan: Plan, result: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    io.save(plan, tmp_path / "plan.json")
    for name, factor in (("simulated", 1.0), ("same", 1.0), ("slower", 1.5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(scaled(result, factor)))
    command = ["compare", str(tmp_path / "plan.json"), str(tmp_path / "simulated")]
    assert root.run([*command, str(tmp_path / "same")]) == 0
    assert root.run([*command, str(tmp_path / "slower"), "--json"]) == 1
    reported = capsys.readouterr().out
    assert json.loads(reported[reported.index("{") :])["mean_absolute_errors"]["chain p50"] == pytest.approx(1 / 3)
    assert root.run([*command, str(tmp_path / "slower"), "--tolerance", "40%"]) == 0
    assert root.run(["compare", str(tmp_path / "plan.json")]) == 2
    assert root.run(["compare", str(tmp_path / "same")]) == 2
