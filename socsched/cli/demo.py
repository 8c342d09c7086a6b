"""`socsched demo`: the main workflow on built-in input, with a report at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from socsched.api.options import PlanOptions, RunOptions, SimulateOptions, Whole, option, shared
from socsched.cli.options import output_folder, weights
from socsched.cli.output import Output, echo, ready_to_write, terminal_width
from socsched.cli.results import frame_notes
from socsched.cli.verbs import Request, verb
from socsched.files import write_file
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.api.results import Result
    from socsched.descriptor.pipeline import Pipeline

PIPELINE, BOARD, MODE = "pointpillars-s", "jetson-agx-orin-64gb", "MAXN"
FULL = "pointpillars"
"""The pipeline for user weights that do not fit `PIPELINE`."""
SIMULATED_NS = 10_000_000_000
MODELLED = "Everything about the Jetson is derived or simulated from the plan's stage times; no Jetson was involved."


class DemoRequest(Request):
    """The input of the demo, and where its report goes."""

    inputs: Path | None = option("--input", name="input_path", kind="path", help="KITTI .bin scan or a folder of them.")
    weights: Path | None = weights(".npz file with trained weights.")
    folder: Path = output_folder("Folder for report and results.", "demo-out")
    frames: int = option(
        "--frames", kind=Whole(1), default=10, shown=True, help="Number of frames to run on this machine."
    )
    seed: int = shared(SimulateOptions, "seed")


@verb("demo", DemoRequest, "Compile, plan, simulate and run a detector on a built-in scene.")
def command(output: Output, request: DemoRequest) -> None:
    """Take a LiDAR scan through compile, plan, simulate and run.

    Plans a PointPillars detector on a Jetson AGX Orin and simulates ten seconds of it, then compiles it for this
    machine, runs it, and compares prediction with measurement. The detector is PointPillars-S with its shipped
    weights; weights of the KITTI three-class network select that network.
    """
    from concurrent.futures import ThreadPoolExecutor  # not for `--help`

    from socsched.api import execution, loading
    from socsched.api.planning import plan_with
    from socsched.api.simulation import simulate
    from socsched.descriptor.catalog import HOST, get_pipeline
    from socsched.descriptor.platform import OWN
    from socsched.executor import probe
    from socsched.executor.build import find_executor
    from socsched.runtime.conditions import Neighbours, refusal

    folder, frames, seed, weights = request.folder, request.frames, request.seed, request.weights
    ready_to_write(folder=folder)
    pipeline_name = fitting(weights)
    scans = execution.scans_or_street(request.inputs, folder, frames, seed)
    folder.mkdir(parents=True, exist_ok=True)
    output.note(
        f"1/3  {len(scans)} scans: {request.inputs or 'a synthetic street, ray-cast by a rotating-LiDAR model'}"
    )

    # what runs later is compiled meanwhile, and all of it before this machine is measured
    with ThreadPoolExecutor(1) as aside:
        building = aside.submit(find_executor)
        output.note(f"2/3  planning {pipeline_name} on {BOARD} ({MODE}) and simulating {SIMULATED_NS // 10**9} s of it")
        board = simulate(plan_with(pipeline_name, BOARD, MODE), SIMULATED_NS, seed=seed)
        output.note("3/3  compiling for this machine (cached from the second time on), planning and running")
        pipeline = of_scans(get_pipeline(pipeline_name), scans)
        probe.prepare(pipeline.stages, weights)
        building.result()
    # Jobs are not preempted here: EDF's test with local deadlines is inconclusive if one stage takes half a period.
    machine = loading.load_platform(HOST)
    own = [f"{engine.id}={OWN}" for engine in machine.engines if OWN in {runtime.name for runtime in engine.runtimes}]
    plan = plan_with(pipeline, machine, options=PlanOptions(policy="fp", runtimes=tuple(own)))
    neighbours = Neighbours()
    notes = frame_notes(output.note, True, frames * len(plan.chains))
    # Before other programs where that is permitted: what is compared is the prediction, not who else is at work.
    how = RunOptions(frames, inputs=scans, weights=weights, seed=seed, realtime="off" if refusal() else "fifo")
    here = execution.run(plan, how, executor="event-chained", on_frame=notes)
    others = neighbours.taken()
    remarked = remarks(here, weights is not None, others)
    files = _write(folder, board, here, remarked, scans, None if request.inputs else seed)
    document = {
        "simulated": {"plan": loading.plan_document(board.plan), "result": board.figures},
        "measured": {"plan": loading.plan_document(here.plan), "result": here.figures},
        "notes": [MODELLED, *remarked],
        "files": [str(file) for file in files],
    }
    output.result(document, lambda: _show(board, here, remarked, files))


def fitting(weights: Path | None) -> str:
    """Return the pipeline that a weights file fits, the small one if no file is given."""
    if weights is None:
        return PIPELINE
    from socsched.models.pointpillars.small import networks
    from socsched.models.weights import load_weights

    arrays = load_weights(weights)
    shapes = {name: shape for network in networks() for name, shape in network.params.items()}
    return PIPELINE if all(name in arrays and arrays[name].shape == shapes[name] for name in shapes) else FULL


def of_scans(pipeline: Pipeline, scans: Sequence[Path]) -> Pipeline:
    """Return a pipeline planned for the largest of some scans, not for the largest of KITTI's."""
    from socsched.models.pointpillars.scan import read_scan
    from socsched.models.pointpillars.voxelise import voxelise

    read = [read_scan(scan) for scan in scans]
    size = {"points": max(map(len, read)), "pillars": max(len(voxelise(scan)[1]) for scan in read)}
    stages = (
        replace(one, params={**one.params, **size}) if "pillars" in one.params else one for one in pipeline.stages
    )
    return replace(pipeline, stages=tuple(stages))


