"""The program that a cost stands for: the runtimes of an engine, and the time of one derived from that of another.

Costs of an engine are those of the first runtime it declares; the other ones state their ratio to it, with an error.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.cost.conversion import is_host_code
from socsched.cost.figures import error_of, weakest
from socsched.cost.roofline import Estimate
from socsched.descriptor.fit import Fit
from socsched.descriptor.platform import NATIVE, OWN, Engine, Figure, Runtime
from socsched.graph.operators import Operator, StageWork
from socsched.graph.passes import pass_class


def offered(engine: Engine, work: StageWork | None) -> tuple[Runtime, ...]:
    """Return the runtimes to choose from for a stage; a nameless one for work that no runtime computes.

    Empty where the engine declares runtimes, and none of them can compute the stage.
    """
    if work is None:
        return (Runtime(""),)
    if is_host_code(work):
        return (Runtime(NATIVE),)
    if not engine.runtimes:
        rules, simulated = engine.operators.runtime, engine.target.get("kind") == "simulated"
        return (Runtime(rules.lower() if rules else "" if simulated else OWN),)
    kinds = {operator.kind for operator in work.operators}
    return tuple(
        runtime
        for runtime in engine.runtimes
        if kinds.isdisjoint(runtime.without) and (not runtime.precisions or work.precision in runtime.precisions)
    )


def ratio_of(runtime: Runtime, work: StageWork | None) -> Figure | None:
    """Return the time of a stage over the one that the engine's costs state, None for the runtime they stand for."""
    if runtime.ratio is None or work is None:
        return None
    tuned = not runtime.tuned or work.precision in runtime.tuned
    kernels = not runtime.kernels or all(_kind(operator) in runtime.kernels for operator in work.operators)
    return runtime.ratio if runtime.general is None or (tuned and kernels) else runtime.general


def never_faster(runtime: Runtime) -> bool:
    """Return whether no network takes less time than the engine's costs state."""
    return runtime.ratio is not None and all(f.value >= 1 for f in (runtime.ratio, runtime.general) if f)


def under(found: Estimate, runtime: Runtime, work: StageWork | None, fit: Fit | None) -> Estimate:
    """Return an estimate for the first runtime of an engine as one for another.

    Passes of classes that no measurement of the first runtime covers are no rate of its own, and keep their time.
    """
    ratio = ratio_of(runtime, work)
    if ratio is None or work is None:
        return found
    each = len(found.segments) == len(work.passes)
    scaled = [not each or fit is None or pass_class(one) in fit.classes for one in work.passes] if each else []
    scaled = scaled or [True] * len(found.segments)
    made = tuple(
        replace(one, time_ns=max(round(one.time_ns * ratio.value), one.fixed_ns, 1)) if known else one
        for one, known in zip(found.segments, scaled, strict=True)
    )
    total = sum(one.time_ns for one in made)
    share = sum(one.time_ns for one, known in zip(made, scaled, strict=True) if known) / max(total, 1)
    if not share:
        return found
    kind = weakest([found.provenance, ratio.kind])
    source = f"{found.source}, times {ratio.value:g} for {runtime.name}"
    return Estimate(made, kind, source, found.error + share * error_of(ratio), found.lower)


def _kind(operator: Operator) -> str:
    """Return the kind of an operator; convolutions in groups are one of their own."""
    return "grouped" if operator.attrs.get("groups", 1) > 1 else operator.kind
