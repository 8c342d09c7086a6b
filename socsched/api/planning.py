"""The planning procedure: search, simulate, search again with the simulated times, and explain.

The command line, sweeps, the demo and `socsched.plan` all use `plan_with`, so that equal inputs give equal plans
from each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError
from socsched.resources import nearest

if TYPE_CHECKING:
    from socsched.cost.profile import Profile
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform, PowerMode
    from socsched.planning.clock import Clock
    from socsched.planning.cost_cache import Known
    from socsched.planning.draft import Draft
    from socsched.planning.plan import Plan
    from socsched.planning.workload import Observed


EVALUATIONS = 768
"""Default budget of the longest search."""
LEAST, FACTOR = 12, 8
"""The least budget of searches, and the ratio of one to the next in their series."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of planning, in addition to the pipeline, the platform and the mode.

    `objective`: one of `planning.planner.OBJECTIVES`, or several in lexicographic order.  `policy`: edf | fp | auto,
    EDF first.  `solver`: heft | restarts | cpsat | auto, or portfolio, all in order until a plan is feasible.
    `planner`: an algorithm of the literature or an installed one, with its `settings`, instead of the built-in
    search.  `evaluations`: the work of all searches, in mappings analysed, None for no limit but their own; the first
    of several takes a third at most.  `time_limit` (s) is a guard rail: a plan that it cut off says so
    (`solver.cut_off`), since it depends on the speed of the machine.  `cuts`: networks may be split between engines.
    `refine`: plan again with simulated times.  `explain`: add conflicts, levers and uncertainties.  `pins`:
    STAGE=ENGINE, engines that stages must run on; `prefers`: engines that take the layers they support.  `deadlines`:
    CHAIN=TIME, in place of those of the pipeline.  `runtimes`: [ENGINE=]NAME, the programs to choose from on engines
    that have several.  `robust`: every cost is taken at the upper end of its interval.  Caps on mean power (mW) and
    DRAM traffic (bytes/s) apply in addition to those of the mode.
    """

    objective: str = "latency"
    policy: str = "auto"
    profile: Path | Profile | None = None
    solver: str = "portfolio"
    evaluations: int | None = EVALUATIONS
    time_limit: float | None = None
    cuts: bool = True
    refine: bool = True
    power_cap: int | None = None
    bandwidth_cap: int | None = None
    pins: tuple[str, ...] = ()
    prefers: tuple[str, ...] = ()
    explain: bool = True
    planner: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    deadlines: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    robust: bool = False


BEFORE_OTHERS = 1 / 3
"""Share of the budget for a list search, which others may follow."""
FIRST = 0.7
"""Share of the budget for the first plan when further plans follow from its simulation."""


def plan(
    pipeline: str | Path | Pipeline, platform: str | Path | Platform, mode: str | None = None, **options: Any
) -> Plan:
    """Return the plan of a pipeline on a platform, both by name, by path or as loaded objects.

    `mode`: a power mode by name or alias; None or "auto" tries all and returns the best.  `options`: the fields of
    `PlanOptions`; caps may be text such as "20 W" and "50 GB/s".  Raises UsageError for unknown names, DescriptorError
    for files with faults.  A plan that is infeasible or undecided is returned, with its `violations` and `conflicts`.
    """
    return plan_with(pipeline, platform, mode, options_of(**options))


def options_of(**options: Any) -> PlanOptions:
    """Return planning options from the forms that callers use: caps as text or numbers, pins as a list or one text."""
    from socsched.units import parse

    for name, dimension in (("power_cap", "power"), ("bandwidth_cap", "bandwidth")):
        if isinstance(options.get(name), str):
            options[name] = parse(options[name], dimension)
    for name in ("pins", "prefers", "deadlines", "runtimes"):
        if name in options:
            options[name] = (options[name],) if isinstance(options[name], str) else tuple(options[name])
    if isinstance(options.get("profile"), str):
        options["profile"] = Path(options["profile"])
    return PlanOptions(**options)


def plan_with(
    pipeline: str | Path | Pipeline,
    platform: str | Path | Platform,
    mode: str | None = None,
    options: PlanOptions = PlanOptions(),  # frozen
    known: Known | None = None,
) -> Plan:
    """Return the plan of a pipeline on a platform; `known` carries costs over from one plan of the pair to the next."""
    from socsched.api.loading import load_pipeline, load_platform
    from socsched.api.stamp import stamped
    from socsched.schedulability.plan_analysis import without_contradictions

    loaded = set_deadlines(load_pipeline(pipeline), options.deadlines)
    board = choose_runtimes(load_platform(platform), options.runtimes)
    if options.planner:
        if options.robust:
            raise UsageError("--robust plans with the built-in search", "leave out --planner")
        from socsched.api.planners import by_planner

        plan = without_contradictions(by_planner(loaded, board, mode, options))
        return stamped(plan, loaded, board, mode, options)
    from socsched.api.portfolio import undecided
    from socsched.planning.clock import Clock
    from socsched.planning.plan_writer import cut_off

    clock = Clock.of(None, options.time_limit)
    pinned = pin_stages(loaded, board, options.pins)
    known = known_costs(board, options) if known is None else known
    found = _widened(pinned, board, mode, options, known, clock)
    plan = found.finished(clock) if options.explain else found.plan
    plan = without_contradictions(undecided(cut_off(plan, clock), found.tried, options))
    return stamped(plan, loaded, board, mode, options)


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan of searches, the draft that it is a refinement of, and the names of the searches tried."""

    plan: Plan
    draft: Draft
    tried: Sequence[str]

    @property
    def rank(self) -> tuple[bool, float]:
        """Return the key that orders plans; smaller is better.  Values of latency are simulated if `refine` is set."""
        return self.plan.verdict != "feasible", float(self.plan.solver.value or 0)

    def finished(self, clock: Clock) -> Plan:
        """Return the plan with its uncertainty, which has a budget of its own."""
        from socsched.planning.planner import EXPLAINED

        if not self.plan.tasks:
            return self.plan
        return replace(self.plan, uncertainty=self.draft.finished(clock.next(EXPLAINED)).uncertainty)