def remarks(here: Result, trained: bool, others: float | None) -> list[str]:
    """Return the caveats needed to interpret the measured numbers.

    `trained`: the user's own weights were used; `others`: cores that other programs occupied meanwhile, None if
    unknown.
    """
    from socsched.runtime.conditions import MUCH

    notes = ["Measured on this machine: the compiled network ran on every scan."]
    if not trained:
        notes.append(
            "The weights are those of PointPillars-S, trained on synthetic scans: on real scans, detection is limited "
            "to scenes that resemble them (docs/models/pointpillars-s.md). Use other weights with --weights."
        )
    if others is not None and others > MUCH:
        notes.append(
            f"Other programs used {others:.1f} cores of this machine during the run: stages took longer than on an "
            "idle machine, stages on several cores most. Repeat the measurement on an idle machine."
        )
    for chain in here.plan.chains:
        worst = here.figures["chains"][chain.name]["response_time_ns"]["max"]
        if worst is None or worst > chain.deadline_ns:
            took = "no frame was finished" if worst is None else f"frames took up to {format_duration(worst)}"
            notes.append(
                f"This machine is not the target: {took}, the deadline of {chain.name} is "
                f"{format_duration(chain.deadline_ns)}. Late frames are expected here."
            )
    return notes


def _write(
    folder: Path,
    board: Result,
    here: Result,
    remarked: list[str],
    scans: list[Path],
    street: int | None,
) -> list[Path]:
    import json
    from shutil import copyfile

    from socsched.api import folders
    from socsched.reporting.pictures import draw_detections

    board.save(folder / "simulated", page=False)
    here.save(folder / "measured", page=False)
    for name, notes in (("simulated", [MODELLED]), ("measured", remarked)):
        write_file(folder / name / folders.NOTES, json.dumps(notes, indent=1) + "\n")
    assert here.trace is not None
    draw_detections(here.trace, scans, folder / folders.PICTURE, street)
    if (folder / folders.PICTURE).is_file():
        copyfile(folder / folders.PICTURE, folder / "measured" / folders.PICTURE)
    folders.render(folder / "simulated", folder / folders.PERFETTO)
    folders.render(folder / "measured", folder / "run.pftrace")
    folders.render(folder, folder / folders.PAGE)
    names = [folders.PAGE, folders.PICTURE, folders.PERFETTO, "run.pftrace", "simulated", "measured"]
    return [folder / name for name in names if (folder / name).exists()]


def _show(board: Result, here: Result, notes: list[str], files: list[Path]) -> None:
    from socsched.reporting import terminal

    screen = terminal.console(terminal_width())
    screen.rule(f"SIMULATED: {board.plan.pipeline} on {BOARD}, mode {board.plan.mode}", align="left")
    screen.print(terminal.plan_view(board.plan))
    screen.print()
    screen.print(terminal.outcome(board.figures))
    screen.print(terminal.power_line(board.plan, board.figures))
    screen.print(f"- {MODELLED}")
    screen.print()
    screen.rule("MEASURED: the same pipeline on this machine", align="left")
    screen.print(terminal.predicted_against_measured(here.plan, here.figures))
    screen.print()
    screen.print(terminal.outcome(here.figures))
    screen.print(terminal.power_line(here.plan, here.figures))
    screen.print()
    for note in notes:
        screen.print(f"- {note}")
    screen.print()
    for file in files:
        echo(f"  {file}")
