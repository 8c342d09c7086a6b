"""Operators of a stage that an engine's vendor toolchain would reject, reported before anything is built."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.descriptor.platform import Engine
from socsched.errors import UsageError
from socsched.graph.operators import StageWork
from socsched.graph.rules import decide


@dataclass(frozen=True, slots=True)
class Verdict:
    """A stage's operators checked against an engine's rules: fallbacks, and conditions for the rest.

    `fallbacks` are (operator, reason, source); `promoted` lists the operators that run in a precision other than the
    requested one, as (operator, precision).
    """

    fallbacks: tuple[tuple[str, str, str], ...]
    conditions: tuple[tuple[str, str], ...]
    promoted: tuple[tuple[str, str], ...]


def judge(work: StageWork, engine: Engine) -> Verdict:
    """Return the verdict of `engine`'s rules on the operators of `work`."""
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
    """Return the verdict on `work`; UsageError naming every operator that would fall back, with reason and source."""
    verdict = judge(work, engine)
    if not verdict.fallbacks:
        return verdict
    lines = [f"  {name}: {why}" + (f" [{source}]" if source else "") for name, why, source in verdict.fallbacks]
    count = f"{len(lines)} of {len(work.operators)} operators"
    raise UsageError(
        f"stage {work.stage!r} would not run entirely on {engine.id} in {work.precision}; {count} would fall back:\n"
        + "\n".join(lines),
        "place the stage on another engine, or export a part without them (--part)",
    )