def _widened(
    pipeline: Pipeline, board: Platform, mode: str | None, options: PlanOptions, known: Known, clock: Clock
) -> _Found:
    """Return the best plan of searches with ever larger budgets, each `FACTOR` times the one before.

    A larger budget divides its evaluations otherwise, and what is better by estimate may be worse by simulation; so a
    search with all smaller budgets before it is what makes a longer one never worse.  The series ends where a budget
    was not used up: a larger one would find the same.
    """
    if options.evaluations is None:
        return _searched(pipeline, board, mode, options, known, clock)
    budgets = [LEAST]
    while budgets[-1] * FACTOR <= options.evaluations:
        budgets.append(budgets[-1] * FACTOR)
    quick, tried = replace(options, explain=False), list[_Found]()
    for budget in budgets[:-1]:
        tried.append(_searched(pipeline, board, mode, quick, known, clock.afresh(budget)))
        settled, verdict = not clock.spent, tried[-1].plan.verdict
        if clock.cut_off or (settled and verdict == "feasible"):
            return _best(tried)
        if settled or verdict == "infeasible":
            break
    explained = quick if any(one.plan.verdict == "feasible" for one in tried) else options
    tried.append(_searched(pipeline, board, mode, explained, known, clock.afresh(budgets[-1])))
    return _best(tried)


def _best(tried: Sequence[_Found]) -> _Found:
    """Return the best feasible plan, the last of equal ones, else the last plan, with the evaluations of all."""
    feasible = [one for one in tried if one.plan.verdict == "feasible"]
    best = min(reversed(feasible), key=lambda one: one.rank, default=tried[-1])
    evaluated = sum(one.plan.solver.evaluated or 0 for one in tried)
    if best.plan.solver.evaluated is None:
        return best
    return replace(best, plan=replace(best.plan, solver=replace(best.plan.solver, evaluated=evaluated)))


