"""Stages that no engine can run: the plan that says so, with the reasons and no tasks, and the operators refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from socsched.cost.model import CostModel, WorkOf
from socsched.descriptor.catalog import input_hashes
from socsched.descriptor.limits import Objective
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Platform, contention_of
from socsched.descriptor.source import read
from socsched.descriptor.validation import Tree
from socsched.errors import CompileError
from socsched.graph.operators import StageWork
from socsched.graph.rules import decide
from socsched.graph.taskgraph import TaskGraph
from socsched.models.parts import PART
from socsched.models.registry import get_model
from socsched.planning.cutting.pipelines import cut_unmappable
from socsched.planning.plan import (
    BOUND,
    SCHEMA_VERSION,
    Bandwidth,
    Necessity,
    Plan,
    Power,
    Proof,
    Provenance,
    SearchReport,
    Violation,
)
from socsched.planning.workload import Workload


def unmappable_stages(graph: TaskGraph, model: CostModel) -> list[str]:
    """Return the stages no engine can run in the model's mode."""
    return [name for name in graph.order if not model.candidates(graph.stage(name))]


def no_engine(graph: TaskGraph, model: CostModel, cuts: bool = True) -> tuple[Necessity, ...]:
    """Return the necessities of stages that nothing in a mode can run, whole or, with `cuts`, in parts."""
    return tuple(
        Necessity("no engine", f"an engine for stage {name}", 1, 0, "engines", ((name, 1),))
        for name in unmappable_stages(graph, model)
        if _refused(graph.stage(name), model, cuts)
    )


def _refused(stage: Stage, model: CostModel, cuts: bool) -> bool:
    """Return whether rules of the engines refuse a stage without candidates, however it may be cut.

    A limit of this machine, such as a missing compiler, is no rule, and parts of a network may be cut elsewhere.
    """
    works: dict[str, StageWork | None] = {}
    for precision in stage.precisions:
        try:
            works[precision] = model.work_of(stage, precision)
        except CompileError:
            return False
    if PART in stage.params:
        return False
    if not cuts or stage.model is None or get_model(stage.model, stage.params).network is None:
        return True
    able = [
        engine
        for engine in model.platform.engines
        if model.mode.engines[engine.id].units and (not stage.engines or {engine.id, engine.kind} & set(stage.engines))
    ]
    refused: list[set[str]] = []
    for precision, work in works.items():
        engines = [engine for engine in able if precision in engine.precisions]
        operators = work.operators if work else ()
        refused.append({one.name for one in operators if all(decide(one, engine).reasons for engine in engines)})
    return bool(refused and set.intersection(*refused))


# A verdict, not an exception: a sweep over boards would have to catch it, and a user wants the reason of each engine.
def unplaceable(
    graph: TaskGraph, model: CostModel, policy: str, goals: Sequence[Objective], necessities: tuple[Necessity, ...]
) -> Plan:
    """Return a plan that names every stage without an engine, and why each engine refuses it.

    It is infeasible if `necessities` show that rules refuse a stage, in every mode; undecided if cutting may help, or a
    limit of this machine is in the way.
    """
    found = tuple(
        Violation(f"an engine for stage {name}", 1, 0, 1, "engines", ((name, 1),), tuple(_levers(name, graph, model)))
        for name in unmappable_stages(graph, model)
    )
    stages = ", ".join(name for one in necessities for name, _ in one.terms)
    proof = Proof(BOUND, f"no engine can run {stages}", necessities) if necessities else None
    report = SearchReport(status="no engine for some stages", proof=proof)
    return replace(without_tasks(Workload.of(graph, model, policy), goals, report), violations=found)


