"""Conformal intervals hold the share that they state."""

from __future__ import annotations

import numpy as np
import pytest

from socsched.cost.fitting.least import LEAST, LEVEL, Score, coverage, half_width, quantile


@pytest.mark.parametrize("count", [10, 20, 50])
def test_a_new_exchangeable_score_is_inside_as_often_as_the_level_says(count: int) -> None:
    random = np.random.default_rng(count)
    draws = np.abs(random.standard_t(3, (4000, count + 1)))
    inside = [draw[-1] <= quantile(list(draw[:-1])) for draw in draws]
    assert np.mean(inside) >= LEVEL - 0.01


def test_the_quantile_is_the_stated_order_statistic() -> None:
    assert quantile(range(1, 100), 0.9) == 90
    assert quantile([3.0, 1.0], 0.9) == 3.0


def test_coverage_judges_each_network_by_the_others() -> None:
    values = np.abs(np.random.default_rng(0).normal(0, 0.2, 300))
    scores = [Score("cell", f"n{number}", float(value)) for number, value in enumerate(values)]
    assert coverage(scores)["cell"] >= LEVEL - 0.02


def test_few_networks_give_no_narrow_interval() -> None:
    scores = [Score(f"mode {mode}", network, 0.01) for mode in range(9) for network in ("a", "b")]
    assert half_width(scores, "mode 0") == LEAST
    many = [Score("mode", f"n{number}", 0.01) for number in range(9)]
    assert half_width(many, "mode") == 0.01