def _searched(
    pipeline: Pipeline,
    board: Platform,
    mode: str | None,
    options: PlanOptions,
    known: Known,
    clock: Clock,
) -> _Found:
    """Return the plan of the searches that options ask for, within the work of `clock`, without its uncertainty."""
    from socsched.api.portfolio import Member, first_feasible, members
    from socsched.models.work import stage_work
    from socsched.planning.planner import draft_plan
    from socsched.planning.workload import NOTHING, Limits

    profile = known.profile
    if options.prefers:
        from socsched.planning.cutting.pipelines import with_preferences

        chosen = get_mode(board, None if mode == "auto" else mode)
        preferences = dict(stage_and_engines("--prefer", text, pipeline, board) for text in options.prefers)
        pipeline = with_preferences(pipeline, known.model(chosen), preferences)

    first_member, *others = members(options)
    tried, whole = [first_member.name], clock
    clock = whole.part(BEFORE_OTHERS) if first_member.solver == "heft" else whole

    def make(
        mode: str | Sequence[str] | None,
        cuts: bool,
        observed: Observed = NOTHING,
        explain: bool = False,
        within: Clock | None = None,
        member: Member = first_member,
        queues: Pipeline = pipeline,
        otherwise: Callable[[Sequence[str]], Draft | None] | None = None,
    ) -> Draft:
        return draft_plan(
            queues,
            board,
            mode,
            options.objective,
            member.policy,
            work=stage_work,
            profile=profile,
            solver=member.solver,
            limits=Limits(options.power_cap, options.bandwidth_cap),
            known=known,
            cuts=cuts,
            observed=observed,
            explain=explain,
            clock=clock if within is None else within,
            otherwise=otherwise,
        )

    def otherwise(modes: Sequence[str]) -> Draft | None:
        return first_feasible(
            tried, others, lambda member, within: make(modes, options.cuts, within=within, member=member), whole
        )

    exact = options.solver == "cpsat"
    first = make(
        mode,
        options.cuts,
        explain=options.explain,
        within=clock.part(FIRST) if options.refine and not exact else clock,
        otherwise=otherwise if others else None,
    )
    used = next((m for m in others if m.name == first.plan.solver.found_by), first_member)
    clock = clock if used is first_member else whole
    if not options.refine or not first.plan.tasks:
        return _Found(first.plan, first, tried)
    from socsched.api.refinement import refine
    from socsched.models.parts import PART
    from socsched.planning.choices import deepened

    cut = any(PART in task.params for task in first.plan.tasks)
    drafts = [first]

    deep = any("queue" in found for found in (first.plan.solver.chosen or {}).values())

    def again(seen: Observed) -> Plan:
        drafts.append(make(first.plan.mode, cut, seen, member=used, queues=deepened(pipeline) if deep else pipeline))
        return drafts[-1].plan

    refined = refine(first.plan, again if used.solver in ("heft", "auto") and not exact else None, clock)
    return _Found(refined, next(draft for draft in drafts if draft.plan.tasks == refined.tasks), tried)


def known_costs(board: Platform, options: PlanOptions) -> Known:
    """Return the costs of a platform to plan with."""
    from socsched.models.work import stage_work
    from socsched.planning.cost_cache import Known
    from socsched.planning.uncertainty import at_upper_end

    adjust = at_upper_end if options.robust else None
    return Known(board, stage_work, profile_of(options), adjust=adjust)


def profile_of(options: PlanOptions) -> Profile | None:
    """Return the measured costs that planning starts from, loaded if given as a file."""
    if options.profile is None or not isinstance(options.profile, Path):
        return options.profile
    from socsched.cost.profile import load_profile

    return load_profile(options.profile)


