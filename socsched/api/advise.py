"""Which of some boards to buy: each planned for the same pipelines, and the answers side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from socsched.api.loading import load_pipeline, load_platform
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.descriptor.catalog import HOST, platform_names
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import CompileError
from socsched.graph.rules import fall_back
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.progress import tell

Answer = Literal["yes", "likely", "open", "no"]
DRIFT = "two releases of one vendor's compiler differ by 0.24 (p10) to 1.7 (p90) on the same board (SA8775P, AI Hub)"
"""The noise floor of any prediction for a vendor's accelerator."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The answer for a pipeline on a board in its best mode.

    `answer`: "yes" if the deadlines hold with every cost at the upper end of its interval, "likely" if they hold with
    the stated costs, "no" if they cannot hold, else "open".  `latency_ns` of the longest chain with its interval;
    `power_mw` expected; `places`: stage -> engine and precision; `falls_back`: stage and engine -> operators that the
    engine would leave to the CPU, of how many, and why; `evidence`: the weakest figure on the critical path;
    `measure`: the one measurement that would settle most.
    """

    pipeline: str
    board: str
    mode: str
    answer: Answer
    latency_ns: int | None
    low_ns: int | None
    high_ns: int | None
    deadline_ns: int
    power_mw: float | None
    places: tuple[tuple[str, str], ...]
    falls_back: tuple[tuple[str, str], ...]
    evidence: str
    measure: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class AdviseOptions:
    """What is asked: boards (empty: all described), a deadline (ns) and data types that replace those of networks."""

    boards: tuple[str, ...] = ()
    deadline_ns: int | None = None
    precisions: tuple[str, ...] = ()
    mode: str | None = None


def advise(pipelines: Sequence[str | Path | Pipeline], options: AdviseOptions = AdviseOptions()) -> list[Advice]:
    """Return an answer for every pipeline (a name, a file or a network) and board, the surest and least power first.

    A board is planned in the modes that `plan` would try.  Raises UsageError for unknown names, DescriptorError for
    files with faults; a network that no engine takes is an answer.
    """
    names = options.boards or tuple(name for name in platform_names() if name != HOST)
    asked = [_asked(load_pipeline(pipeline), options) for pipeline in pipelines]
    found = []
    for number, name in enumerate(names):
        tell("boards", number, len(names), "", name)
        board = load_platform(name)
        found += [_advice(pipeline, board, options.mode) for pipeline in asked]
    order = ("yes", "likely", "open", "no")
    return sorted(found, key=lambda one: (one.pipeline, order.index(one.answer), one.power_mw or 1e9, one.board))


def _asked(pipeline: Pipeline, options: AdviseOptions) -> Pipeline:
    """Return a pipeline with the deadline and the data types that were asked for."""
    chains, stages = pipeline.chains, pipeline.stages
    if options.deadline_ns is not None:
        chains = tuple(replace(chain, deadline_ns=options.deadline_ns) for chain in chains)
    if options.precisions:
        stages = tuple(replace(s, precisions=options.precisions) if "file" in s.params else s for s in stages)
    return replace(pipeline, chains=chains, stages=stages)


def _advice(pipeline: Pipeline, board: Platform, mode: str | None) -> Advice:
    falls_back = tuple(_fallen_back(pipeline, board))
    plan = plan_with(pipeline, board, mode, PlanOptions(refine=False))
    places = tuple((task.name, f"{task.engine} {task.precision}".strip()) for task in plan.tasks)
    chain = max(plan.chains, key=lambda one: one.expected_ns, default=None)
    deadline = min((one.deadline_ns for one in pipeline.chains), default=0)
    if chain is None or not plan.tasks:
        why = next((violation.requirement for violation in plan.violations), plan.verdict)
        return Advice(
            pipeline.name, board.name, plan.mode, "no", None, None, None, deadline, None, (), falls_back, "", "", why
        )
    low, high = _interval(plan, chain.path, chain.expected_ns)
    shares = plan.provenance.critical_path or {}
    # The measurement that would narrow the answer most: else that of the task with the largest uncertain time.
    widest = max(plan.tasks, key=lambda one: one.cost_ns * one.error)
    settle = f"{widest.name} on {widest.engine} in {widest.precision}"
    if measure := plan.uncertainty.measure:
        settle = f"{measure.stage} on {measure.engine} in {measure.precision}: {measure.why}"
    return Advice(
        pipeline.name,
        board.name,
        plan.mode,
        _answer(plan, low, chain.deadline_ns),
        round(chain.expected_ns),
        low,
        high,
        chain.deadline_ns,
        plan.power.expected_mw,
        places,
        falls_back,
        max(shares, key=lambda kind: shares[kind], default=""),
        settle,
        "" if plan.verdict == "feasible" else next((one.requirement for one in plan.violations), plan.verdict),
    )


def _answer(plan: Plan, low: int, deadline: int) -> Answer:
    if plan.verdict == "feasible":
        return "yes" if plan.uncertainty.upper == "feasible" else "likely"
    return "no" if plan.verdict == "infeasible" and low > deadline else "open"


def _interval(plan: Plan, path: Sequence[str], expected: float) -> tuple[int, int]:
    """Return the ends of a chain's latency: its tasks erring alike, which is the widest."""
    tasks = [task for task in plan.tasks if task.name in path]
    down = sum(task.cost_ns * task.error / (1 + task.error) for task in tasks)
    return max(round(expected - down), 0), round(expected + sum(task.cost_ns * task.error for task in tasks))


def _fallen_back(pipeline: Pipeline, board: Platform) -> list[tuple[str, str]]:
    """Return what accelerators would leave to the CPU of every stage with a network."""
    reasons = []
    engines = {e.operators.name: e for e in board.engines if e.operators.name}  # equal engines take the same
    for stage in pipeline.stages:
        for engine in engines.values():
            precision = next((one for one in stage.precisions if one in engine.precisions), None)
            if stage.model is None or precision is None:
                continue
            try:
                work = stage_work(stage, precision)
            except CompileError as error:
                reasons.append((f"{stage.name} on {engine.id}", str(error)))
                continue
            left = fall_back(work, engine) if work.passes else None
            if left and left.elsewhere:
                reason = left.reasons[0][0]
                reasons.append(
                    (f"{stage.name} on {engine.id}", f"{left.elsewhere} of {left.operators} operators: {reason}")
                )
    return reasons
