"""Irina (APNet 2020): batching, stacking and preempting against a queue, by mean job completion time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from socsched.faults.model import Burst, Faults
from socsched.planning.plan import Plan, PlannedSensor
from socsched.sim.simulate import run
from socsched_literature.studies.policies import interval
from tools.literature.claims._plans import SECOND, engine, kernels, plan, task
from tools.literature.claims.claim import Claim

PAPER = "APNet 2020"
MODELS = ("mobilenet", "resnet18", "vgg", "densenet", "alexnet")
HORIZON = 4 * SECOND
WORKLOAD = (
    "20 draws of 5 networks as profiled, requests of each in bursts of 1 to 8 at random phases, 85 % of the GPU in the "
    "mean; a further request of a batch takes 0.4 of one alone, two co-running 1.4 times as long each"
)
VARIANTS = {
    "queue (FIFO)": "np-fifo", "preempting only": "irina:batch=1:slowdown=2000",
    "batching only": "np-irina:slowdown=2000", "stacking only": "np-irina:batch=1", "all": "irina",
}  # fmt: skip


def draw(seed: int) -> tuple[Plan, Faults]:
    """Return a workload: one task per network, fed by a source whose frames arrive in bursts."""
    rng = Random(f"irina:{seed}")
    sensors, tasks, bursts = [], [], []
    for name in MODELS:
        cost = sum(time for _, time in kernels(name))
        every = round(cost * 4.5 * len(MODELS) / 0.85)
        offset = rng.randrange(every)
        sensors.append(PlannedSensor(f"for-{name}", every, offset, 0, 0))
        tasks.append(task(name, kernels(name), engine="gpu", period_ns=every, after=(f"for-{name}",), queue=1 << 30))
        # further requests come with the next frame
        bursts += [
            Burst(f"for-{name}", max(at - 1, 0), rng.randint(0, 7)) for at in range(offset, HORIZON, every) if at
        ]
    return replace(plan(tasks, [engine("gpu")]), sensors=tuple(sensors)), Faults(bursts=tuple(bursts))


def completion(made: Plan, bursts: Faults, policy: str) -> float:
    """Return the mean time from release to completion of all requests (ms), those of the last bursts finished too."""
    done = run(made, HORIZON, 0, policy, bursts, record=False).outcome
    return float(done.ints_of("responses", 1).sum() / done.ints_of("responses", 3).sum()) / 1e6


def claims() -> list[Claim]:
    """Return Irina's claims with the results here."""
    found: dict[str, list[float]] = {}
    for seed in range(20):
        made, bursts = draw(seed)
        for name, policy in VARIANTS.items():
            found.setdefault(name, []).append(completion(made, bursts, policy))
    mean = {name: interval(values) for name, values in found.items()}
    gain = mean["queue (FIFO)"][0] / mean["all"][0]
    best = min(mean, key=lambda name: mean[name][0])
    shown = ", ".join(f"{name} {value:.1f} ± {half:.1f} ms" for name, (value, half) in mean.items())
    adaptive = mean["all"][0] <= 1.02 * mean[best][0]
    return [
        Claim("Irina", PAPER, "mean job completion time falls by tens of per cent to several times against a queue",
              WORKLOAD, "1.3 to 2.5 times (against TensorFlow Serving, simulated)", f"{gain:.2f} times: {shown}",
              gain >= 1.3, "" if gain >= 1.3 else "the draws queue less than the paper's"),
        Claim("Irina", PAPER, "choosing among all of them is no worse than any one alone", WORKLOAD, "adaptive is best",
              f"all {mean['all'][0]:.1f} ms, best is {best} with {mean[best][0]:.1f} ms", adaptive,
              "rules are reconstructed from the abstract" if adaptive else
              "rules are reconstructed from the abstract, and decide between two jobs at a time"),
    ]  # fmt: skip
