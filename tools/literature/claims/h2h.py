"""H2H: its last step against its first, and against Herald."""

from __future__ import annotations

from tools.literature.claims._networks import pipeline
from tools.literature.claims._runs import XAVIER, makespan_ms, planned
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "H2H", "Zhang et al., DAC 2022"


def claims() -> list[Claim]:
    """Return the gain of locality over computation-prioritised mapping, and the ordering against Herald."""
    found = []
    for mix in (("resnet50", "vgg16"), ("resnet18", "resnet50", "resnet101")):
        what = pipeline(*mix, engines=("gpu", "dla"))
        steps = planned("h2h", what, None, XAVIER).solver.facts["steps_ns"]
        gain = steps[0] / steps[-1]
        where = f"{' + '.join(mix)} on GPU and DLAs of AGX Xavier by roofline, fp16"
        steps_ms = " ".join(f"{step / 1e6:.2f}" for step in steps)
        found.append(
            Claim(
                SYSTEM,
                PAPER,
                "steps 2 to 4 lower the latency that computation-prioritised mapping leaves",
                where,
                "15 to 74 % less latency",
                f"{steps_ms} ms after each step, {1 - 1 / gain:.0%} less",
                gain >= 1.0,
                "little of it: engines share the DRAM here, the paper's accelerators exchange data over links"
                if gain < 1.15
                else "",
            )
        )
        ms = {name: makespan_ms(name, what, None, XAVIER) for name in ("h2h", "herald", "socsched")}
        holds = ms["h2h"] <= ms["herald"] * 1.001
        found.append(
            Claim(
                SYSTEM,
                PAPER,
                "faster than Herald, which knows no hand-overs",
                f"{where}, simulated",
                "16.55 against 19.73 ms (VGG19 + ResNet152, arXiv 2506.01377, table III)",
                f"{ms['h2h']:.2f} against {ms['herald']:.2f} ms; ours {ms['socsched']:.2f} ms",
                holds,
                "" if holds else "step 1 puts all on the GPU and step 4 moves layers to engines of neighbours only",
            )
        )
    return found
