"""XSched (OSDI 2025): levels of preemption, shares, and a task that is urgent everywhere."""

from __future__ import annotations

from itertools import pairwise

from socsched.limits import LONGEST_NS
from socsched.planning.plan import Plan
from tools.literature.claims._plans import (
    SECOND,
    engine,
    jobs_done,
    kernels,
    mean_responses,
    plan,
    simulate,
    tail,
    task,
)
from tools.literature.claims.claim import Claim

PAPER = "OSDI 2025"
LEVELS = {
    "none": "np-xsched-hpf", "level 1, 8 in flight": "xsched-hpf:level=1:threshold=8",
    "level 1, 2 in flight": "xsched-hpf:level=1:threshold=2", "level 2": "xsched-hpf:level=2",
    "level 3": "xsched-hpf:level=3",
}  # fmt: skip
TWO = (
    "ResNet-152 as profiled on a GPU, a foreground client at 20 % and a background one that always has a request; 20 s"
)


def clients(preemption: str = "segment") -> Plan:
    """Return a foreground client at a fifth of the engine, and a background one in a closed loop, of one network."""
    network = kernels("resnet152")
    cost = sum(time for _, time in network)
    fore = task("fore", network, engine="gpu", period_ns=5 * cost + 777_777, priority=0, criticality="hard")
    back = task(
        "back", network, engine="gpu", period_ns=1, priority=1, criticality="soft", closed_by="back",
        deadline_ns=LONGEST_NS,
    )  # fmt: skip
    return plan([fore, back], [engine("gpu", preemption=preemption)])


def waiting() -> dict[str, tuple[float, float]]:
    """Return mean and p99 of the foreground's responses, over the time alone, by level."""
    alone = sum(time for _, time in kernels("resnet152"))
    found = {}
    for name, policy in LEVELS.items():
        done = simulate(clients(), policy, 20 * SECOND)
        found[name] = (mean_responses(done)[0] / alone, tail(done, 0, 990) / alone)
    return found


def share() -> float:
    """Return the foreground's share of the requests done by two clients that always have one, at 75 to 25."""
    network = kernels("resnet152")
    both = [
        task(
            name, network, engine="gpu", period_ns=1, priority=number, criticality=level, closed_by=name,
            deadline_ns=LONGEST_NS,
        )
        for number, (name, level) in enumerate((("fore", "hard"), ("back", "soft")))
    ]  # fmt: skip
    fore, back = jobs_done(simulate(plan(both, [engine("gpu")]), "xsched-share", 20 * SECOND))
    return fore / (fore + back)


def claims() -> list[Claim]:
    """Return XSched's claims with the results here."""
    found = waiting()
    tails = [tail for _, tail in found.values()]
    shown = ", ".join(f"{name} {tail:.3f}" for name, (_, tail) in found.items())
    falling = all(a >= b for a, b in pairwise(tails))
    part = share()
    return [
        Claim("XSched", PAPER, "the higher the level of preemption, the closer is the urgent task's p99 to that alone",
              TWO, "native 1.6 to 2.3 times alone, XSched 1.02 to 1.30 (raw artifact: up to 1.67)", shown,
              falling and found["level 2"][1] < 1.1 < found["none"][1],
              "" if falling else "level 3 pays 32 us for each interruption, more than the rest of a kernel takes here: "
              "kernels of ResNet-152 last 10 to 240 us"),
        Claim("XSched", PAPER, "bandwidth is divided as the weights say",
              "two clients of ResNet-152 that always have a request, 75 to 25, sampled every 2 ms; 20 s",
              "109.8 to 37.1 requests/s, 74.7 %", f"{part:.1%} of requests", abs(part - 0.75) < 0.02,
              "" if abs(part - 0.75) < 0.02 else "ends of segments are coarse"),
    ]  # fmt: skip
