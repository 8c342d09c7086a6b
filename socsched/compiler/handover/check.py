"""What of a stage an engine's vendor toolchain would not take, told before anything is built."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.descriptor.platform import Engine
from socsched.errors import UsageError
from socsched.graph.operators import StageWork
from socsched.graph.rules import decide


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every operator of a stage under an engine's rules: what falls back, under which conditions the rest runs.

    `fallbacks` are (operator, why, who says so); `promoted` the operators that run in another precision than asked for,
    as (operator, precision).
    """

    fallbacks: tuple[tuple[str, str, str], ...]
    conditions: tuple[tuple[str, str], ...]
    promoted: tuple[tuple[str, str], ...]


def judge(work: StageWork, engine: Engine) -> Verdict:
    """Return what `engine` makes of the operators of `work`."""
    fallbacks, conditions, promoted = [], [], []
    for operator in work.operators:
        decision = decide(operator, engine)
        if not decision.runs:
            fallbacks.append((operator.name, "; ".join(decision.reasons), "; ".join(decision.sources)))
            continue
        conditions += [(operator.name, condition) for condition in decision.conditions]
        if decision.dtype != operator.dtype:
            promoted.append((operator.name, decision.dtype))
    return Verdict(tuple(fallbacks), tuple(conditions), tuple(promoted))


def require_all(work: StageWork, engine: Engine) -> Verdict:
    """Return the verdict on `work`; UsageError naming every operator that would fall back, why and who says so."""
    verdict = judge(work, engine)
    if not verdict.fallbacks:
        return verdict
    lines = [f"  {name}: {why}" + (f" [{source}]" if source else "") for name, why, source in verdict.fallbacks]
    count = f"{len(lines)} of {len(work.operators)} operators"
    raise UsageError(
        f"stage {work.stage!r} would not run whole on {engine.id} in {work.precision}; {count} would fall back:\n"
        + "\n".join(lines),
        "place the stage on another engine, or hand over a part without them (--part)",
    )
