"""Jedi: throughput of pipelined frames against one engine alone."""

from __future__ import annotations

from tools.literature.claims._networks import pipeline
from tools.literature.claims._runs import XAVIER, chains_ms, planned
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "Jedi", "Jeong et al., ACM TECS 2022"


def claims() -> list[Claim]:
    """Return the gain in throughput over the GPU alone, and whether the simulation reaches that rate."""
    found = []
    for network in ("resnet50", "vgg16"):
        what = pipeline(network, engines=("gpu", "dla"))
        facts = planned("jedi", what, None, XAVIER).solver.facts
        gain = facts["alone_ns"] / facts["interval_ns"]
        # A period a little above the interval: the simulator must keep up, the GPU alone does not.
        period = facts["interval_ns"] / 1e6 * 1.1
        fast = planned("jedi", pipeline(network, period_ms=period, engines=("gpu", "dla")), None, XAVIER)
        ms, later = (max(chains_ms(fast, seconds).values()) for seconds in (1.0, 2.0))
        slow = "the DLAs are too slow by the platform's figures to take over a worthwhile stretch"
        why = slow if gain < 1.0 else "simulated frames pile up at this rate" if later > 1.1 * ms else ""
        found.append(
            Claim(
                SYSTEM,
                PAPER,
                "frames pipelined over GPU and DLAs have a higher throughput than the GPU alone",
                f"{network} on AGX Xavier by roofline, fp16; simulated with frames every {period:.2f} ms",
                "up to 1.32x over a genetic algorithm's pipeline",
                f"{1e9 / facts['alone_ns']:.0f} to {1e9 / facts['interval_ns']:.0f} frames/s, {gain:.2f}x; "
                f"latency {facts['alone_ns'] / 1e6:.2f} to {ms:.2f} ms",
                not why,
                why,
            )
        )
    return found
