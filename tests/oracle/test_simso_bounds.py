"""No response another simulator observed is above a bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from datafiles import read

from socsched.descriptor.taskset import load_taskset
from socsched.schedulability.published.choose import analyse

SETS = {
    "w1_edf_uni_off_1": "feasible",
    "w1_edf_uni_sync_1": "feasible",
    "w2_gedf_4cpu_off_1": "undecided",
    "w3_prm_4cpu_off_1": "feasible",
    "w3_prm_4cpu_sync_1": "feasible",
    "x1_edf_uni_constrained": "feasible",
    "x2_edf_uni_overload": "infeasible",
}


@pytest.mark.parametrize("name", list(SETS))
def test_observed_responses_are_within_bounds(data: Path, name: str) -> None:
    seen = {row["id"]: row for row in read(f"simso/{name}.simso.json.xz")["per_task"]}
    analysis = analyse(load_taskset(data / "simso" / f"{name}.taskset.json"))
    assert analysis.verdict == SETS[name]
    assert analysis.verdict != "feasible" or not any(row["deadline_misses"] for row in seen.values())
    assert analysis.verdict != "infeasible" or any(row["deadline_misses"] for row in seen.values())
    attained = bounded = 0
    for task in analysis.taskset.tasks:
        for outcome in analysis.outcomes:
            bound = outcome.answer.bounds.get(task.name) if outcome.answer else None
            if bound is not None:
                bounded += 1
                observed = seen[task.id]["response_max"] * 1000
                assert observed <= bound.value, (task.name, outcome.test.name)
                attained += observed == bound.value
    assert bounded or name.startswith("x2")
    if name == "w3_prm_4cpu_sync_1":
        # released together, every response of preemptive fixed priorities is attained
        best = [analysis.tasks[task.name].bound for task in analysis.taskset.tasks]
        assert [b.value for b in best if b] == [seen[t.id]["response_max"] * 1000 for t in analysis.taskset.tasks]
