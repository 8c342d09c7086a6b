from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from run_plans import MS, Scripted, pipeline, plan, sleep, task
from test_executor import HERE

from socsched.cost.profile import load_profile, save_profile
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.run.executor import WARMUP_FRAMES, execute
from socsched.run.profile import measure


def modelled(pipe: Pipeline, name: str) -> Pipeline:
    """Give one stage a model without inputs that fit nowhere else, so that it counts as real."""
    stages = tuple(replace(s, model="pointpillars.voxelise") if s.name == name else s for s in pipe.stages)
    return replace(pipe, stages=stages)


def backends(backend: Scripted) -> dict[str, Scripted]:
    return dict.fromkeys(("synthetic", "function", "network"), backend)


def test_stages_with_a_model_are_measured_at_their_share_and_on_one_lane(tmp_path: Path) -> None:
    made = plan(task("net", "lidar", lanes=(0, 1)), task("track", "net"), sensors={"lidar": 5 * MS})
    told: list[str] = []

    def script(name: str, number: int) -> None:
        sleep(8 if number == WARMUP_FRAMES + 1 else 2)

    backend = Scripted(script)
    profile = measure(
        made, modelled(pipeline(made), "net"), repeat=4, platform=HERE, backends=backends(backend), note=told.append
    )
    assert [(cost.stage, cost.share, cost.samples) for cost in profile.costs] == [("net", 2, 4), ("net", 1, 4)]
    slow, fast = profile.costs
    assert slow.time_ns >= 8 * MS, "a bound rests on the slow frame"
    assert slow.error > 0.3, "and the error reaches down to the usual one"
    assert fast.time_ns >= 2 * MS
    assert [line.split(":")[0] for line in told] == ["net on 2 of cpu", "net on 1 of cpu"]
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile


def test_a_pipeline_without_models_has_nothing_to_measure() -> None:
    made = plan(task("track", "s"), sensors={"s": MS})
    with pytest.raises(UsageError, match="nothing to measure"):
        measure(made, pipeline(made), platform=HERE)


def test_alone_means_one_job_at_a_time_and_nothing_dropped() -> None:
    tasks = [task(name, "s", lanes=(lane,), queue=0) for lane, name in enumerate("abc")]
    made = plan(*tasks, sensors={"s": 5 * MS})
    backend = Scripted(lambda *_: sleep(1))
    trace = execute(made, pipeline(made), platform=HERE, backends=backends(backend), frames=2, pace="asap", alone=True)
    pieces = sorted((piece.start_ns, piece.end_ns) for piece in trace.slices)
    assert len(pieces) == 6 and all(a[1] <= b[0] for a, b in pairwise(pieces))
    assert all(job.status == "done" for job in trace.jobs)
