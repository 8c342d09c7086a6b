"""Measured job times are kept in a profile, and plans made with it draw from them in simulation."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost.profile import MeasuredCost, Profile, load_profile, save_profile
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import DescriptorError
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched.runtime.profile import QUANTILES, quantiles
from socsched.sim.engine import run
from socsched.trace.metrics import result

MS = 1_000_000
TIMES = (2 * MS, 2 * MS, 3 * MS, 9 * MS)


def profile(times: tuple[int, ...] = TIMES) -> Profile:
    costs = (
        MeasuredCost("voxelise", f"cpu{n}", "MAXN", "fp32", 1, times[-1], 0.1, len(times), times[1], times)
        for n in range(3)
    )
    return Profile("jetson-agx-orin-64gb", tuple(costs), "test", "today")


def test_times_survive_the_file_and_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    save_profile(profile(), file)
    assert load_profile(file) == profile()
    document = json.loads(file.read_text())
    for wrong in ([3, 2], [1, "2"], [0, 1], "12"):
        document["costs"][0]["times_ns"] = wrong
        file.write_text(json.dumps(document))
        with pytest.raises(DescriptorError, match=r"costs\[0\]\.times_ns"):
            load_profile(file)
    del document["costs"][0]["times_ns"]
    file.write_text(json.dumps(document))
    assert load_profile(file).costs[0].times_ns == (), "files of before are still read"


@pytest.mark.slow
def test_a_plan_draws_from_what_was_measured(checkout: Path) -> None:
    from socsched.api.planning import pin_stages
    from socsched.descriptor.catalog import get_platform

    pipe = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    board = get_platform("jetson-agx-orin-64gb")
    pipe = pin_stages(pipe, board, ("voxelise=cpu0",))
    plain = make_plan(pipe, board, "MAXN", work=stage_work)
    made = make_plan(pipe, board, "MAXN", work=stage_work, profile=profile())
    task = next(t for t in made.tasks if t.name == "voxelise")
    assert all(t.times is None for t in plain.tasks)
    assert task.times is not None
    more = task.times.values_ns[0] - TIMES[0]  # what handing the result over takes
    assert task.times.values_ns == tuple(time + more for time in TIMES) and 0 <= more < MS // 10
    assert task.wcet_ns >= TIMES[-1], "bounds hold for the longest"
    trace = run(made, 60 * 10**9, 1).trace
    assert trace is not None
    found = result(trace, made)["stages"]["voxelise"]["exec_ns"]
    assert 2 * MS <= found["p50"] <= 3.2 * MS < found["max"] <= 9.1 * MS


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=900))
def test_quantiles_are_values_in_order_that_keep_the_middle(values: list[int]) -> None:
    ordered = sorted(values)
    kept = quantiles(ordered)
    assert len(kept) == min(len(ordered), QUANTILES) and list(kept) == sorted(kept) and set(kept) <= set(ordered)
    middle = random.Random(0).choice(range(10, 90))
    below = sum(value <= kept[middle * (len(kept) - 1) // 100] for value in ordered) / len(ordered)
    assert below >= middle / 100 - 1 / len(kept) - 1 / len(ordered)
