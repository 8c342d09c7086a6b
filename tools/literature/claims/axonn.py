"""AxoNN: time against energy caps."""

from __future__ import annotations

from tools.literature.claims._networks import pipeline
from tools.literature.claims._runs import XAVIER, chains_ms, planned
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "AxoNN", "Dagli et al., DAC 2022"


def claims() -> list[Claim]:
    """Return whether caps are kept and what they cost in time, against the GPU and the DLA alone."""
    found = []
    for network in ("resnet50", "vgg16"):
        what = pipeline(network, engines=("gpu", "dla"))
        only = {e: planned("socsched", pipeline(network, engines=(e,)), None, XAVIER) for e in ("gpu", "dla")}
        times = {e: max(chains_ms(plan).values()) for e, plan in only.items()}
        spent = {e: sum(task.energy_uj for task in plan.tasks) / 1e3 for e, plan in only.items()}
        outcomes, kept, last = [], True, 0.0
        for share in (0.9, 0.8, 0.7):
            cap = share * spent["gpu"]
            plan = planned("axonn", what, {"cap": f"{cap:.6f}"}, XAVIER) if cap > spent["dla"] else only["dla"]
            ms = max(chains_ms(plan).values())
            energy = sum(task.energy_uj for task in plan.tasks) / 1e3
            kept = kept and energy <= cap * 1.03 and ms <= times["dla"] * 1.001 and ms >= last * 0.999
            last = ms
            outcomes.append(f"cap {cap:.1f} mJ: {ms:.2f} ms, {energy:.1f} mJ")
        ends = f"GPU {times['gpu']:.2f} ms, {spent['gpu']:.1f} mJ; DLA {times['dla']:.2f} ms, {spent['dla']:.1f} mJ"
        found.append(
            Claim(
                SYSTEM,
                PAPER,
                "caps between the GPU's and the DLA's energy are kept, at times between theirs",
                f"{network} on GPU and DLA of AGX Xavier by roofline, fp16, simulated",
                "time and energy predicted within 2.9 and 1.8 %; schedules in between at every target",
                f"{ends}; {'; '.join(outcomes)}",
                kept,
                "" if kept else "see the figures: hand-over jobs of cuts are not in the paper's sum",
            )
        )
    return found
