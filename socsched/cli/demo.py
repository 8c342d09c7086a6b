"""`socsched demo`: the main job on built-in input, with a report at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import Output, echo, output_options, ready_to_write, seed_option, terminal_width

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.trace.trace import Trace

PIPELINE, BOARD, MODE = "pointpillars-s", "jetson-agx-orin-64gb", "MAXN"
FULL = "pointpillars"
"""The pipeline for users' weights that do not fit `PIPELINE`."""
SIMULATED_NS = 10_000_000_000
MODELLED = "Everything about the Jetson is derived or simulated from the plan's stage times; no Jetson was involved."


@dataclass(frozen=True, slots=True)
class Outcome:
    """A plan with what came of it."""

    plan: Plan
    trace: Trace
    result: dict[str, Any]


@click.command("demo", short_help="The main job on a built-in street scene; starts here.")
@click.option("--input", "input_path", type=click.Path(path_type=Path), help="KITTI .bin scan or a folder of them.")
@click.option(
    "--weights", type=click.Path(path_type=Path), envvar="SOCSCHED_WEIGHTS", help="npz file with trained weights."
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="demo-out",
    show_default=True,
    help="Folder for report and results.",
)
@click.option("--frames", type=click.IntRange(1), default=10, show_default=True, help="Frames to run on this machine.")
@seed_option
@output_options
@click.pass_obj
def command(
    output: Output, input_path: Path | None, weights: Path | None, folder: Path, frames: int, seed: int
) -> None:
    """Take a LiDAR scan through compile, plan, simulate and run.

    Plans a PointPillars detector on a Jetson AGX Orin and simulates ten seconds of it, then compiles it for this
    machine, runs it, and compares prediction with measurement. The detector is PointPillars-S with the weights that
    come along; weights of the KITTI three-class network bring that network.
    """
    from socsched.cli import line, planning, runs
    from socsched.runtime.neighbours import Neighbours

    ready_to_write(folder=folder)
    pipeline_name = fitting(weights)
    scans = runs.scans(input_path, folder, frames, seed)
    folder.mkdir(parents=True, exist_ok=True)
    output.note(f"1/3  {len(scans)} scans: {input_path or 'a synthetic street, ray-cast by a rotating-LiDAR model'}")

    output.note(f"2/3  planning {pipeline_name} on {BOARD} ({MODE}) and simulating {SIMULATED_NS // 10**9} s of it")
    plan = planning.planned(pipeline_name, BOARD, MODE)
    trace = line.simulate(plan, SIMULATED_NS, seed)
    board = Outcome(plan, trace, line.result(plan, trace))

    output.note("3/3  compiling for this machine (cached from the second time on), planning and running")
    # Jobs here are never preempted: EDF's test with local deadlines proves nothing where one stage takes half a period.
    plan = planning.planned(pipeline_name, "host", how=planning.How(policy="fp", refine=False))
    pipeline = line.pipeline_of(plan, None, output.warn)
    neighbours = Neighbours()
    trace = runs.execute(plan, pipeline, frames=frames, scans=scans, weights=weights, seed=seed, note=output.note)
    others = neighbours.taken()
    here = Outcome(plan, trace, line.result(plan, trace))

    notes = remarks(here, weights is not None, others)
    files = _write(folder, board, here, notes, scans, None if input_path else seed)
    document = {
        "simulated": {"plan": line.plan_document(board.plan), "result": board.result},
        "measured": {"plan": line.plan_document(here.plan), "result": here.result},
        "notes": [MODELLED, *notes],
        "files": [str(file) for file in files],
    }
    output.result(document, lambda: _show(board, here, notes, files))


def fitting(weights: Path | None) -> str:
    """Return the pipeline a weights file is for, the small one without a file."""
    if weights is None:
        return PIPELINE
    from socsched.models.pointpillars.small import networks
    from socsched.models.weights import load_weights

    given = load_weights(weights)
    shapes = {name: shape for network in networks() for name, shape in network.params.items()}
    return PIPELINE if all(name in given and given[name].shape == shapes[name] for name in shapes) else FULL


def remarks(here: Outcome, trained: bool, others: float | None) -> list[str]:
    """Return what a reader must know to take the measured numbers for what they are.

    `trained`: the user's own weights were used; `others`: processors that other programs took meanwhile, None where
    that is not known.
    """
    from socsched.runtime.neighbours import MUCH
    from socsched.units import format_duration

    notes = ["Measured just now on this machine, which ran the compiled network on every scan."]
    if not trained:
        notes.append(
            "The weights are PointPillars-S's own, trained on synthetic scans: of real streets they know what those "
            "resemble (docs/models/pointpillars-s.md). Name others with --weights."
        )
    if others is not None and others > MUCH:
        notes.append(
            f"Other programs took {others:.1f} processors of this machine meanwhile: stages took longer than they "
            "would alone, those on several processors most. Measure on a quiet machine."
        )
    for chain in here.plan.chains:
        worst = here.result["chains"][chain.name]["response_time_ns"]["max"]
        if worst is None or worst > chain.deadline_ns:
            took = "finished no frame" if worst is None else f"took up to {format_duration(worst)}"
            notes.append(
                f"This machine is not the target: it {took} where {chain.name} allows "
                f"{format_duration(chain.deadline_ns)}. Its late frames are real, and expected here."
            )
    return notes


def _write(
    folder: Path,
    board: Outcome,
    here: Outcome,
    remarked: list[str],
    scans: list[Path],
    street: int | None,
) -> list[Path]:
    import json

    from socsched.cli import results, runs
    from socsched.files import write_file

    results.save(folder / "simulated", board.plan, board.trace, board.result, page=False)
    results.save(folder / "measured", here.plan, here.trace, here.result, page=False)
    for name, notes in (("simulated", [MODELLED]), ("measured", remarked)):
        write_file(folder / name / results.NOTES, json.dumps(notes, indent=1) + "\n")
    runs.draw(here.trace, scans, folder / results.PICTURE, street)
    for source, name in (
        (folder / results.PICTURE, "measured/" + results.PICTURE),
        (folder / "simulated" / results.PERFETTO, results.PERFETTO),
        (folder / "measured" / results.PERFETTO, "run.pftrace"),
    ):
        if source.is_file():
            write_file(folder / name, source.read_bytes())
    results.render(folder, folder / results.PAGE)
    names = [results.PAGE, results.PICTURE, results.PERFETTO, "run.pftrace", "simulated", "measured"]
    return [folder / name for name in names if (folder / name).exists()]


def _show(board: Outcome, here: Outcome, notes: list[str], files: list[Path]) -> None:
    from socsched.reporting import terminal

    screen = terminal.console(terminal_width())
    screen.rule(f"SIMULATED: {board.plan.pipeline} on {BOARD}, mode {board.plan.mode}", align="left")
    screen.print(terminal.plan_view(board.plan))
    screen.print()
    screen.print(terminal.outcome(board.result))
    screen.print(terminal.power_line(board.plan, board.result))
    screen.print(f"- {MODELLED}")
    screen.print()
    screen.rule("MEASURED: the same pipeline on this machine", align="left")
    screen.print(terminal.predicted_against_measured(here.plan, here.result))
    screen.print()
    screen.print(terminal.outcome(here.result))
    screen.print(terminal.power_line(here.plan, here.result))
    screen.print()
    for note in notes:
        screen.print(f"- {note}")
    screen.print()
    for file in files:
        echo(f"  {file}")
