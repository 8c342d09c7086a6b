"""Interference-aware placement: the predictor's error, and degradation against least-loaded placement."""

from __future__ import annotations

from dataclasses import replace

from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.platform import Platform
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.planning.workload import Workload
from socsched_literature.planners.interference import measure_slowdown, train
from tools.literature.claims._networks import pipeline
from tools.literature.claims._runs import XAVIER, chains_ms
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "Interference-aware", "Mendoza et al., EuroMLSys 2021"
MIX = ("resnet18", "resnet50", "squeezenet", "resnet101")


def claims() -> list[Claim]:
    """Return the predictor's error on co-runs it has not seen, and what placement gains where memory is scarce."""
    board, what = _scarce(0.25), pipeline(*MIX, engines=("gpu", "dla"))
    model = CostModel(board, board.mode("MAXN"), stage_work)
    workload = Workload.of(task_graph(what), model, "edf")
    costs = [cost for found in workload.options().values() for cost in found]
    predictor = train(costs, workload.contention(), model.dram, 600, 0)
    pairs = [(me, [a, b]) for me in costs for a in costs for b in costs if len({me.engine, a.engine, b.engine}) == 3]
    errors = [
        abs(predictor.degradation(me, others, model.dram) / measure_slowdown(me, others, workload.contention()) - 1)
        for me, others in pairs
    ]
    within = sum(errors) / len(errors)
    ms = {}
    for label, weight in (("aware", "1.0"), ("least loaded", "0.0")):
        plan = make_plan(planner("interference"), what, board, "MAXN", work=stage_work, options={"weight": weight})
        ms[label] = sum(chains_ms(plan).values())
    gain = ms["least loaded"] / ms["aware"]
    where = f"{' + '.join(MIX)} on AGX Xavier with a quarter of its memory bandwidth, fp16"
    return [
        Claim(
            SYSTEM,
            PAPER,
            "one model predicts the degradation of any co-location",
            f"{where}; {len(pairs)} triples, trained on 600 drawn co-runs",
            "accurate enough to place by",
            f"mean error {within:.1%}, largest {max(errors):.0%}",
            within < 0.1,
            "" if within < 0.1 else "degradation by max-min shares has a kink that a linear model rounds off",
        ),
        Claim(
            SYSTEM,
            PAPER,
            "placement by predicted degradation suffers less than least-loaded placement",
            f"{where}, simulated",
            "lower degradation",
            f"sum of latencies {ms['least loaded']:.2f} to {ms['aware']:.2f} ms, {gain:.2f}x",
            gain >= 1.0,
            "the same placement: engines differ so much in speed that degradation decides nothing"
            if abs(gain - 1) < 0.005
            else ("" if gain >= 1 else "a single stage's degradation is predicted, not what it does to the others"),
        ),
    ]


def _scarce(part: float) -> Platform:
    """Return AGX Xavier with a part of its memory bandwidth: with all of it its engines hardly meet."""
    board = get_platform(XAVIER)
    dram = replace(board.dram, achievable=replace(board.dram.achievable, value=board.dram.achievable.value * part))
    return replace(board, dram=dram)
