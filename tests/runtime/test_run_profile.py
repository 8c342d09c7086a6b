from __future__ import annotations

import math
import os
import random
import signal
import threading
import time
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from run_plans import HERE, MS, WARMUP_FRAMES, Scripted, executed, pipeline, plan, sleep, task

from socsched.cost.profile import CoRun, Profile, load_profile, save_profile
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.models.registry import bindings
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.progress import heard
from socsched.runtime import corun
from socsched.runtime.backends import Placed, Setting
from socsched.runtime.profile import Run, half_width, measure
from socsched.trace.trace import Trace


def modelled(pipe: Pipeline, name: str) -> Pipeline:
    """Give one stage a model without inputs that fit nowhere else, so that it counts as real."""
    stages = tuple(replace(s, model="pointpillars.voxelise") if s.name == name else s for s in pipe.stages)
    return replace(pipe, stages=stages)


def by(backend: Scripted) -> Run:
    """Return what runs frames of a plan whose stage `net` has a model."""

    def run(made: Plan, frames: int, on_frame: Any) -> Trace:
        pipe = modelled(pipeline(made), "net")
        return executed(
            made, pipe, backends=backends(backend), frames=frames, on_frame=on_frame, pace="asap", alone=True
        )

    return run


def backends(backend: Scripted) -> dict[str, Scripted]:
    return dict.fromkeys(("synthetic", "function", "network"), backend)


@pytest.mark.slow
def test_an_interrupt_ends_the_measurement_and_not_only_the_run_under_way() -> None:
    made = plan(task("net", "lidar", lanes=(0, 1)), sensors={"lidar": 5 * MS})
    seen: list[int] = []

    def script(name: str, number: int) -> None:
        seen.append(number)
        if number == WARMUP_FRAMES + 2:
            os.kill(os.getpid(), signal.SIGINT)
        sleep(2)

    with pytest.raises(KeyboardInterrupt):
        measure(made, modelled(pipeline(made), "net"), by(Scripted(script)), repeat=200)
    assert len(seen) < 100, "nor is the next share begun"


def test_stages_with_a_model_are_measured_at_their_share_and_on_one_lane(tmp_path: Path) -> None:
    made = plan(task("net", "lidar", lanes=(0, 1)), task("track", "net"), sensors={"lidar": 5 * MS})
    reported: list[str] = []

    def script(name: str, number: int) -> None:
        sleep(8 if number == WARMUP_FRAMES + 1 else 2)

    backend = Scripted(script)
    profile = measure(made, modelled(pipeline(made), "net"), by(backend), repeat=4, note=reported.append)
    assert [(cost.stage, cost.share, cost.samples) for cost in profile.costs] == [("net", 2, 4), ("net", 1, 4)]
    slow, fast = profile.costs
    assert slow.time_ns >= 8 * MS, "a bound rests on the slow frame"
    assert slow.error > 0.3, "and the error reaches down to the usual one"
    assert fast.time_ns >= 2 * MS
    assert [line.split(":")[0] for line in reported] == ["net on 2 of cpu", "net on 1 of cpu"]
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile


def test_measuring_says_how_far_it_is_before_and_after_every_frame() -> None:
    made = plan(task("net", "s", lanes=(0,)), sensors={"s": 5 * MS})
    steps: list[tuple[float, float]] = []
    with heard(lambda step: steps.append((step.done, step.total)) if step.what == "measuring" else None):
        measure(made, modelled(pipeline(made), "net"), by(Scripted()), repeat=4)
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_pipeline_without_models_has_nothing_to_measure() -> None:
    made = plan(task("track", "s"), sensors={"s": MS})
    with pytest.raises(UsageError, match="nothing to measure"):
        measure(made, pipeline(made), by(Scripted()))


def test_alone_means_one_job_at_a_time_and_nothing_dropped() -> None:
    tasks = [task(name, "s", lanes=(lane,), queue=0) for lane, name in enumerate("abc")]
    made = plan(*tasks, sensors={"s": 5 * MS})
    backend = Scripted(lambda *_: sleep(1))
    trace = executed(made, backends=backends(backend), frames=2, pace="asap", alone=True)
    pieces = sorted((piece.start_ns, piece.end_ns) for piece in trace.slices)
    assert len(pieces) == 6 and all(a[1] <= b[0] for a, b in pairwise(pieces))
    assert all(job.status == "done" for job in trace.jobs)


def test_a_stage_profiled_alone_runs_right_after_its_producer_as_on_dedicated_lanes() -> None:
    tasks = [
        task("first", "s"),
        task("camera", "c"),
        task("second", "first"),
        task("third", "second"),
        task("second-of-camera", "c"),
    ]
    made = plan(*tasks, sensors={"s": 5 * MS, "c": 5 * MS})
    trace = executed(made, backends=backends(Scripted()), frames=3, pace="asap", alone=True)
    order = [trace.jobs[piece.job].task for piece in sorted(trace.slices, key=lambda piece: piece.start_ns)]
    assert order == ["first", "second", "third", "camera", "second-of-camera"] * 3


