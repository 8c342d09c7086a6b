"""The line from descriptor to report as plain calls; every verb goes through here, so that all do the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched import __version__
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError

if TYPE_CHECKING:
    from socsched.cli.options import Output
    from socsched.cost.profile import Profile
    from socsched.descriptor.pipeline import Pipeline
    from socsched.descriptor.platform import Platform, PowerMode
    from socsched.plan.plan import Plan
    from socsched.run.boards.base import Board
    from socsched.run.options import Options
    from socsched.sim.engine import Simulated
    from socsched.trace.trace import Trace

Note = Callable[[str], None]


def get_mode(platform: Platform, name: str | None) -> PowerMode:
    """Return a power mode by name or alias, the default one for None; UsageError with the names there are."""
    try:
        return platform.mode(name)
    except KeyError:
        names = ", ".join(mode.name for mode in platform.modes)
        raise UsageError(f"{platform.name} has no power mode {name!r}", f"its modes: {names}") from None


def make(
    pipeline: str,
    platform: str,
    mode: str | None = None,
    objective: str = "latency",
    policy: str = "edf",
    profile_file: Path | None = None,
    solver: str = "heft",
    time_limit: float = 60.0,
    pins: Sequence[str] = (),
) -> Plan:
    """Plan a pipeline on a platform, both by name or path; every power mode is tried where `mode` is None."""
    how = How(objective, policy, profile_file, solver, time_limit, refine=False, pins=tuple(pins))
    return planned(pipeline, platform, mode, how)


@dataclass(frozen=True, slots=True)
class How:
    """What steers planning; `cuts`: networks may be cut between engines, `refine`: with times as simulated.

    `pins`: STAGE=ENGINE, engines that stages must run on.  Caps of mean power (mW) and DRAM traffic
    (bytes/s) hold beside those of the mode.
    """

    objective: str = "latency"
    policy: str = "edf"
    profile: Path | None = None
    solver: str = "heft"
    time_limit: float = 60.0
    cuts: bool = True
    refine: bool = True
    power_cap: int | None = None
    bandwidth_cap: int | None = None
    pins: tuple[str, ...] = ()
    explain: bool = True


def planned(pipeline: str, platform: str, mode: str | None, how: How) -> Plan:
    """Plan a pipeline on a platform, both by name or path, in `mode` or the best one."""
    from socsched.compile.analyze import stage_work
    from socsched.cost.profile import load_profile
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.plan.observed import NOTHING, Observed
    from socsched.plan.planner import make_plan
    from socsched.plan.workload import Limits

    options: dict[str, Any] = {
        "work": stage_work,
        "profile": load_profile(how.profile) if how.profile else None,
        "solver": how.solver,
        "time_limit": how.time_limit,
        "limits": Limits(how.power_cap, how.bandwidth_cap),
    }
    board = get_platform(platform)
    workload = _pinned(get_pipeline(pipeline), board, how.pins)

    def make(mode: str | None, cuts: bool, observed: Observed = NOTHING, explain: bool = False) -> Plan:
        found: Plan = make_plan(
            workload, board, mode, how.objective, how.policy, cuts=cuts, observed=observed, explain=explain, **options
        )
        return found

    made = make(mode, how.cuts, explain=how.explain)
    if how.refine and made.tasks:
        from socsched.models.parts import PART
        from socsched.sim.refine import refined

        cut = any(PART in task.params for task in made.tasks)
        first = made
        tried: list[tuple[Observed, Plan]] = []

        def again(seen: Observed) -> Plan:
            tried.append((seen, make(first.mode, cut, seen)))
            return tried[-1][1]

        made = refined(first, None if how.solver == "cpsat" else again)
        better = [seen for seen, plan in tried if plan.tasks == made.tasks]
        if how.explain and better and made.tasks != first.tasks:
            made = replace(made, uncertainty=make(first.mode, cut, better[0], explain=True).uncertainty)
    return replace(made, tool={**made.tool, "version": __version__})


def _pinned(pipeline: Pipeline, platform: Platform, pins: Sequence[str]) -> Pipeline:
    """Return a pipeline whose stages run on the engines they are pinned to; UsageError for names there are not."""
    known = {engine.id for engine in platform.engines} | {engine.kind for engine in platform.engines}
    wanted: dict[str, tuple[str, ...]] = {}
    for pin in pins:
        stage, _, engine = pin.partition("=")
        if stage not in {s.name for s in pipeline.stages}:
            raise UsageError(f"--pin {pin}: {pipeline.name} has no stage {stage!r}", "expected STAGE=ENGINE")
        if engine not in known:
            raise UsageError(f"--pin {pin}: {platform.name} has no engine {engine!r}", f"one of {', '.join(known)}")
        wanted[stage] = (*wanted.get(stage, ()), engine)
    stages = tuple(replace(s, engines=wanted.get(s.name, s.engines)) for s in pipeline.stages)
    return replace(pipeline, stages=stages)


def plan_from(
    ctx: click.Context,
    plan: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
) -> Plan:
    """Return the plan in a file, or make one of a pipeline; options that only steer planning exclude a plan file."""
    if not plan.endswith(".json"):
        if platform is None:
            raise click.UsageError(f"a pipeline needs a platform: socsched simulate {plan} -p PLATFORM")
        return make(plan, platform, mode, objective, policy, profile_file)
    given = {"--platform": platform, "--mode": mode, "--profile": profile_file}
    for name in (name for name, value in given.items() if value is not None):
        if ctx.get_parameter_source(name.lstrip("-")) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} steers planning, but {plan} is a finished plan")
    return load_plan(Path(plan))


def load_plan(file: Path) -> Plan:
    """Read plan.json; errors name the field."""
    from socsched.plan import io

    return io.load(file)


def save_plan(plan: Plan, file: Path) -> None:
    """Write plan.json, making its folder if needed."""
    from socsched.plan import io

    file.parent.mkdir(parents=True, exist_ok=True)
    io.save(plan, file)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plan.json holds it."""
    from socsched.plan import io

    return dict(io.to_document(plan))


