"""Comparing results: the definition of a regression, and folders without a result."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.errors import DescriptorError, InputError
from socsched.reporting.compare import compare, load_result


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
