"""gpulet against time sharing of whole GPUs, on the profiles its authors published."""

# ruff: noqa: E501 - sentences of a table

from __future__ import annotations

from itertools import product

from socsched_literature.sharing import gpulet, nexus
from socsched_literature.sharing.deployment import Demand
from socsched_literature.sharing.profile import read_constants, read_profiles
from tools import DATA
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "gpulet", "Choi et al., USENIX ATC 2022"
FIVE = ("lenet", "googlenet", "resnet50", "ssd", "vgg16")
GPUS = 4


def claims() -> list[Claim]:
    """Return the row: combinations of rates for which each planner finds a placement."""
    neighbours = read_constants(DATA / "gpulet" / "3080_INT_MODEL_CONSTANT.CSV")
    profiles = {one.name: one for one in read_profiles(DATA / "gpulet" / "3080_UTIL.CSV", law="fixed")}
    whole = parts = 0
    for rates in product((0.0, 200.0, 400.0, 600.0), repeat=len(FIVE)):
        demands = [
            Demand(profiles[name], rate / (10 if name == "vgg16" else 1))
            for name, rate in zip(FIVE, rates, strict=True)
            if rate
        ]
        if demands:
            whole += nexus.schedule(demands, GPUS).complete
            parts += gpulet.schedule(demands, GPUS, neighbours).complete
    return [
        Claim(
            SYSTEM, PAPER, "schedules more combinations of rates",
            "the five networks at 0, 200, 400 or 600 requests a second in every combination (VGG-16 at a tenth, as these "
            "profiles serve 47 a second at most), 4 GPUs",
            "more of 1023, by a figure", f"{parts} against {whole} of 1023", parts > whole,
        ),
    ]  # fmt: skip
