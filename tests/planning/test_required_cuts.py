"""A network that no engine takes whole is planned in parts, on the engines that take these."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import socsched as ss
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import DescriptorError
from socsched.lint.check import NO_ENGINE, Place, check_pipeline
from socsched.models.parts import uncut
from socsched.models.work import stage_work
from socsched.planning.cost_cache import CostCache
from socsched.planning.feasibility.infeasible_plan import require_engines
from socsched.planning.plan import Plan, Task
from tests.models.onnx_files import Builder

ORIN = "jetson-agx-orin-64gb"


def board() -> Platform:
    """Return an Orin on which only DLAs run convolutions; they refuse a global average pool."""

    def changed(engine: Engine) -> Engine:
        if engine.kind == "dla":
            return engine
        known = get_platform(ORIN).engine("dla0").operators.allowed or {}
        kinds = dict.fromkeys(("global_avg_pool", "reduce_mean", "flatten", "reshape"), known["relu"])
        return replace(engine, operators=replace(engine.operators, allowed=kinds, host_code=False))

    orin = get_platform(ORIN)
    return replace(orin, engines=tuple(map(changed, orin.engines)))


@pytest.fixture
def network(tmp_path: Path) -> Pipeline:
    net = Builder()
    pooled = net.op("GlobalAveragePool", net.conv(net.conv("image", 3, 16), 16, 32))
    return get_pipeline(str(net.save(tmp_path / "net.onnx", [1, 3, 32, 32], [net.conv(pooled, 32, 8, 1, norm=False)])))


def test_a_network_that_no_engine_takes_whole_is_planned_in_parts(network: Pipeline) -> None:
    model = CostCache(board(), stage_work).model(board().mode("MAXN"))
    assert not model.candidates(network.stage("network")), "else there is nothing to show here"
    plan = ss.plan(network, board(), "MAXN")
    assert plan.verdict == "feasible"
    assert all(uncut(task.name, task.params) == "network" for task in stages(plan))
    assert {"dla0"} < {task.engine for task in stages(plan)}
    assert (plan.solver.notes or {})["network"].startswith("no engine takes it whole: cut after ")
    assert plan.solver.bound is not None and plan.solver.bound <= sum(task.cost_ns for task in stages(plan))


def test_where_it_must_be_cut_proves_nothing_about_other_cuts(network: Pipeline) -> None:
    plan = ss.plan(network, board(), "MAXN")
    chain = replace(network.chains[0], deadline_ns=max(task.cost_ns for task in stages(plan)))
    late = ss.plan(replace(network, chains=(chain,)), board(), "MAXN", solver="heft")
    assert late.verdict == "undecided" and late.violations and late.solver.proof is None
    assert [gap.requirement for gap in late.solver.open or ()] == [item.requirement for item in late.violations]
    assert [line.partition(",")[0].partition(":")[0] for line in late.solver.decide or ()] == ["an exact search"]


def test_without_cuts_no_engine_is_left(network: Pipeline) -> None:
    plan = ss.plan(network, board(), "MAXN", cuts=False)
    assert plan.verdict == "infeasible" and not plan.tasks
    assert plan.violations[0].requirement == "an engine for stage network"


def test_operators_that_no_engine_runs_leave_it_infeasible(network: Pipeline) -> None:
    without = replace(board(), engines=tuple(engine for engine in board().engines if engine.kind != "dla"))
    plan = ss.plan(network, without, "MAXN")
    assert plan.verdict == "infeasible" and not plan.tasks


def test_lint_warns_of_it_and_the_check_of_engines_accepts_it(network: Pipeline, tmp_path: Path) -> None:
    at = lambda _: Place("net.onnx", 1, 1)  # noqa: E731
    (found,) = [d for d in check_pipeline(network, board(), (), at) if d.rule == NO_ENGINE]
    assert found.level == "warning" and "plans cut it between engines" in found.message
    (tmp_path / "net.yaml").write_text("stages:\n  network: {}\n")
    network = replace(network, file=str(tmp_path / "net.yaml"))
    require_engines(network, board(), stage_work)
    pinned = replace(network, stages=tuple(replace(stage, engines=("dla",)) for stage in network.stages))
    (found,) = [d for d in check_pipeline(pinned, board(), (), at) if d.rule == NO_ENGINE]
    assert found.level == "error"
    with pytest.raises(DescriptorError, match=r"net\.yaml:2:3: stages\.network: no engine"):
        require_engines(pinned, board(), stage_work)


def stages(plan: Plan) -> list[Task]:
    return [task for task in plan.tasks if task.kind == "stage"]
