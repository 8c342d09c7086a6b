"""MIG-Serving: GPUs needed, and transitions, on services with the published profiles."""

# ruff: noqa: E501 - sentences of a table

from __future__ import annotations

import random
import time
from collections import Counter
from statistics import fmean

from socsched_literature.sharing import mig_serving
from socsched_literature.sharing.deployment import Demand
from socsched_literature.sharing.mig_search import search
from socsched_literature.sharing.profile import Profile, ShareLaw
from socsched_literature.sharing.published import read_profiles
from socsched_literature.sharing.transition import lay_out, transition
from tools.literature.claims._published import data
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "MIG-Serving", "Tan et al., arXiv 2109.11067"
GPU = "a100-40gb"
LAWS: tuple[ShareLaw, ...] = ("amdahl", "fixed", "fill", "measured")
DRAWS = 8


def claims() -> list[Claim]:
    """Return the rows."""
    saved: dict[str, list[float]] = {}
    over, better, seconds, lost, peak = [], [], 0.0, 0, []
    for law in LAWS:
        profiles = [one for one in read_profiles(data("gpulet", "3080_UTIL.CSV"), law=law) if one.name != "lenet"]
        for seed in range(DRAWS):
            given, other = (drawn(profiles, seed, second) for second in (False, True))
            fast = mig_serving.greedy(given)
            begin = time.perf_counter()
            slow = search(given)
            seconds = max(seconds, time.perf_counter() - begin)
            saved.setdefault(law, []).append(1 - len(slow) / len(mig_serving.static(given, ("7g.40gb",))))
            over.append(len(slow) / mig_serving.lower_bound(given) - 1)
            better.append(len(fast) - len(slow))
            if law == "fixed":
                steps, short = changed(given, other)
                lost += short
                peak.append(steps)
    mean = fmean(saved["fixed"])
    services = "five of eight services drawn, lognormal rates of about 1.6 GPUs' worth each (8 draws), A100 geometry"
    return [
        Claim(
            SYSTEM, PAPER, "needs 20 to 40 % fewer GPUs than a static allocation of whole GPUs",
            f"{services}; latencies of published 3080 profiles at the share of compute slices, reconstructed from "
            "occupancies; batches with twice their latency within the objective",
            "up to 40 %",
            f"{mean:.0%} on average ({min(saved['fixed']):.0%} to {max(saved['fixed']):.0%}); with the other assumed laws of "
            f"shares {fmean(saved['amdahl']):.0%} and {fmean(saved['fill']):.0%}, with the law measured on an H100 "
            f"{fmean(saved['measured']):.0%} ({min(saved['measured']):.0%} to {max(saved['measured']):.0%})",
            mean >= 0.2,
            "what a seventh of a GPU does of a whole one's work decides, and is reconstructed: where every kernel needs "
            "all units (the least favourable law) only fractions of GPUs are saved",
        ),
        Claim(
            SYSTEM, PAPER, "the search is near the lower bound, and improves on greedy",
            f"{services}; the bound lets every service have its best instance size without waste",
            "within 3 % of the bound", f"{fmean(over):.1%} above it on average, {max(over):.0%} at most; fewer GPUs than greedy "
            f"in {sum(one > 0 for one in better)} of {len(better)} draws, never more; {seconds:.1f} s at most",
            fmean(over) <= 0.05 and min(better) >= 0,
        ),
        Claim(
            SYSTEM, PAPER, "a transition never serves less than before and after need",
            f"{services}; to other rates by exchange and compact, capacity checked after every step",
            "no loss", f"{lost} steps below what is needed in {DRAWS} transitions; GPUs in use on the way up to "
            f"{max(peak):.1f}x the larger of both",
            lost == 0,
        ),
    ]  # fmt: skip


def drawn(profiles: list[Profile], seed: int, second: bool) -> mig_serving.Problem:
    """Return services with rates, `second` the same ones with others."""
    draw = random.Random(seed)
    chosen = draw.sample(profiles, 5)
    rates = [[draw.lognormvariate(0.2, 0.8) for _ in chosen] for _ in range(2)][second]
    demands = [
        Demand(one, one.saturated(100, 1.1)[1] * rate) for one, rate in zip(chosen, rates, strict=True)
    ]  # fmt: skip
    return mig_serving.problem(GPU, demands)


def changed(before: mig_serving.Problem, after: mig_serving.Problem) -> tuple[float, int]:
    """Return GPUs used on the way over the larger deployment's, and steps after which a service had too little."""
    now, target = search(before), search(after)
    steps = transition(GPU, now, target)
    have = Counter(pair for config in now for pair in config)
    needs = {
        one.profile.name: min(one.rate, other.rate) for one, other in zip(before.demands, after.demands, strict=True)
    }
    assert all(lay_out(GPU, config) for config in target)
    short = 0
    for action in steps.actions:
        have[action.placed.profile, action.service] += 1 if action.kind == "make" else -1
        served = Counter[str]()
        for pair, number in have.items():
            served[pair[1]] += number * before.throughput[pair]  # type: ignore[assignment]
        short += any(served[name] < need - 1e-6 for name, need in needs.items())
    return steps.peak / max(len(now), len(target)), short
