"""Scores: cells, ranks, quantiles and the bar, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.cost.measurements import Row
from socsched.descriptor.small_files import load_bar
from socsched.errors import DescriptorError
from socsched.validation.document import GroupDocument
from socsched.validation.predict import Prediction
from socsched.validation.scores import cells_of, failures, groups, scores, spearman


def measured(ms: float, network: str = "a", flag: str = "", problem: str = "", mode: str = "M") -> Row:
    return Row("board", "gpu", "fp16", mode, 0, network, ms, flag, problem=problem)


def predicted(ms: float, error: float = 0.5, refused: str = "") -> Prediction:
    low, high = ms * (1 - error), ms * (1 + error)
    return Prediction("M", 8, "derived", predicted=ms, low=low, high=high, refused=refused)


def test_the_fastest_unflagged_row_is_the_measurement_of_a_cell() -> None:
    rows = [measured(3), measured(2), measured(1, flag="NOISY"), measured(1, problem="x"), measured(4, "b")]
    scored, refused = cells_of(rows, [predicted(2)] * 4 + [predicted(0, refused="why")])
    assert [cell.row.measured_ms for cell in scored] == [2]
    assert [cell.row.network for cell in refused] == ["b"]


def test_rows_that_name_a_mode_by_its_alias_are_of_the_same_cell() -> None:
    assert len(cells_of([measured(3), measured(2, mode="alias")], [predicted(2)] * 2)[0]) == 1


def test_scores_are_those_worked_out_by_hand() -> None:
    rows = [measured(1, "a"), measured(2, "b"), measured(4, "c"), measured(10, "d")]
    ratios = (1.0, 1.5, 0.5, 3.0)
    times = [predicted(row.measured_ms * ratio) for row, ratio in zip(rows, ratios, strict=True)]
    found = scores(cells_of(rows, times)[0], 2)
    assert found == {
        "cells": 4,
        "refused": 2,
        "median_ratio": 1.25,
        "mape": 0.75,  # (0 + 0.5 + 0.5 + 2) / 4
        "p90": 1.55,  # between the third and the fourth of 0, 0.5, 0.5, 2
        "spearman": 0.8,  # predicted 1, 3, 2, 30
        "inside": 0.5,  # 1 in [0.5, 1.5], 2 in [1.5, 4.5]; 4 not in [1, 3], 10 not in [15, 45]
    }


def test_without_cells_scores_are_unknown() -> None:
    assert set(scores([], 1).values()) == {0, 1, None}


def test_ranks_of_ties_are_shared() -> None:
    assert spearman([1, 2, 2, 3], [10, 20, 30, 40]) == pytest.approx(0.948683, abs=1e-6)
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None


def test_groups_are_of_engines_that_exist() -> None:
    scored, refused = cells_of([measured(1), measured(1, "b")], [predicted(1), predicted(0, refused="why")])
    (group,) = groups(scored, refused, {("board", "gpu")})
    assert (group["platform"], group["engine"], group["precision"]) == ("board", "gpu", "fp16")
    assert (group["cells"], group["refused"]) == (1, 1)
    assert groups(scored, refused, set()) == []


GROUP: GroupDocument = {
    "platform": "board", "engine": "gpu", "precision": "fp16", "cells": 2, "refused": 0, "median_ratio": 1.0,
    "mape": 0.3, "p90": 0.6, "spearman": None, "inside": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("overall: {mape: 0.3, p90: 0.6, inside: 0.5, cells: 2}", []),
        ("overall: {mape: 0.2}", ["overall: mape is 30.0%, expected at most 20.0%"]),
        ("overall: {inside: 0.85}", ["overall: inside is 50.0%, expected at least 85.0%"]),
        ("overall: {spearman: 0.9}", ["overall: spearman is unknown with 2 cells, expected at least 0.9"]),
        ("groups: [{engine: gpu, cells: 3}]", ["board gpu fp16: cells is 2, expected at least 3"]),
        ("groups: [{precision: int8, mape: 1}]", ["groups[0]: no cell of int8 is measured"]),
        ("groups: [{platform: board, p90: 0.1}]", ["board gpu fp16: p90 is 60.0%, expected at most 10.0%"]),
    ],
)
def test_limits_that_are_not_kept_are_named(tmp_path: Path, limits: str, says: list[str]) -> None:
    (tmp_path / "bar.yaml").write_text(f"schema_version: '1'\n{limits}\n")
    assert failures(load_bar(tmp_path / "bar.yaml"), GROUP, [GROUP]) == says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("schema_version: '1'\n", "bar.yaml:1:1: "),
        ("schema_version: '1'\noverall: {mape: low}\n", "bar.yaml:2:17: overall.mape: expected a number"),
        (
            "schema_version: '1'\noverall: {mapes: 1}\n",
            "bar.yaml:2:11: overall.mapes: unknown field; did you mean 'mape'?",
        ),
        ("schema_version: '1'\noverall: {inside: 85}\n", "overall.inside: expected a number not above 1"),
        ("schema_version: '1'\ngroups: [{engine: gpu}]\n", "bar.yaml:2:10: groups[0]: expected a limit: mape"),
        (
            "schema_version: '1'\ngroups: [{precision: fp61, mape: 1}]\n",
            "expected one of 'fp32', 'fp16', 'int8', 'w8a16', 'fp8' or 'fp4'",
        ),
        ("overall: {mape: .nan}\nschema_version: '1'\n", "overall.mape: expected a number"),
    ],
)
def test_a_bar_with_faults_names_their_places(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "bar.yaml").write_text(text)
    with pytest.raises(DescriptorError) as caught:
        load_bar(tmp_path / "bar.yaml")
    assert says in str(caught.value)