def exit_code(plan: Plan) -> int:
    """Return what a command that plans ends with."""
    return {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED}.get(plan.verdict, EXIT_UNDECIDED)


def refused(output: Output, plan: Plan) -> int:
    """Show a plan without tasks, for which there is nothing to simulate or run, and return its exit code."""

    def show() -> None:
        from socsched.cli.options import terminal_width
        from socsched.report.terminal import console, plan_view

        console(terminal_width()).print(plan_view(plan))

    output.result(plan_document(plan), show)
    output.note("nothing to do: a stage has no engine")
    return exit_code(plan)


def outcome_code(result: Mapping[str, Any]) -> int:
    """Return what a command that simulates or runs ends with: 1 when a frame was late or dropped."""
    lost = sum(chain["missed"] + chain["dropped"] for chain in result["chains"].values())
    return EXIT_VIOLATED if lost else EXIT_OK


def known_policy(name: str) -> None:
    """Raise UsageError unless the simulator knows this policy."""
    if name not in ("edf", "fp"):
        from socsched.sim.policies import policy

        policy(name)


def planned_policy(name: str) -> str:
    """Return the policy to plan with when `name` is simulated: itself if bounds exist for it."""
    return name if name in ("edf", "fp") else "edf"


def simulate(plan: Plan, duration_ns: int, seed: int, policy: str | None = None, faults: Path | None = None) -> Trace:
    """Simulate a plan; `policy` replaces the planned one."""
    trace = simulated(plan, duration_ns, seed, policy, faults).trace
    assert trace is not None
    return trace


def simulated(
    plan: Plan,
    duration_ns: int,
    seed: int,
    policy: str | None = None,
    faults: Path | None = None,
    record: bool = True,
) -> Simulated:
    """Simulate a plan, with a trace or without; `policy` replaces the planned one."""
    from socsched.sim.engine import run
    from socsched.sim.faults import load_faults

    harm = load_faults(faults, plan) if faults else None
    return run(plan, duration_ns, seed, policy, harm, record=record)


TRACED_JOBS = 500_000
"""Jobs up to which a simulation is traced even if nobody keeps the trace: its percentiles are then exact."""


