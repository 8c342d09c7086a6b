"""Controllers never cost a deadline that their safe order would meet; environment and agent behave as documented."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from socsched.cli.root import run as command_line
from socsched.errors import UsageError
from socsched.planning.io import save
from socsched.planning.plan import Level, Plan
from socsched.sim import policies
from socsched.sim.policies import Policy, ReadyJob, Term, adaptive
from socsched.sim.policies.controllers import View
from socsched.sim.policies.slack_stealing import SlackStealer
from socsched.sim.simulate import SimulationRun, run
from socsched_literature.studies import learning
from socsched_literature.studies.learning import Costs, Environment, rollout
from socsched_literature.studies.policies import vary_plan
from tests.sim.builders import MS, engine, plan, sensor, task


def mixed(preemption: str = "full") -> Plan:
    """Guarded tasks take 0.52 of an engine with two clocks; two best-effort ones have short deadlines of their own."""
    levels = (Level(500_000_000, 3000), Level(1_000_000_000, 10000))
    gpu = engine("gpu", kind="gpu", preemption=preemption, dynamic_mw=10000, levels=levels)
    rows = [
        ("control", 2, 20, 20, "hard"), ("detect", 12, 50, 50, "firm"), ("track", 6, 33, 33, "firm"),
        ("map", 5, 40, 12, "soft"), ("log", 3, 30, 6, "soft"),
    ]  # fmt: skip
    tasks = [
        task(n, c * MS, engine="gpu", period_ns=p * MS, deadline_ns=d * MS, criticality=k) for n, c, p, d, k in rows
    ]
    return plan(tasks, [gpu])


def drawn(seed: int, usage: float) -> Plan:
    """A task set on one engine, now and then overloaded, with jobs that take less than planned."""
    rng = Random(seed)
    weights = [rng.expovariate(1) for _ in range(6)]
    tasks = []
    for number, weight in enumerate(weights):
        period = rng.randint(5, 60) * MS
        cost = max(round(period * usage * weight / sum(weights)), 1000)
        deadline = rng.randint(max(cost, period // 3), period) if rng.random() < 0.5 else period
        late = rng.choice(("continue", "skip", "abort"))
        kind = rng.choice(("hard", "firm", "soft"))
        tasks.append(
            task(f"t{number}", cost, period_ns=period, deadline_ns=max(deadline, cost), on_late=late, criticality=kind)
        )
    kind = rng.choice(("full", "segment"))
    return vary_plan(plan(tasks, [engine(preemption=kind, switch_ns=5000)]), seed, 0.4)


def lost(done: SimulationRun, kinds: tuple[str, ...] = ("hard", "firm", "soft")) -> int:
    rows = [i for i, t in enumerate(done.lowered.plan.tasks) if t.criticality in kinds]
    return sum(int(done.outcome.ints(name)[rows].sum()) for name in ("late", "dropped", "aborted"))


@pytest.mark.parametrize("seed", range(24))
def test_the_adaptive_policy_is_never_worse_than_edf(seed: int) -> None:
    made = drawn(seed, (0.5, 0.8, 0.95, 1.1)[seed % 4])
    safe, tried = (run(made, 600 * MS, seed, name, record=False) for name in ("edf", "adaptive:low=95:high=99"))
    assert lost(tried) <= lost(safe)


def test_the_adaptive_policy_shortens_responses_where_there_is_slack() -> None:
    made = vary_plan(plan([task("long", 20 * MS, period_ns=60 * MS), task("short", 1 * MS, period_ns=97 * MS)]), 3, 0.2)
    means = {}
    for name in ("edf", "adaptive"):
        found = run(made, 4000 * MS, 0, name, record=False).outcome
        means[name] = int(found.ints_of("responses", 1)[1]) / int(found.ints_of("responses", 3)[1])
    assert means["adaptive"] < means["edf"] / 2


def test_it_switches_with_hysteresis() -> None:
    controller = adaptive.Adaptive(0.5, 0.7, MS, window=1)
    made = plan([task("a", 1 * MS, period_ns=50 * MS), task("b", 1 * MS, period_ns=50 * MS)])
    here = [ReadyJob(made.tasks[i], i, 0, 0, 0, 50 * MS, -1, 0, 1 * MS, False) for i in range(2)]

    def look(busy: float) -> bool:
        view = View(made, "cpu", 0, (0, 1), busy, lambda: here, lambda: {"a": (50 * MS, 1), "b": (50 * MS, 1)}, {})
        return controller.decide(view, 0)[0] == adaptive.CALM

    assert [look(busy) for busy in (0.6, 0.4, 0.6, 0.7, 0.71, 0.6, 0.5, 0.49)] == [
        False, True, True, True, False, False, False, True,
    ]  # fmt: skip
    assert controller.switches == 3


def view_of(made: Plan, frames: dict[str, tuple[int, int]]) -> View:
    return View(made, made.engines[0].id, 0, tuple(range(len(made.tasks))), 0.5, lambda: [], lambda: frames, {})


def test_slack_by_hand() -> None:
    """Nothing is ready; 2 of every 10 arrive at 4, 3 of every 20 at 0 with deadline 8: 3 by 8, 5 by 14, 7 by 24 ..."""
    made = plan([task("a", 2 * MS, period_ns=10 * MS),
                 task("b", 3 * MS, period_ns=20 * MS, deadline_ns=8 * MS)])  # fmt: skip
    guard = SlackStealer(made, (0, 1), (0, 1))
    view = view_of(made, {"a": (4 * MS, 0), "b": (0, 0)})
    assert guard.compute_slack_ns(view, 0, 20 * MS) == 5 * MS
    # one that cannot be stopped takes its longest region off
    held = replace(made, engines=(replace(made.engines[0], preemption="none"),))
    assert SlackStealer(held, (0, 1), (0, 1)).compute_slack_ns(view, 0, 20 * MS) == 5 * MS - (3 * MS + 1)


def test_no_slack_where_nothing_is_known() -> None:
    full = plan([task("a", 6 * MS, period_ns=10 * MS), task("b", 4 * MS, period_ns=10 * MS)])
    assert not SlackStealer(full, (0, 1), (0, 1)).bounded
    apart = plan([task("a", 1, lanes=(0,)), task("b", 1, lanes=(0, 1))], [engine(lanes=2)])
    assert not SlackStealer(apart, (0, 1), (0, 1)).bounded
    joined = plan([task("c", 1, after=("s", "t"))], sensors=(sensor("s", 10), sensor("t", 10)))
    assert not SlackStealer(joined, (0,), (0,)).bounded


def test_frames_under_way_elsewhere_count() -> None:
    """The sensor's next frame, 5, arrives at 40; frame 4, of 30, may still be upstream until its deadline at 38."""
    made = plan(
        [task("c", 2 * MS, after=("s",), period_ns=10 * MS, deadline_ns=8 * MS)], sensors=(sensor("s", 10 * MS),)
    )
    guard, view = SlackStealer(made, (0,), (0,)), view_of(made, {"s": (40 * MS, 5)})
    assert guard.compute_slack_ns(view, 33 * MS, 20 * MS) == 3 * MS
    assert guard.compute_slack_ns(view, 38 * MS, 20 * MS) == 8 * MS


