"""Runs of a plan on this machine: inputs, execution, measurement of stages, and a picture of what was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from socsched.cli.planning import planned

if TYPE_CHECKING:
    from socsched.cost.profile import Profile
    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan
    from socsched.runtime.boards.base import Board
    from socsched.runtime.options import Options
    from socsched.trace.trace import Trace

Note = Callable[[str], None]


def scans_of(given: Path | None) -> list[Path] | None:
    """Return the scans, images and arrays of a file or folder, None when none is given."""
    from socsched.runtime.input_files import list_frames

    return None if given is None else list(list_frames(given))


def scans(given: Path | None, folder: Path, frames: int, seed: int) -> list[Path]:
    """Return the scan files of `given`, or write `frames` synthetic ones (a drive down a street) to `folder`/scans."""
    from socsched.models.pointpillars.scan import list_scans, write_bin
    from socsched.models.pointpillars.scene import sequence

    if given is not None:
        return list(list_scans(given))
    target = folder / "scans"
    target.mkdir(parents=True, exist_ok=True)
    files = [target / f"{number:06d}.bin" for number in range(frames)]
    for file, (_, points) in zip(files, sequence(seed, frames), strict=True):
        write_bin(file, points)
    return files


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
    loop: bool = False,
    seed: int = 0,
    note: Note,
    options: Options | None = None,
    board: Board | None = None,
    accounts: dict[str, dict[str, int]] | None = None,
) -> Trace:
    """Run a plan on this machine or `board`; `note` is told of every finished frame."""
    from socsched.progress import tell
    from socsched.runtime.executor import FrameReport
    from socsched.runtime.executor import execute as run
    from socsched.runtime.options import PLAIN
    from socsched.units import format_duration

    done = 0

    def on_frame(report: FrameReport) -> None:
        nonlocal done
        done += 1
        if duration_ns:
            tell("running", report.finish_ns, duration_ns, "ns")
        else:
            tell("running", done, (frames or len(scans or ())) * len(plan.chains), "frames")
        late = "" if report.met or not pace else f", late: {format_duration(report.deadline_ns)} allowed"
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
        loop=loop,
        options=options or PLAIN,
        board=board,
        accounts=accounts,
    )


def run_figures(
    trace: Trace, accounts: Mapping[str, Mapping[str, int]], options: Options, board: Board
) -> dict[str, Any]:
    """Return what is known of a run beyond what a simulation has: accounts, overheads, how and where it ran."""
    from socsched.runtime.overheads import overheads

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
    from socsched.runtime.functional import compute as run

    platform = get_platform(plan.platform)
    return run(plan, pipeline, platform, frames=frames, scans=scans, weights=weights, scales=scales, seed=seed)


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
    from socsched.runtime.profile import measure

    chosen = get_pipeline(pipeline)
    plan = _spread(planned(pipeline, platform), chosen)
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
    from socsched.compiler.analyze import stage_work
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.registry import bindings
    from socsched.planning.planner import make_plan
    from socsched.runtime import corun
    from socsched.runtime.backends.base import Setting

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


def draw(trace: Trace, files: Sequence[Path], target: Path, street: int | None) -> None:
    """Draw the first frame that came to boxes, as a range image and from above, with the true boxes where known.

    `street` is the seed of the synthetic street the scans are of, None for other scans.
    """
    import tempfile

    import numpy as np

    from socsched.models.pointpillars.scan import read_scan
    from socsched.reporting.birdseye import draw as birdseye
    from socsched.reporting.rangeview import draw_range, stack

    numbers = {file.name: number for number, file in enumerate(files)}
    frame = next((f for f, d in sorted(trace.details.items()) if d.get("input") in numbers and "detections" in d), None)
    if frame is None:
        return
    name, found = str(trace.details[frame]["input"]), trace.details[frame]["detections"]
    points = np.asarray(read_scan(files[numbers[name]]))
    boxes = np.array([entry["box"] for entry in found])
    labels, scores = ([entry[key] for entry in found] for key in ("label", "score"))
    truth = _truth(street, numbers[name]) if street is not None else None
    with tempfile.TemporaryDirectory() as scratch:
        above = birdseye(points, boxes, labels, scores, truth, Path(scratch) / "above.png", f"{name}, frame {frame}")
        ahead = draw_range(points, boxes, labels, scores, truth, Path(scratch) / "ahead.png")
        stack(ahead, above, target)


def _truth(street: int, number: int) -> Any:
    """Return the boxes of the road users the LiDAR can see in scan `number` of a synthetic street."""
    from itertools import islice

    from socsched.models.pointpillars.scene import sequence, visible

    scene, points = next(islice(sequence(street, number + 1), number, None))
    return scene.boxes[visible(scene, points)]
