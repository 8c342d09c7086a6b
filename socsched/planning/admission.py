"""Add a second pipeline to a plan, first with every planned stage kept in place.

Answers: yes with every planned stage in its place; yes if stages move; no, with the resulting violations; undecided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from socsched.cost.model import WorkOf
from socsched.cost.profile import Profile
from socsched.descriptor.pipeline import Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import Platform
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan


@dataclass(frozen=True, slots=True)
class Addition:
    """The `answer`: yes | moving | no | undecided; the joint `plan`; `moved`: stages of the first that it moves."""

    answer: str
    added: tuple[str, ...]
    plan: Plan
    moved: tuple[str, ...]


def join_pipelines(first: Pipeline, second: Pipeline) -> tuple[Pipeline, tuple[str, ...]]:
    """Return both pipelines joined, and the names that the stages of the second have in the result.

    Identical sensors are shared; any other name that clashes is prefixed with the second pipeline's name.
    """
    taken = {s.name for s in first.sensors} | {s.name for s in first.stages}
    shared = {s.name for s in second.sensors if s in first.sensors}

    def new(name: str) -> str:
        return f"{second.name}-{name}" if name in taken and name not in shared else name

    sensors: tuple[Sensor, ...] = tuple(replace(s, name=new(s.name)) for s in second.sensors if s.name not in shared)
    stages: tuple[Stage, ...] = tuple(
        replace(s, name=new(s.name), after=tuple(map(new, s.after)), reads=tuple(map(new, s.reads)))
        for s in second.stages
    )
    chains = {chain.name for chain in first.chains}
    more: tuple[Chain, ...] = tuple(
        replace(c, name=f"{second.name}-{c.name}" if c.name in chains else c.name, path=tuple(map(new, c.path)))
        for c in second.chains
    )
    joined = replace(
        first,
        name=f"{first.name}+{second.name}",
        sensors=(*first.sensors, *sensors),
        stages=(*first.stages, *stages),
        chains=(*first.chains, *more),
        sources={**second.sources, **first.sources},
    )
    return joined, tuple(stage.name for stage in stages)


def add(
    plan: Plan,
    own: Pipeline,
    new: Pipeline,
    platform: Platform,
    work: WorkOf,
    profile: Profile | None = None,
    clock: Clock = NO_CLOCK,
) -> Addition:
    """Return whether `new` fits alongside a plan of `own`, in the same mode and under the same policy."""
    both, names = join_pipelines(own, new)
    placed = {task.name: task for task in plan.tasks if task.kind == "stage"}
    lanes = {engine.id: engine.lanes for engine in plan.engines}

    def kept(stage: Stage) -> Stage:
        task = placed.get(stage.name)
        if task is None or stage.name in names:
            return stage
        share = len(task.lanes) if lanes[task.engine] > 1 else stage.share
        return replace(stage, engines=(task.engine,), precisions=(task.precision,), share=share)

    pinned = replace(both, stages=tuple(map(kept, both.stages)))
    found = make_plan(
        pinned,
        platform,
        plan.mode,
        policy=plan.policy,
        work=work,
        profile=profile,
        clock=clock.part(0.5),
        explain=False,
    )
    if found.verdict == "feasible":
        return Addition("yes", names, found, ())
    free = make_plan(
        both, platform, plan.mode, policy=plan.policy, work=work, profile=profile, clock=clock, explain=False
    )
    if free.verdict == "feasible":
        moved = tuple(
            task.name
            for task in free.tasks
            if task.name in placed
            and (task.engine, task.precision) != (placed[task.name].engine, placed[task.name].precision)
        )
        return Addition("moving", names, free, moved)
    return Addition("undecided" if "undecided" in (found.verdict, free.verdict) else "no", names, found, ())
