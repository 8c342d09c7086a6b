"""What of a network an accelerator leaves to other engines: which unit runs it, and how many operators go elsewhere.

Vendors' runtimes divide a network at the operators that their compiler refuses; these run on the CPU.  An operator is
counted as the runtime's profiler does: one for each of the network's operators, whatever runs fused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from socsched.descriptor.platform import Engine
from socsched.graph.operators import StageWork
from socsched.graph.rules import decide


@dataclass(frozen=True, slots=True)
class FallBack:
    """How an engine takes a network: the kind of engine that runs most of its operators, and what it refuses.

    `operators` counts those of the network, `elsewhere` those that the engine refuses, `reasons` the commonest
    objections with their counts; `share`: of the arithmetic, refused.
    """

    unit: str
    operators: int
    elsewhere: int
    share: float
    reasons: tuple[tuple[str, int], ...] = ()


def fall_back(work: StageWork, engine: Engine, program: str = "") -> FallBack:
    """Return what of a network falls back from an engine to the CPU, by the engine's operator rules.

    `program`: what brings the user's file to the engine, where that is another than our hand-over.
    """
    refused: Counter[str] = Counter()
    flops = 0
    for operator in work.operators:
        decision = decide(operator, engine, program)
        if not decision.runs:
            refused[decision.reasons[0]] += 1
            flops += operator.flops
    share, count, left = flops / max(work.flops, 1), len(work.operators), sum(refused.values())
    unit = "cpu" if 2 * left > count else engine.kind
    return FallBack(unit, count, left, share, tuple(refused.most_common(3)))