def test_the_environment_is_one() -> None:
    environment = Environment(mixed(), 60 * MS)
    first, info = environment.reset(7)
    assert first.shape == (environment.features,) and info["mask"].dtype == bool and info["mask"][0]
    steps = [environment.step(0) for _ in range(3)]
    again = Environment(mixed(), 60 * MS)
    again.reset(7)
    for one, other in zip(steps, [again.step(0) for _ in range(3)], strict=True):
        assert np.array_equal(one[0], other[0]) and one[1:4] == other[1:4]
    assert again.reset(8)[0] is not None
    over = False
    while not over:
        over = again.step(0)[2]
    with pytest.raises(UsageError, match="over"):
        again.step(0)
    with pytest.raises(UsageError, match="no action 9"):
        environment.step(9)
    with pytest.raises(UsageError, match="no unit 5"):
        Environment(mixed(), 60 * MS, unit=5)


@pytest.mark.parametrize("preemption", ["full", "segment"])
def test_no_agent_can_violate_the_guarantee(preemption: str) -> None:
    """One that draws from all actions, masked ones too, loses no guarded deadline; masked ones are refused."""
    environment = Environment(mixed(preemption), 300 * MS)
    refused = 0
    for seed in range(6):
        rng = Random(seed)
        _, misses = rollout(environment, seed, lambda observation, mask, rng=rng: rng.randrange(environment.actions))
        refused += environment._controller.refused
        assert misses[0] == 0
    assert refused > 0 or preemption == "full"