def many_jobs(plan: Plan, duration_ns: int) -> bool:
    """Say whether a simulation is long enough to go without a trace where nobody keeps it."""
    return sum(duration_ns // max(task.period_ns, 1) for task in plan.tasks) > TRACED_JOBS


def summed_up(done: Simulated) -> dict[str, Any]:
    """Return the figures of a simulation without trace."""
    from socsched.sim.totals import totals
    from socsched.trace.summary import result

    return result(totals(done), done.lowered.plan)


def pipeline_of(plan: Plan, given: str | None, warn: Note) -> Pipeline:
    """Return the pipeline a plan was made of, `given` or found by its name, its networks cut as the plan has them.

    Warns when the file has changed since.
    """
    from socsched.descriptor.catalog import get_pipeline, get_platform, input_hashes
    from socsched.plan.cutting.restore import as_planned

    pipeline = get_pipeline(given or plan.pipeline)
    hashes = input_hashes(get_platform("host"), pipeline)
    for name, digest in hashes.items():
        if name.startswith("pipelines/") and plan.inputs.get(name, digest) != digest:
            warn(f"{name} has changed since the plan was made")
    return as_planned(pipeline, plan)


def execute(
    plan: Plan,
    pipeline: Pipeline,
    *,
    frames: int | None = None,
    duration_ns: int | None = None,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    scales: Path | None = None,
    pace: bool = True,
    stats: bool = False,
    seed: int = 0,
    note: Note,
    options: Options | None = None,
    board: Board | None = None,
    accounts: dict[str, dict[str, int]] | None = None,
) -> Trace:
    """Run a plan on this machine or `board`; `note` is told of every finished frame."""
    from socsched.run.executor import FrameReport
    from socsched.run.executor import execute as run
    from socsched.run.options import PLAIN
    from socsched.units import format_duration

    def on_frame(report: FrameReport) -> None:
        late = "" if report.met else f", late: {format_duration(report.deadline_ns)} allowed"
        note(f"     {report.chain} frame {report.frame}: {format_duration(report.response_ns)}{late}")

    return run(
        plan,
        pipeline,
        scans=scans,
        weights=weights,
        scales=scales,
        frames=frames,
        duration_ns=duration_ns,
        seed=seed,
        pace="rate" if pace else "asap",
        on_frame=on_frame,
        stats=stats,
        options=options or PLAIN,
        board=board,
        accounts=accounts,
    )


def run_figures(
    trace: Trace, accounts: Mapping[str, Mapping[str, int]], options: Options, board: Board
) -> dict[str, Any]:
    """Return what is known of a run beyond what a simulation has: accounts, overheads, how and where it ran."""
    from socsched.run.overheads import overheads

    how = {"executor": options.executor, "in_flight": options.in_flight, "realtime": options.realtime}
    return {"accounts": dict(accounts), **overheads(trace), **how, "board": dict(board.facts())}


def run_lines(figures: Mapping[str, Any]) -> list[str]:
    """Return what a person reads of `run_figures`: one line about frames, one about overheads."""
    from socsched.units import format_duration

    told = "{released} released = {completed} completed + {dropped} dropped + {aborted} aborted"
    lines = [f"{source}: {told.format_map(account)}" for source, account in figures["accounts"].items()]
    late = [found["p50"] for found in figures["release_jitter_ns"].values() if found]
    if (waits := figures["dispatch_ns"]) is not None:
        told = (
            f"Executor: a ready job starts after {format_duration(waits['p50'])} (p99 {format_duration(waits['p99'])})"
        )
        jitter = f", releases come {format_duration(max(late))} late (median)" if late else ""
        lines.append(told + jitter)
    return lines


def compute(
    plan: Plan,
    pipeline: Pipeline,
    frames: int | None,
    scans: Sequence[Path] | None,
    weights: Path | None,
    scales: Path | None,
    seed: int,
) -> dict[int, dict[str, Any]]:
    """Return what a plan's stages find in each frame, computed here as the planned engines would."""
    from socsched.descriptor.catalog import get_platform
    from socsched.run.functional import compute as run

    platform = get_platform(plan.platform)
    return run(plan, pipeline, platform, frames=frames, scans=scans, weights=weights, scales=scales, seed=seed)


def result(plan: Plan, trace: Trace) -> dict[str, Any]:
    """Return what a trace amounts to, as result.json holds it."""
    from socsched.trace.metrics import result as figures

    return figures(trace, plan)


def given_up(trace: Trace) -> dict[str, dict[str, int]]:
    """Return how many jobs each stage gave up, by reason; only stages that did."""
    from socsched.trace.given_up import given_up as counts

    return counts(trace)


def governed(plan: Plan, governor: str) -> Plan:
    """Return the plan with a governor on every engine that has a choice of clocks."""
    from socsched.plan.engine_levels import governed as changed

    return changed(plan, governor)


def scans_of(given: Path | None) -> list[Path] | None:
    """Return the scan files of a file or folder, None when none is given."""
    from socsched.models.pointpillars.scan import list_scans

    return None if given is None else list(list_scans(given))


def scans(given: Path | None, folder: Path, frames: int, seed: int) -> list[Path]:
    """Return the scan files of `given`, or write `frames` synthetic ones (a drive down a street) to `folder`/scans."""
    from socsched.models.pointpillars.scan import write_bin
    from socsched.models.pointpillars.scene import sequence

    found = scans_of(given)
    if found is not None:
        return found
    target = folder / "scans"
    target.mkdir(parents=True, exist_ok=True)
    files = [target / f"{number:06d}.bin" for number in range(frames)]
    for file, (_, points) in zip(files, sequence(seed, frames), strict=True):
        write_bin(file, points)
    return files


def profile(
    pipeline: str,
    platform: str,
    repeat: int,
    files: Sequence[Path] | None,
    weights: Path | None,
    seed: int,
    note: Note,
    until: float | None = None,
) -> Profile:
    """Measure the stages of a pipeline on this machine, with `until` as long as their medians are not that certain."""
    from socsched.descriptor.catalog import get_pipeline
    from socsched.run.profile import measure

    chosen = get_pipeline(pipeline)
    plan = _spread(make(pipeline, platform), chosen)
    return measure(plan, chosen, repeat=repeat, interval=until, scans=files, weights=weights, seed=seed, note=note)


def beside(
    profile: Profile,
    pipeline: str,
    files: Sequence[Path] | None,
    weights: Path | None,
    repeat: int,
    note: Note,
    contention: bool,
    conversions: bool,
) -> Profile:
    """Return a profile with the co-run matrix and the conversions of a pipeline's stages on this machine."""
    from socsched.compile.analyze import stage_work
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.registry import bindings
    from socsched.plan.planner import make_plan
    from socsched.run import corun
    from socsched.run.backends.base import Setting

    chosen, here = get_pipeline(pipeline), get_platform("host")
    plan = make_plan(chosen, here, work=stage_work, profile=profile)
    tasks = (replace(t, lanes=(number % 2,)) for number, t in enumerate(plan.tasks))  # pairs need lanes of their own
    plan = replace(plan, tasks=tuple(tasks))
    heard = corun.record(plan, chosen, here, files, weights)
    setting = Setting(plan, chosen, here, bindings(chosen), weights)
    return replace(
        profile,
        contention=corun.contention(plan, setting, heard, repeat=repeat, note=note) if contention else (),
        conversions=corun.conversions(heard, here, repeat=repeat, note=note) if conversions else (),
    )


def _spread(plan: Plan, pipeline: Pipeline) -> Plan:
    """Return the plan with every stage that can share on all lanes, so that both extremes get measured."""
    from socsched.models.registry import get_model

    lanes = {engine.id: engine.lanes for engine in plan.engines}
    networks = {
        stage.name
        for stage in pipeline.stages
        if stage.model and stage.share == 0 and get_model(stage.model, stage.params).network is not None
    }
    tasks = (replace(t, lanes=tuple(range(lanes[t.engine]))) if t.name in networks else t for t in plan.tasks)
    return replace(plan, tasks=tuple(tasks))


def draw(trace: Trace, files: Sequence[Path], target: Path, trained: bool, street: int | None) -> None:
    """Draw the first frame that came to boxes, from above: the boxes if the weights are trained, true ones if known.

    `street` is the seed of the synthetic street the scans are of, None for other scans.
    """
    import numpy as np

    from socsched.models.pointpillars.scan import read_scan
    from socsched.report.birdseye import draw as birdseye

    numbers = {file.name: number for number, file in enumerate(files)}
    frame = next((f for f, d in sorted(trace.details.items()) if d.get("input") in numbers and "detections" in d), None)
    if frame is None:
        return
    name, found = str(trace.details[frame]["input"]), trace.details[frame]["detections"]
    shown = found if trained else []
    note = "" if trained else f"random weights: the {len(found)} boxes found mean nothing and are not drawn"
    birdseye(
        np.asarray(read_scan(files[numbers[name]])),
        np.array([entry["box"] for entry in shown]),
        [entry["label"] for entry in shown],
        [entry["score"] for entry in shown],
        _truth(street, numbers[name]) if street is not None else None,
        target,
        f"{name}, frame {frame}",
        note,
    )


def _truth(street: int, number: int) -> Any:
    """Return the boxes of the road users the LiDAR can see in scan `number` of a synthetic street."""
    from itertools import islice

    from socsched.models.pointpillars.scene import sequence, visible

    scene, points = next(islice(sequence(street, number + 1), number, None))
    return scene.boxes[visible(scene, points)]