def get_mode(platform: Platform, name: str | None) -> PowerMode:
    """Return a power mode by name or alias, the default mode for None; UsageError listing the known names."""
    try:
        return platform.mode(name)
    except KeyError:
        names = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"{platform.name} has no power mode {name!r}", f"its modes: {names}") from None


def pin_stages(pipeline: Pipeline, platform: Platform, pins: Sequence[str]) -> Pipeline:
    """Return a pipeline with its stages restricted to their pinned engines; UsageError for unknown names."""
    wanted: dict[str, tuple[str, ...]] = {}
    for pin in pins:
        stage, engines = stage_and_engines("--pin", pin, pipeline, platform)
        wanted[stage] = (*wanted.get(stage, ()), *engines)
    stages = tuple(replace(s, engines=wanted.get(s.name, s.engines)) for s in pipeline.stages)
    return replace(pipeline, stages=stages)


def choose_runtimes(platform: Platform, wanted: Sequence[str]) -> Platform:
    """Return a platform whose engines have the runtimes NAME or ENGINE=NAME only, where they have a choice of them.

    Raises UsageError for a name that no engine declares.
    """
    names: dict[str, set[str]] = {}
    for text in wanted:
        engine, equals, name = text.rpartition("=")
        ids = [e for e in platform.engines if e.runtimes and (not equals or engine in (e.id, e.kind))]
        taken = [e.id for e in ids if name in {runtime.name for runtime in e.runtimes}]
        if not taken:
            known = dict.fromkeys(f"{e.id}={r.name}" for e in platform.engines for r in e.runtimes)
            hint = f"one of {', '.join(known)}" if known else "its engines have no choice of runtimes"
            raise UsageError(f"--runtime {text}: {platform.name} has no such runtime", hint)
        for each in taken:
            names.setdefault(each, set()).add(name)
    engines = tuple(
        replace(e, runtimes=tuple(r for r in e.runtimes if r.name in names[e.id])) if e.id in names else e
        for e in platform.engines
    )
    return replace(platform, engines=engines)


def set_deadlines(pipeline: Pipeline, texts: Sequence[str]) -> Pipeline:
    """Return a pipeline with the deadlines CHAIN=TIME; UsageError for an unknown chain or anything but a time."""
    from socsched.units import parse

    for text in texts:
        name, _, value = text.partition("=")
        chains = [chain.name for chain in pipeline.chains]
        if name not in chains:
            near = nearest(name, chains)
            hint = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(chains)}"
            raise UsageError(
                f"--deadline {text}: {pipeline.name} has no chain {name!r}", f"{hint} (expected CHAIN=TIME)"
            )
        try:
            allowed = parse(value, "duration")
        except ValueError as error:
            raise UsageError(f"--deadline {text}: {error}", "expected CHAIN=TIME, such as control=20ms") from None
        if allowed <= 0:
            raise UsageError(
                f"--deadline {text}: a deadline is above zero", "expected CHAIN=TIME, such as control=20ms"
            )
        changed = tuple(replace(c, deadline_ns=allowed) if c.name == name else c for c in pipeline.chains)
        pipeline = replace(pipeline, chains=changed)
    return pipeline


def stage_and_engines(option: str, text: str, pipeline: Pipeline, platform: Platform) -> tuple[str, tuple[str, ...]]:
    """Return the stage and engines of STAGE=ENGINE[,ENGINE...], engines by id or kind; UsageError for unknown names."""
    stage, _, names = text.partition("=")
    engines = tuple(names.split(","))
    stages = [s.name for s in pipeline.stages]
    if stage not in stages:
        raise UsageError(f"{option} {text}: {pipeline.name} has no stage {stage!r}", _meant(stage, stages))
    known = list(dict.fromkeys(name for e in platform.engines for name in (e.id, e.kind)))
    for engine in engines:
        if engine not in known:
            raise UsageError(f"{option} {text}: {platform.name} has no engine {engine!r}", _meant(engine, known))
    return stage, engines


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    listed = f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
    return f"{listed} (expected STAGE=ENGINE)"
