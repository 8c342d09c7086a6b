"""Published runs as pipelines: parts of networks on stated engines, planned and simulated as a user's are.

Costs are those of the shipped descriptor; `measured` times enter as a profile of that board, as `socsched profile`
writes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import Platform
from socsched.planning.plan import Plan
from socsched.sim.simulate import run
from tools.verify.boards import networks

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """A stage: layers [first, end) of a network on an engine; `end` 0: to its last layer; `ms`: measured alone.

    Without a network it is known by its time only.  `queue`: frames that may wait for it; `after`: the part that starts
    it, absent: the one before it in its chain.
    """

    name: str
    network: str
    engine: str
    first: int = 0
    end: int = 0
    ms: float = 0.0
    queue: int = 2
    after: str = ""


def pipeline(
    name: str, chains: Mapping[str, Sequence[Part]], period_ms: Mapping[str, float], precision: str
) -> Pipeline:
    """Return chains of parts, each started by the frames of its own sensor."""
    sensors, stages, ways = [], [], []
    for chain, parts in chains.items():
        period = round(period_ms[chain] * MS)
        sensors.append(Sensor(f"{chain}-frames", "camera", period))
        before = f"{chain}-frames"
        for part in parts:
            params: dict[str, object] = {}
            if part.network:
                end = part.end or networks.built(part.network).end
                params = {"network": part.network, "first": part.first, "end": end}
            stages.append(
                Stage(
                    name=part.name,
                    title=part.name,
                    model="boards.network" if part.network else None,
                    after=(part.after or before,),
                    params=params,
                    precisions=(precision,),
                    queue=part.queue,
                    engines=(part.engine,),
                    assumed="as published",
                )
            )
            before = before if part.after else part.name
        path = (f"{chain}-frames", *(part.name for part in parts if not part.after))
        ways.append(Chain(chain, path, 1000 * period, None, assumed="no deadline is stated"))
    return Pipeline(name, name, tuple(sensors), tuple(stages), tuple(ways))


def profile(board: Platform, mode: str, precision: str, chains: Mapping[str, Sequence[Part]]) -> Profile:
    """Return the measured times of the parts that have one."""
    costs = [
        MeasuredCost(part.name, part.engine, mode, precision, 0, round(part.ms * MS), 0.05, 1)
        for parts in chains.values()
        for part in parts
        if part.ms
    ]
    return Profile(board.name, tuple(costs), "published")


def plan(
    chains: Mapping[str, Sequence[Part]],
    board: Platform,
    mode: str,
    period_ms: Mapping[str, float],
    precision: str = "fp16",
) -> Plan:
    """Return the plan of the chains on a board: every part on its engine, hand-overs and conversions as planned."""
    known = profile(board, mode, precision, chains)
    options = PlanOptions(profile=known, cuts=False, refine=False, explain=False, evaluations=None)
    return plan_with(pipeline("-".join(chains), chains, period_ms, precision), board, mode, options)


def latencies_ms(plan: Plan, chains: Mapping[str, Sequence[Part]], policy: str | None = None) -> dict[str, float]:
    """Return the time from the release of frame 0 to the end of each chain's last part."""
    horizon = max(sensor.period_ns for sensor in plan.sensors)
    trace = run(plan, horizon, policy=policy).trace
    assert trace is not None
    ends = {job.task: job.finish_ns for job in trace.jobs if job.frame == 0}
    return {chain: ends[parts[-1].name] / MS for chain, parts in chains.items()}


def rates(plan: Plan, seconds: float, policy: str | None = None) -> dict[str, float]:
    """Return the jobs of every task completed in a second."""
    done = run(plan, round(seconds * 1e9), policy=policy, record=False)
    counts = done.outcome.ints("done")
    return {task.name: count / seconds for task, count in zip(done.lowered.plan.tasks, counts, strict=False)}
