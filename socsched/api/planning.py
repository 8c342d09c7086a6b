"""Planning as callers ask for it: options in the forms they use, what they name, and the simulation of plans.

The command line, sweeps, the demo and `socsched.plan` all use `plan_with`, so that equal inputs give equal plans from
each of them, byte for byte: the time that planning took is printed and stored nowhere.  A faster search for sweeps
alone would give other plans for no reason that a user can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.api.loading import load_platform
from socsched.api.options import PlanOptions
from socsched.api.stamp import stamped
from socsched.cost.profile import Profile, load_profile
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform, PowerMode
from socsched.errors import UsageError
from socsched.models.precision import settled
from socsched.models.sizes import sized
from socsched.models.work import stage_work
from socsched.planning.clock import Clock
from socsched.planning.plan import Plan
from socsched.planning.plan_writer import cut_off
from socsched.planning.residency import with_residency
from socsched.planning.search import CostCache, Means, SearchRequest, refine, search
from socsched.planning.uncertainty import at_upper_end
from socsched.planning.workload import Limits
from socsched.resources import nearest
from socsched.schedulability.plan_analysis import without_contradictions
from socsched.sim.simulate import run
from socsched.trace.columns import DONE
from socsched.trace.metrics import result
from socsched.units import parse

BEST = "best"
"""As a planner: all of them, of which the plan with the best simulation is returned."""


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
    for name, dimension in (("power_cap", "power"), ("bandwidth_cap", "bandwidth")):
        if isinstance(options.get(name), str):
            options[name] = parse(options[name], dimension)
    for name in ("pins", "prefers", "deadlines", "runtimes", "precisions", "shapes", "dims", "shares", "memory"):
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
    costs: CostCache | None = None,
) -> Plan:
    """Return the plan of a pipeline on a platform; `costs` are carried over from one plan of the pair to the next."""
    raw = get_pipeline(str(pipeline)) if isinstance(pipeline, str | Path) else pipeline
    stated = sized(raw, options.shapes, options.dims)
    loaded = set_deadlines(settled(stated, options.precisions), options.deadlines)
    integers = any(stage.stated and "int8" in (stage.precisions or ()) for stage in loaded.stages)
    board = choose_runtimes(load_platform(platform, integers), options.runtimes)
    if options.memory:
        from socsched.planning.residency import with_limits

        board = with_limits(board, limits_of(options.memory))
    if options.planner:
        plan = _by_planner(loaded, board, mode, options)
    else:
        plan = _by_search(loaded, board, mode, options, costs)
    plan = stamped(plan, loaded, board, mode, options)
    if not options.steady:
        return plan
    from socsched.planning.clocks import with_steady_clocks

    return with_steady_clocks(plan)


def _by_search(
    pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions, costs: CostCache | None
) -> Plan:
    """Return the plan of the built-in search."""
    pipeline = pin_stages(pipeline, platform, options.pins)
    costs = known_costs(platform, options) if costs is None else costs
    if options.prefers:
        from socsched.planning.cutting.pipelines import with_preferences

        model = costs.model(get_mode(platform, None if mode == "auto" else mode))
        preferences = dict(stage_and_engines("--prefer", text, pipeline, platform) for text in options.prefers)
        pipeline = with_preferences(pipeline, model, preferences)
    request = SearchRequest.of(
        pipeline,
        platform,
        mode,
        options.objective,
        options.policy,
        options.solver,
        costs=costs,
        limits=Limits(options.power_cap, options.bandwidth_cap),
        cuts=options.cuts,
        explain=options.explain,
        evaluations=options.evaluations,
        time_limit=options.time_limit,
        simulate=mean_times if options.refine else None,
    )
    request, plan = with_residency(request, search(request))
    if not options.shares:
        return plan
    from socsched.planning.shares import with_shares

    return with_shares(request, plan, groups_of(options.shares))


def groups_of(texts: Sequence[str]) -> dict[str, int]:
    """Return the groups of urgent stages by engine from ENGINE=GROUPS, none for "auto"; UsageError for other texts."""
    groups = {}
    for text in texts:
        engine, equals, count = text.partition("=")
        if text == "auto":
            continue
        if not equals or not count.isdecimal() or not 0 < int(count) <= 1024:
            raise UsageError(f"--shares {text}: neither auto nor ENGINE=GROUPS", "such as gpu=2")
        groups[engine] = int(count)
    return groups


def limits_of(texts: Sequence[str]) -> dict[str, int]:
    """Return the bytes of networks that engines keep from ENGINE=SIZE; UsageError for other texts."""
    found = {}
    for text in texts:
        engine, _, size = text.partition("=")
        try:
            found[engine] = int(parse(size, "size"))
        except ValueError as error:
            raise UsageError(f"--memory {text}: {error}", "such as gpu=128MiB") from None
    return found


def _by_planner(pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions) -> Plan:
    """Return the plan of the planner `options.planner`; UsageError for an unknown planner or setting.

    With `options.refine`, expected times are those of a simulation, without replanning.
    """
    from socsched.planning.planners import planner
    from socsched.planning.planners.propose import make_plan

    if options.shares or options.memory:
        raise UsageError("--shares and --memory are decided by the built-in search", "leave out --planner")
    if options.robust:
        raise UsageError("--robust plans with the built-in search", "leave out --planner")
    if options.planner == BEST:
        return without_contradictions(_best(pipeline, platform, mode, options))
    clock = Clock.of(options.evaluations, options.time_limit)
    plan = make_plan(
        planner(options.planner),
        pin_stages(pipeline, platform, options.pins),
        platform,
        mode,
        options.objective,
        "edf" if options.policy == "auto" else options.policy,
        work=stage_work,
        profile=profile_of(options),
        options=options.settings,
        clock=clock,
        limits=Limits(options.power_cap, options.bandwidth_cap),
    )
    if options.refine and plan.tasks:
        plan = refine(plan, mean_times)
    return without_contradictions(cut_off(plan, clock))


def _best(pipeline: Pipeline, platform: Platform, mode: str | None, options: PlanOptions) -> Plan:
    """Return the plan with the best simulation over all planners that cover the pipeline and the built-in search."""
    from socsched.api import comparison

    if options.settings:
        raise UsageError("--planner best takes no options", "name a planner to set its options")
    outcomes = comparison.compare_planners(
        comparison.select_planners(()),
        lambda name, _: plan_with(
            pipeline, platform, mode, replace(options, planner="" if name == comparison.OURS else name)
        ),
    )
    best = comparison.best(outcomes, options.objective)
    assert best.plan is not None
    latencies = {o.name: o.latency_ns for o in outcomes if o.plan is not None and o.plan.tasks}
    return replace(best.plan, solver=replace(best.plan.solver, compared_latency_ns=latencies))


def mean_times(plan: Plan, duration_ns: int) -> Means:
    """Return the mean response times of chains and jobs in a simulation of a plan."""
    trace = run(plan, duration_ns).trace
    assert trace is not None
    chains = {name: entry["response_time_ns"]["mean"] for name, entry in result(trace, plan)["chains"].items()}
    jobs = trace.columns.jobs
    done = jobs.status == DONE
    spent = {}
    for number, name in enumerate(trace.columns.tasks):
        rows = done & (jobs.task == number)
        if rows.any():
            spent[name] = round(float((jobs.finish_ns[rows] - jobs.activation_ns[rows]).mean()))
    return Means({name: round(mean) for name, mean in chains.items() if mean}, spent)


def known_costs(board: Platform, options: PlanOptions) -> CostCache:
    """Return the costs of a platform to plan with."""
    adjust = at_upper_end if options.robust else None
    return CostCache(board, stage_work, profile_of(options), adjust=adjust)


def profile_of(options: PlanOptions) -> Profile | None:
    """Return the measured costs that planning starts from, loaded if given as a file."""
    if options.profile is None or not isinstance(options.profile, Path):
        return options.profile
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
    engines_of: dict[str, tuple[str, ...]] = {}
    for pin in pins:
        stage, engines = stage_and_engines("--pin", pin, pipeline, platform)
        engines_of[stage] = (*engines_of.get(stage, ()), *engines)
    stages = tuple(replace(s, engines=engines_of.get(s.name, s.engines)) for s in pipeline.stages)
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
    for text in texts:
        name, _, value = text.partition("=")
        chains = [chain.name for chain in pipeline.chains]
        if name not in chains:
            hint = f"{_meant(name, chains)} (expected CHAIN=TIME)"
            raise UsageError(f"--deadline {text}: {pipeline.name} has no chain {name!r}", hint)
        try:
            allowed = parse(value, "duration")
            if allowed <= 0:
                raise ValueError("a deadline is above zero")
        except ValueError as error:
            raise UsageError(f"--deadline {text}: {error}", "expected CHAIN=TIME, such as control=20ms") from None
        changed = tuple(replace(c, deadline_ns=allowed) if c.name == name else c for c in pipeline.chains)
        pipeline = replace(pipeline, chains=changed)
    return pipeline


def stage_and_engines(option: str, text: str, pipeline: Pipeline, platform: Platform) -> tuple[str, tuple[str, ...]]:
    """Return the stage and engines of STAGE=ENGINE[,ENGINE...], engines by id or kind; UsageError for unknown names."""
    stage, _, names = text.partition("=")
    engines = tuple(names.split(","))
    stages = [s.name for s in pipeline.stages]
    accepted = list(dict.fromkeys(name for e in platform.engines for name in (e.id, e.kind)))
    asked = [(pipeline.name, "stage", stage, stages), *((platform.name, "engine", e, accepted) for e in engines)]
    for owner, what, name, known in asked:
        if name not in known:
            hint = f"{_meant(name, known)} (expected STAGE=ENGINE)"
            raise UsageError(f"{option} {text}: {owner} has no {what} {name!r}", hint)
    return stage, engines


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else f"one of {', '.join(known)}"
