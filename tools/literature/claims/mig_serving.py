"""MIG-Serving: GPUs needed for services with the published profiles."""

# ruff: noqa: E501 - sentences of a table

from __future__ import annotations

import random
from collections import Counter
from math import ceil
from statistics import fmean

from socsched.errors import UsageError
from socsched_literature.sharing import mig_serving
from socsched_literature.sharing.deployment import Demand
from socsched_literature.sharing.profile import Profile, ShareLaw, read_profiles
from tools import DATA
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "MIG-Serving", "Tan et al., arXiv 2109.11067"
GPU = "a100-40gb"
LAWS: tuple[ShareLaw, ...] = ("amdahl", "fixed", "fill")
DRAWS = 8


def claims() -> list[Claim]:
    """Return the rows."""
    saved: dict[str, list[float]] = {}
    over = []
    for law in LAWS:
        profiles = [one for one in read_profiles(DATA / "gpulet" / "3080_UTIL.CSV", law=law) if one.name != "lenet"]
        for seed in range(DRAWS):
            given = drawn(profiles, seed)
            greedy = mig_serving.greedy(given)
            saved.setdefault(law, []).append(1 - len(greedy) / len(static(given, ("7g.40gb",))))
            over.append(len(greedy) / lower_bound(given) - 1)
    mean = fmean(saved["fixed"])
    services = "five of eight services drawn, lognormal rates of about 1.6 GPUs' worth each (8 draws), A100 geometry"
    return [
        Claim(
            SYSTEM, PAPER, "needs 20 to 40 % fewer GPUs than a static allocation of whole GPUs",
            f"{services}; latencies of published 3080 profiles at the share of compute slices, reconstructed from "
            "occupancies; batches with twice their latency within the objective",
            "up to 40 %",
            f"{mean:.0%} on average ({min(saved['fixed']):.0%} to {max(saved['fixed']):.0%}); with the other assumed laws of "
            f"shares {fmean(saved['amdahl']):.0%} and {fmean(saved['fill']):.0%}",
            mean >= 0.2,
            "what a seventh of a GPU does of a whole one's work decides, and is reconstructed: where every kernel needs "
            "all units (the least favourable law) only fractions of GPUs are saved",
        ),
        Claim(
            SYSTEM, PAPER, "the fast algorithm is near the lower bound",
            f"{services}; the bound lets every service have its best instance size without waste",
            "within 3 % of the bound (the slow one)", f"{fmean(over):.1%} above it on average, {max(over):.0%} at most",
            fmean(over) <= 0.05,
        ),
    ]  # fmt: skip


def drawn(profiles: list[Profile], seed: int) -> mig_serving.Problem:
    """Return services with rates."""
    draw = random.Random(seed)
    chosen = draw.sample(profiles, 5)
    demands = [Demand(one, one.saturated(100, 1.1)[1] * draw.lognormvariate(0.2, 0.8)) for one in chosen]
    return mig_serving.problem(GPU, demands)


def lower_bound(given: mig_serving.Problem) -> int:
    """Return a lower bound on the number of GPUs: every service on its most efficient instance, without waste."""
    cut = mig_serving.geometry(given.gpu)
    needed = 0.0
    for one in given.demands:
        best = max(given.throughput[profile.name, one.profile.name] / profile.compute for profile in cut.profiles)
        needed += one.rate / best / cut.compute
    return ceil(needed - 1e-9)


def static(given: mig_serving.Problem, partition: tuple[str, ...]) -> list[mig_serving.Config]:
    """Return GPUs all cut as `partition`, each instance for the service most in need; UsageError if never enough.

    With a single instance, the whole GPU, this is the static allocation of whole GPUs that MIG-Serving is compared
    with.
    """
    have = Counter[str]()
    rates = {one.profile.name: one.rate for one in given.demands}
    for name in rates:
        if not any(given.throughput[profile, name] for profile in partition):
            raise UsageError(f"{name} meets its objective on no instance of {partition}")
    chosen: list[mig_serving.Config] = []
    while any(have[name] < rate * (1 - 1e-9) for name, rate in rates.items()):
        config: list[tuple[str, str]] = []
        for profile in partition:
            able = [name for name in rates if given.throughput[profile, name] > 0 and have[name] < rates[name]]
            if able:
                name = max(able, key=lambda name: (1 - have[name] / rates[name], name))
                have[name] += given.throughput[profile, name]  # type: ignore[assignment]
                config.append((profile, name))
        chosen.append(tuple(sorted(config)))
    return chosen
