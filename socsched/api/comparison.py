"""Comparison of planners: their plans for one pipeline and platform, and the simulation of each plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.errors import SocschedError, UsageError
from socsched.planning.pareto import Point, mark
from socsched.planning.plan import Plan
from socsched.planning.planners import planner_names
from socsched.planning.search import steady_ns
from socsched.sim.simulate import run
from socsched.trace.metrics import result

OURS = "socsched"
"""Name of the built-in planner in the comparison."""
Make = Callable[[str, Mapping[str, str]], Plan]
"""A function that returns the plan of a planner (or of `OURS`), given options as text."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a planner: its plan and simulation, or the reason why it does not cover the pipeline.

    `latency_ns`: sum of the mean simulated responses of all chains; `last_ns`: the longest of them; `bound_ns`: sum of
    their bounds, None if a chain has no bound; `worst_ns`: longest response by chain; `lost`: frames missed, dropped
    or never finished; `energy_mj`: energy of the module in `round_ns`; `seconds`: planning only.
    """

    planner: str
    options: Mapping[str, str]
    seconds: float
    plan: Plan | None = None
    refusal: str = ""
    latency_ns: int = 0
    last_ns: int = 0
    bound_ns: int | None = None
    worst_ns: Mapping[str, int] = field(default_factory=dict)
    lost: int = 0
    frames: int = 0
    power_mw: int = 0
    energy_mj: float = 0.0
    round_ns: int = 0
    on_front: bool = False

    @property
    def name(self) -> str:
        """Return the name with the options that were set."""
        set_ = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.planner}:{set_}" if set_ else self.planner


def select_planners(texts: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the planners given as NAME or NAME:OPTION=VALUE,...; without any, all of them and `OURS`."""
    planners = []
    for text in texts or (OURS, *planner_names()):
        name, _, rest = text.partition(":")
        pairs = [pair.partition("=") for pair in rest.split(",") if pair]
        if any(not equals for _, equals, _ in pairs):
            raise UsageError(f"{text}: expected NAME:OPTION=VALUE,...")
        planners.append((name.strip(), {key: value for key, _, value in pairs}))
    for name, _ in planners:
        if name not in (OURS, *planner_names()):
            raise UsageError(f"no planner {name!r}", f"{OURS}, or one of {', '.join(planner_names())}")
    return planners


def compare_planners(planners: Sequence[tuple[str, Mapping[str, str]]], make: Make) -> list[Outcome]:
    """Return the outcome of every planner, in the given order; pipelines not covered are reported, not raised."""
    outcomes = []
    for name, options in planners:
        started = time.monotonic()
        try:
            plan = make(name, options)
        except SocschedError as error:
            outcomes.append(Outcome(name, options, time.monotonic() - started, refusal=str(error)))
            continue
        outcomes.append(_simulated(name, options, plan, time.monotonic() - started))
    return mark_front(outcomes)


def _simulated(name: str, options: Mapping[str, str], plan: Plan, seconds: float) -> Outcome:
    if not plan.tasks:
        return Outcome(name, options, seconds, plan)
    length = steady_ns(plan)
    trace = run(plan, length).trace
    assert trace is not None
    figures = result(trace, plan)
    chains = figures["chains"]
    means = [round(each["response_time_ns"]["mean"] or 0) for each in chains.values()]
    bounds = [chain.bound_ns for chain in plan.chains]
    periods = {sensor.name: sensor.period_ns for sensor in plan.sensors}
    periods |= {task.name: task.period_ns for task in plan.tasks}
    round_ns = max((periods[c.path[0]] for c in plan.chains if c.path[0] in periods), default=10**9)
    # Use the planned value where the trace has no such counter.
    power = round(figures["power_mw"]["mean"] or plan.power.expected_mw or 0)
    return Outcome(
        planner=name,
        options=options,
        seconds=seconds,
        plan=plan,
        latency_ns=sum(means),
        last_ns=max(means, default=0),
        bound_ns=None if None in bounds else sum(bound for bound in bounds if bound is not None),
        worst_ns={chain: each["response_time_ns"]["max"] or 0 for chain, each in chains.items()},
        lost=sum(each["missed"] + each["dropped"] for each in chains.values()),
        frames=sum(each["released"] for each in chains.values()),
        power_mw=power,
        energy_mj=power * round_ns / 1e9,
        round_ns=round_ns,
    )


def best(outcomes: Sequence[Outcome], objective: str) -> Outcome:
    """Return the feasible outcome with the best simulation, the first of equals; if none is feasible, the first plan.

    `objective`: latency, longest or energy, the first of several; UsageError for any other, or if there is no plan.
    """
    goal = objective.partition(",")[0]
    keys: dict[str, Callable[[Outcome], int]] = {
        "latency": lambda o: o.latency_ns,
        "longest": lambda o: o.last_ns,
        "energy": lambda o: o.power_mw,
    }
    if goal not in keys:
        raise UsageError(f"plans cannot be compared by {goal}", f"by {', '.join(keys)}")
    planned = [o for o in outcomes if o.plan is not None]
    if not planned:
        raise UsageError("no planner supports the pipeline", outcomes[0].refusal if outcomes else "")
    feasible = [o for o in planned if o.plan is not None and o.plan.verdict == "feasible"]
    return min(feasible, key=keys[goal]) if feasible else planned[0]


def points(outcomes: Sequence[Outcome]) -> list[Point]:
    """Return the outcomes that have a plan as points in latency and power, for a Pareto front."""
    return [
        Point(
            o.name, "", o.plan, o.latency_ns, "", o.power_mw, o.round_ns, round(o.energy_mj * 1000), (), (), o.on_front
        )
        for o in outcomes
        if o.plan is not None and o.plan.tasks
    ]


def mark_front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes, marking those on the latency-power front of the feasible plans."""
    front = {point.mode for point in mark(points(outcomes)) if point.on_front}
    return [replace(o, on_front=o.name in front and o.plan is not None) for o in outcomes]
