"""GSLICE: shares and batches adapted while requests arrive."""

# ruff: noqa: E501 - sentences of a table

from __future__ import annotations

from socsched_literature.sharing.deployment import SECOND, Demand, Deployment, Part, Served, mechanism, requests
from socsched_literature.sharing.gslice import Gslice, Options
from socsched_literature.sharing.profile import Interference, read_constants, read_profiles
from socsched_literature.sharing.serving import Simulation, whole
from tools.literature.claims._published import data
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "GSLICE", "Dhakal et al., SoCC 2020"
MIXES = (
    {"resnet50": 60.0, "mobilenet_v2": 120.0, "bert": 60.0},
    {"resnet50": 100.0, "googlenet": 100.0, "ssd": 40.0},
    {"resnet50": 20.0, "mobilenet_v2": 30.0, "bert": 60.0, "googlenet": 60.0},
    {"resnet50": 40.0, "mobilenet_v2": 60.0, "bert": 100.0, "googlenet": 100.0},
)
LENGTH, PERIOD = 600 * SECOND, 20 * SECOND


def claims() -> list[Claim]:
    """Return the rows."""
    neighbours = read_constants(data("gpulet", "3080_INT_MODEL_CONSTANT.CSV"))
    learned = [converged(mix, neighbours, Options()) for mix in MIXES]
    swinging = [converged(mix, neighbours, Options(careful=False, latency="mean")) for mix in MIXES]
    shared = [most_at_once(mix, neighbours) for mix in MIXES]
    settled = min(one[2] for one in learned)
    first, last = min(one[0] for one in learned), min(one[1] for one in learned)
    return [
        Claim(
            SYSTEM, PAPER, "shares and batches converge to ones that meet objectives",
            "four mixes of published 3080 profiles on one GPU, Poisson requests, 30 periods of 20 s, a standby takes 10 s; "
            "then 100 s of other requests with the shares it ended at",
            "objectives met after a few periods",
            f"worst network in time {first:.0%} with equal shares and single requests, {last:.1%} at the end; in the "
            f"last third all shares are within a step of 5 % of the last ones for {settled:.0%} of the periods or more",
            last >= 0.99,
            "with the scarcer residual deciding what is given back, and the 99th percentile as latency; with the rule as "
            f"its reimplementation has it (mean latency, the larger residual) shares swing: {min(o[1] for o in swinging):.0%}",
        ),
        Claim(
            SYSTEM, PAPER, "serves more in time than streams without shares, and than batches of one",
            "the same mixes, satisfaction of all requests, against all networks on unpartitioned streams with single "
            "requests",
            "2x to 13x throughput (against MPS and TensorRT baselines)",
            "; ".join(f"{one[3]:.1%} against {other:.1%}" for one, other in zip(learned, shared, strict=True)),
            all(one[3] >= other for one, other in zip(learned, shared, strict=True)),
        ),
    ]  # fmt: skip


def converged(mix: dict[str, float], neighbours: Interference, options: Options) -> tuple[float, float, float, float]:
    """Return the worst network in time at first and at the end, how much of the last third of the periods had shares
    within a step (5 %) of the last ones, and all requests in time.
    """
    profiles = {one.name: one for one in read_profiles(data("gpulet", "3080_UTIL.CSV"), law="fixed")}
    demands = [Demand(profiles[name], rate) for name, rate in mix.items()]
    control = Gslice(demands, options=options)
    begin = control.start()
    mps = mechanism("mps")
    before = Simulation(begin, mps, neighbours, adaptive=False).run(requests(mix, 60 * SECOND, seed=9), 60 * SECOND)
    run = Simulation(begin, mps, neighbours, controller=control, period_ns=PERIOD, adaptive=False)
    run.run(requests(mix, LENGTH, seed=1), LENGTH)
    parts = tuple(
        Part(0, control.shares[name], (Served(profiles[name], control.batches[name], rate),))
        for name, rate in mix.items()
    )
    length = 100 * SECOND
    after = Simulation(Deployment(parts), mps, neighbours, adaptive=False).run(requests(mix, length, seed=2), length)
    late = [shares for now, shares, _ in control.trail if now >= LENGTH * 2 // 3]
    near = sum(all(abs(one[name] - control.shares[name]) <= 5 for name in mix) for one in late) / len(late)
    return before.worst, after.worst, near, after.satisfaction


def most_at_once(mix: dict[str, float], neighbours: Interference) -> float:
    """Return the fraction of requests in time with all networks on streams and single requests."""
    profiles = {one.name: one for one in read_profiles(data("gpulet", "3080_UTIL.CSV"), law="fixed")}
    parts = tuple(whole([(profiles[name], rate)], batch=1) for name, rate in mix.items())
    asked = requests(mix, 100 * SECOND, seed=2)
    streams = Simulation(Deployment(parts), mechanism("streams"), neighbours, adaptive=False)
    return streams.run(asked, 100 * SECOND).satisfaction
