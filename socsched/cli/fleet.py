"""`socsched fleet`: many vehicles with the same configuration, each with its own load, environment and faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import NameOrPath, Output, folder_option, output_options, terminal_width
from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError

if TYPE_CHECKING:
    from socsched.study.design import Point
    from socsched.study.fleet import Driven
    from socsched.study.inputs import Inputs


@click.command("fleet", short_help="Simulate vehicles that differ in load, temperature and faults.")
@click.argument("study", type=NameOrPath("studies"), metavar="STUDY.yaml")
@folder_option
@click.option(
    "--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True, help="Local cores or Ray."
)
@click.option("--workers", type=click.IntRange(1), help="Number of cores to use; default: all.")
@click.option(
    "--address", metavar="HOST:PORT|auto", help="Ray cluster; default: $RAY_ADDRESS, else one on this machine."
)
@click.option("--resume", is_flag=True, help="Resume from the output folder; finished vehicles are skipped.")
@click.option("--vehicle", type=click.IntRange(0), metavar="SEED", help="Replay one vehicle, with trace and report.")
@click.option("--config", type=click.IntRange(0), default=0, help="With --vehicle: its configuration.")
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    study: str,
    folder: Path | None,
    engine: str,
    workers: int | None,
    address: str | None,
    resume: bool,
    vehicle: int | None,
    config: int,
) -> int:
    """Simulate every vehicle of a study's fleet: misses per million frames, worst vehicles, cost of larger fleets.

    The folder (default: NAME-fleet) gets fleet.parquet and report.html.

    Exit code 0: no frame of any vehicle late or dropped, 1: some were.
    """
    from socsched.descriptor.study import load_study
    from socsched.study import store as table
    from socsched.study.engines import engine as chosen_engine
    from socsched.study.fleet import drive, fleet_of
    from socsched.study.inputs import gather
    from socsched.study.store import create
    from socsched.study.sweep import configurations

    output: Output = ctx.obj
    specification = load_study(study)
    fleet_of(specification)
    points, inputs = configurations(specification), gather(specification)
    if vehicle is not None:
        point = next((point for point in points if point.config == config), None)
        if point is None:
            raise UsageError(f"the study has no configuration {config}", f"0 to {len(points) - 1}")
        return _replay(output, inputs, point, vehicle, folder)
    table.require()
    target = folder or Path(f"{specification.name}-fleet")
    team = chosen_engine(engine, inputs, target / "inputs", workers, address)
    store = create(target, f"fleet {inputs.digest()}", resume)
    done = drive(inputs, points, target, store, team, None if output.quiet else output.note)
    _write(done, inputs, study, engine)
    output.note(f"{done.fresh} vehicles in {done.seconds:.1f} s; wrote {target}/ (fleet.parquet, report.html)")
    output.result(_document(done, study), lambda: _show(done, study))
    return EXIT_VIOLATED if any(group.misses for group in done.groups) else EXIT_OK


def _write(done: Driven, inputs: Inputs, argument: str, engine: str) -> None:
    from socsched import __version__
    from socsched.study import fleet as fleet_report
    from socsched.study import store as table
    from socsched.study.fleet import COLUMNS
    from socsched.study.store import replace_file

    about = {"study": done.study.name, "inputs": inputs.digest(), "socsched": __version__}
    table.write(done.folder / "fleet.parquet", COLUMNS, done.rows, about)
    made_by = {"command": f"socsched fleet {argument} --engine {engine}", **about}
    replace_file(done.folder / "report.html", fleet_report.page(done, argument, made_by).encode())


def _document(done: Driven, argument: str) -> dict[str, Any]:
    from socsched.study.fleet import extrapolation, replay

    return {
        "study": done.study.name,
        "groups": [
            {
                "config": group.point.config,
                "platform": group.rows[0]["platform"],
                "mode": group.rows[0]["mode"],
                "vehicles": len(group.rows),
                "frames": group.frames,
                "misses": group.misses,
                "misses_per_million": group.per_million,
                "misses_low_per_million": group.low,
                "misses_high_per_million": group.high,
                "design_effect": group.effect,
                "vehicles_with_misses": group.hit,
                "worst": [{**row, "replay": replay(done, row, argument)} for row in group.worst],
            }
            for group in done.groups
        ],
        "extrapolation": dict(extrapolation(done)),
    }


def _show(done: Driven, argument: str) -> None:
    from socsched.reporting.terminal import console, table
    from socsched.study import fleet as fleet_report
    from socsched.study.fleet import extrapolation

    screen = console(terminal_width())
    names = ["seed", "load", "ambient C", "faults/min", "missed", "dropped", "frames", "worst response", "of"]
    for group in done.groups:
        screen.print(f"{fleet_report.configuration_name(group)}: {fleet_report.misses(group, done)}")
        rows = [fleet_report.cells(row) for row in group.worst]
        if rows:
            screen.print(table("worst vehicles", names, rows, range(7)))
            screen.print(f"replay the worst: {fleet_report.replay(done, group.worst[0], argument)}")
    for name, value in extrapolation(done):
        screen.print(f"{name}: {value}")


def _replay(output: Output, inputs: Inputs, point: Point, seed: int, folder: Path | None) -> int:
    """Simulate one vehicle again, with a trace; its figures equal those of its row."""
    from socsched.api import folders
    from socsched.api.simulation import figures
    from socsched.cli import outcomes
    from socsched.reporting import terminal
    from socsched.sim.engine import run
    from socsched.study.fleet import fleet_of, vehicle
    from socsched.study.runs import override
    from socsched.study.work import make, open_inputs, pack, unpack

    opened = open_inputs(inputs)
    planned = unpack(pack(make(opened, point), opened.folder), opened.folder)
    one = vehicle(inputs.study, planned, seed)
    fleet = fleet_of(inputs.study)
    output.note(
        f"vehicle {seed}: load {one.load / 1e6:g}"
        + ("" if one.ambient_mc is None else f", {one.ambient_mc / 1000:g} C ambient")
        + f", {float(one.faults_per_minute):g} faults a minute"
    )
    done = run(one.plan, fleet.duration_ns, seed, override(point.policy), one.faults, record=True)
    assert done.trace is not None
    result = figures(done)
    if folder:
        folders.save(folder, one.plan, done.trace, result)
        output.note(f"wrote {folder}/ (report.html, trace.pftrace, plan.json, result.json)")

    def show() -> None:
        screen = terminal.console(terminal_width())
        for item in (terminal.outcome(result), terminal.engines(result), terminal.power_line(one.plan, result)):
            screen.print(item)

    output.result(result, show)
    return outcomes.outcome_code(result)