def test_without_the_mask_deadlines_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee rests on it: shortest first at the slow clock, always, is late with guarded jobs."""
    monkeypatch.setattr(SlackStealer, "compute_slack_ns", lambda self, view, now, enough, need: 1 << 60)
    tight = mixed()
    heavy = replace(tight, tasks=tuple(replace(t, segments=(replace(t.segments[0], time_ns=t.cost_ns * 3 // 2),),
                                               cost_ns=t.cost_ns * 3 // 2) for t in tight.tasks))  # fmt: skip
    environment = Environment(heavy, 300 * MS)
    assert sum(rollout(environment, seed, lambda o, m: 3)[1][0] for seed in range(3)) > 0


@pytest.fixture(scope="module")
def trained() -> tuple[Environment, learning.Trained]:
    environment = Environment(mixed(), 300 * MS, costs=Costs(energy=0.01))
    return environment, learning.train(environment, 20, 4, validation=range(900, 903))


@pytest.mark.slow
def test_the_agent_learns_and_is_never_worse_on_other_seeds(trained: tuple[Environment, learning.Trained]) -> None:
    environment, found = trained
    assert found.reward > found.safe_reward and found.misses[0] <= found.safe_misses[0]
    assert np.mean(found.history[-5:]) > np.mean(found.history[:5])
    choose = learning.greedy(found.weights)
    for seed in range(100, 112):
        (reward, own), (safe_reward, safe) = (rollout(environment, seed, c) for c in (choose, lambda o, m: 0))
        assert own[0] <= safe[0] and sum(own) <= sum(safe) and reward >= safe_reward


def test_gradients_of_masked_actions_are_none() -> None:
    likely = learning.probabilities(np.zeros((4, 2)), np.ones(2), np.array([True, False, True, False]))
    assert likely.tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.slow
def test_weights_become_a_policy(tmp_path: Path, trained: tuple[Environment, learning.Trained]) -> None:
    file = tmp_path / "weights.json"
    learning.save(file, trained[1], "a test")
    for seed in range(4):
        made = vary_plan(mixed(), seed, 0.3)
        safe = run(made, 600 * MS, seed, "learned", record=False)
        own = run(made, 600 * MS, seed, f"learned:weights={file}", record=False)
        assert lost(own, ("hard", "firm")) == lost(safe, ("hard", "firm")) == 0
        assert lost(own) <= lost(safe)
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "features": ["one"]}))
    with pytest.raises(UsageError, match="other features"):
        policies.get_policy(f"learned:weights={file}")
    with pytest.raises(UsageError, match="no file of"):
        policies.get_policy("learned:weights=/nowhere")


def test_the_command_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, weights = tmp_path / "plan.json", tmp_path / "new" / "weights.json"
    save(mixed(), file)
    assert (
        command_line(["study", "learn", str(file), "--batches", "2", "--duration", "60ms", "-o", str(weights.parent)])
        == 0
    )
    assert "misses, guarded and others" in capsys.readouterr().out
    assert json.loads((weights.parent / "learn.json").read_text())["file"] == "weights.json"
    policy = f"learned:weights={weights}"
    assert command_line(["simulate", str(file), "--duration", "100ms", "--policy", policy]) in (0, 1)


def test_a_custom_controller_serves_every_unit() -> None:
    """Two units, one controller each; the order it gives is what is served."""

    class Alternating:
        period_ns = 10

        def __init__(self) -> None:
            self.samples = 0

        def decide(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
            self.samples += 1
            return ((Term.COST, Term.NOTHING) if self.samples == 1 else (Term.PRIORITY, Term.NOTHING)), None

    rule = Policy("alternating", (Term.PRIORITY, Term.NOTHING), dynamic=True, controller=Alternating)
    policies.REGISTERED["alternating"] = rule
    try:
        made = plan([task("long", 30, priority=0, period_ns=1000), task("short", 20, priority=1, period_ns=1000)])
        trace = run(made, 100, policy="alternating").trace
        assert trace is not None
        from tests.sim.builders import spans

        # by priority until 10, the shorter until 20, by priority again
        assert spans(trace) == [("long", 0, 10), ("short", 10, 20), ("long", 20, 40), ("short", 40, 50)]
    finally:
        del policies.REGISTERED["alternating"]