def without_tasks(workload: Workload, goals: Sequence[Objective], report: SearchReport) -> Plan:
    """Return a plan without tasks: infeasible if `report` holds a proof, else undecided."""
    model, graph = workload.model, workload.graph
    cap = model.mode.cap_mw
    return Plan(
        platform=model.platform.name,
        mode=model.mode.name,
        pipeline=graph.pipeline.name,
        verdict="infeasible" if report.proof else "undecided",
        policy=workload.policy,
        engines=workload.engines(),
        sensors=workload.sensors(),
        tasks=(),
        transitions=(),
        chains=(),
        violations=(),
        power=Power(0, round(cap.value) if cap else None),
        bandwidth=Bandwidth(0.0, round(model.dram / 1e9, 6)),
        solver=replace(report, name="none", objective=tuple(goals), evaluated=0),
        inputs=input_hashes(model.platform, graph.pipeline),
        base_mw=round(model.mode.base_mw.value),
        dram_bandwidth=int(model.dram),
        dram_picojoule_per_byte=float(model.platform.dram.picojoule_per_byte.value),
        contention=contention_of(model.platform),
        provenance=Provenance({}, 0.0),
        tool={"name": "socsched", "schema_version": SCHEMA_VERSION},
    )


def _levers(name: str, graph: TaskGraph, model: CostModel) -> Iterator[str]:
    """Yield the modes in which the stage has an engine, the engines' reasons for refusing it, and possible remedies."""
    stage = graph.stage(name)
    for mode in model.platform.modes:
        if mode.name != model.mode.name:
            engines = dict.fromkeys(cost.engine for cost in model.in_mode(mode).candidates(stage))
            if engines:
                yield f"mode {mode.name}, where {', '.join(engines)} can run it"
    against: dict[str, list[str]] = {}
    for refusal in model.refused(stage):
        against.setdefault(f"{refusal.precision}: {refusal.reason}", []).append(refusal.engine)
    for reason, refusing in against.items():
        yield f"not on {', '.join(refusing)} in {reason}"
    if not stage.modelled:
        yield "add a known execution time (costs) for an engine of this platform or one of the same kind elsewhere"


@dataclass(frozen=True, slots=True)
class RefusedOperator:
    """Operators of a stage that engines with operator rules refuse in a data type, with the sources of the rules."""

    stage: str
    engines: tuple[str, ...]
    precision: str
    operators: tuple[str, ...]
    reason: str
    sources: tuple[str, ...]


def refused_operators(pipeline: Pipeline, platform: Platform, work: WorkOf) -> list[RefusedOperator]:
    """Return the operators of a pipeline that engines with operator rules refuse, a row per stage, type and reason.

    Equal engines share a row.  Only data types common to stage and engine are checked, and stages restricted to named
    engines are checked on those only.
    """
    found: dict[tuple[str, str, str, tuple[str, ...]], tuple[dict[str, None], dict[str, None]]] = {}
    for stage in pipeline.stages:
        for engine in platform.engines:
            named = not stage.engines or {engine.id, engine.kind} & set(stage.engines)
            if engine.operators.allowed is None or stage.model is None or not named:
                continue
            for precision in (p for p in stage.precisions if p in engine.precisions):
                for operator in work(stage, precision).operators:
                    decision = decide(operator, engine)
                    for reason in decision.reasons:
                        key = (stage.name, precision, reason, decision.sources)
                        engines, operators = found.setdefault(key, ({}, {}))
                        engines[engine.id] = operators[operator.name] = None
    return [
        RefusedOperator(stage, tuple(engines), precision, tuple(operators), reason, sources)
        for (stage, precision, reason, sources), (engines, operators) in found.items()
    ]


def require_engines(pipeline: Pipeline, platform: Platform, work: WorkOf) -> None:
    """Raise DescriptorError for every stage that no engine can run in any mode, even in parts, with their reasons."""
    document = read(pipeline.file)
    models = [CostModel(platform, mode, work) for mode in platform.modes]
    left = {stage.name for stage in cut_unmappable(pipeline, models).pipeline.stages}
    for stage in pipeline.stages:
        if stage.name not in left or any(model.candidates(stage) for model in models):
            continue
        against = dict.fromkeys(str(r) for model in models for r in model.refused(stage) if " off in " not in str(r))
        reasons = "; ".join(against)
        Tree(document, ("stages", stage.name), None).report(
            f"no engine of {platform.name} can run this: {reasons}", key=True
        )
    document.check()