@pytest.mark.slow
def test_frames_are_added_until_medians_are_known_well_enough() -> None:
    made = plan(task("net", "lidar"), sensors={"lidar": 5 * MS})
    spread = Scripted(lambda name, n: sleep(1 + n % 7))
    pipe, none = modelled(pipeline(made), "net"), lambda text: None
    found = measure(made, pipe, by(spread), repeat=8, interval=0.01, most=40, note=none)
    assert [cost.samples for cost in found.costs] == [40], "the spread is far too wide, so as many as allowed"
    loose = measure(made, pipe, by(spread), repeat=8, interval=50.0, most=40, note=none)
    assert [cost.samples for cost in loose.costs] == [8]
    assert 0 < loose.costs[0].median_ns <= loose.costs[0].time_ns


def test_the_interval_of_a_median_has_the_stated_coverage() -> None:
    """By simulation: for 2000 samples of 50 exponential times it holds the true median 93 to 98 % of the time."""
    generator = random.Random(5)
    hits = 0
    for _ in range(2000):
        ordered = sorted(round(generator.expovariate(1.0) * 10**6) for _ in range(50))
        low, high = math.floor(25 - 0.98 * 50**0.5), math.ceil(25 + 0.98 * 50**0.5)
        hits += ordered[low - 1] <= math.log(2) * 10**6 <= ordered[high - 1]
        assert half_width(ordered) == (ordered[high - 1] - ordered[low - 1]) / 2 / ordered[24]
    assert 0.93 <= hits / 2000 <= 0.98
    assert half_width([5, 5]) == math.inf and half_width([7] * 30) == 0.0


def test_co_runners_slow_a_stage_down_by_the_measured_factor(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stages take twice as long while the other one is at work; a third takes as long as ever.

    Every thread has a clock of its own, which only its calls move.
    """
    pipe = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    made = make_plan(pipe, HERE, work=stage_work)
    wanted = {"voxelise": (0,), "decode": (1,)}
    made = replace(made, tasks=tuple(replace(t, lanes=wanted.get(t.name, (2,))) for t in made.tasks))
    users: dict[threading.Thread, str] = {}
    clock = threading.local()
    monkeypatch.setattr(
        corun, "time", SimpleNamespace(perf_counter_ns=lambda: getattr(clock, "now", 0), sleep=time.sleep)
    )

    class Rivals:
        title, real = "rivals", True

        def prepare(self, task: Any, stage: Any, setting: Any) -> Any:
            def call(values: Any) -> Any:
                users[threading.current_thread()] = task.name
                alive = {name for thread, name in users.copy().items() if thread.is_alive()}
                clock.now = getattr(clock, "now", 0)
                clock.now += 5 * MS if task.name == "backbone" else 5 * MS * len(alive - {"backbone"})
                sleep(0.2)
                return {}

            return call

    setting = Setting(made, pipe, HERE, bindings(pipe), None)
    heard = corun.Recorded({"voxelise": {}, "decode": {}, "backbone": {}})
    found = corun.contention(made, setting, heard, repeat=7, note=lambda text: None,
                             backends=dict.fromkeys(("function", "network"), Rivals()))  # fmt: skip
    factors = {(entry.victim, entry.aggressor): entry.factor for entry in found}
    assert factors.keys() == set(permutations(("voxelise", "decode", "backbone"), 2))
    twice = {("voxelise", "decode"), ("decode", "voxelise")}
    assert factors == {pair: 2.0 if pair in twice else 1.0 for pair in factors}


def test_conversions_are_timed_on_outputs_of_stages_and_kept_in_the_profile(tmp_path: Path) -> None:
    blocked = TensorType((1, 20, 30, 50), "fp32", "NCHW16c")
    cls = Placed(np.zeros((1, 2, 30, 50, 16), np.float32), blocked)
    heard = corun.Recorded(made={"head": {"cls": cls, "n": np.zeros(3)}})
    found = corun.conversions(heard, HERE, repeat=3, note=lambda text: None)
    plain = next(entry for entry in found if entry.wanted == "fp32 NCHW")
    assert (plain.tensor, plain.given, plain.samples) == ("head.cls", "fp32 NCHW16c", 3)
    assert plain.bytes == 32 * 1500 * 4 + 20 * 1500 * 4 and plain.time_ns > 0
    profile = Profile("host", (), "tool", "today", (CoRun("a", "b", 1.25, 7),), found)
    save_profile(profile, tmp_path / "profile.json")
    assert load_profile(tmp_path / "profile.json") == profile
