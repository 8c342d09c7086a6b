"""`socsched plan`: the mapping of stages to engines, and whether every requirement holds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.export import FORMATS
from socsched.cli.options import (
    Output,
    mode_option,
    output_options,
    pipeline_argument,
    platform_option,
    ready_to_write,
    terminal_width,
)
from socsched.cli.search_options import search_options

if TYPE_CHECKING:
    from socsched.api.planning import PlanOptions
    from socsched.descriptor.platform import Supply


@click.command("plan", short_help="Map a pipeline onto a platform and prove its deadlines.")
@pipeline_argument
@platform_option(required=False)
@mode_option
@search_options
@click.option(
    "--pareto",
    is_flag=True,
    help="Plan every power mode and objective and print a table; -o FILE.svg draws it, -o pareto.json is for reports.",
)
@click.option(
    "--wall", is_flag=True, help="State the power at the wall too, if the platform has a carrier and an adaptor."
)
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    help="Output file: the plan (plan.json), or the front of --pareto (FILE.svg, pareto.json).",
)
@click.option(
    "--export",
    "form",
    type=click.Choice(list(FORMATS)),
    help=f"Format of -o: {'; '.join(f'{name}: {form.what}' for name, form in FORMATS.items())}.",
)
@click.option(
    "--template",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the target whose identifiers an export keeps, such as the one of autoware's prerun mode.",
)
@click.option(
    "--map",
    "mapped",
    multiple=True,
    metavar="TASK=ID",
    help="Identifier of a task in the export; TASK= leaves it out of a template.",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str,
    platform: str | None,
    mode: str | None,
    options: PlanOptions,
    pareto: bool,
    wall: bool,
    file: Path | None,
    form: str | None,
    template: Path | None,
    mapped: tuple[str, ...],
) -> int:
    """Map PIPELINE onto a platform: engine, precision and priority of every stage, bounds, power, verdict.

    With --export, PIPELINE may also be a finished plan.json.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.api import loading
    from socsched.api.planning import plan_with
    from socsched.cli import outcomes
    from socsched.descriptor.fields import seldom_repeats

    started = time.monotonic()
    if form and not file:
        raise click.UsageError("--export needs an output file: -o FILE")
    if (template or mapped) and not form:
        raise click.UsageError("--template and --map are options of --export")
    names = _names(mapped)
    if form and FORMATS[form].folder:
        if file and file.exists() and not file.is_dir():
            raise click.BadParameter(f"File '{file}' is no folder.", param_hint="'-o' / '--output'")
        ready_to_write(folder=file)
    else:
        if file and file.is_dir():
            raise click.BadParameter(f"File '{file}' is a directory.", param_hint="'-o' / '--output'")
        ready_to_write(file=file)
    if pipeline.endswith(".json") and form:
        plan = loading.load_plan(Path(pipeline))
    elif platform is None:
        raise click.UsageError(f"a pipeline needs a platform: socsched plan {pipeline} -p PLATFORM")
    elif pareto:
        from socsched.cli.pareto import show as front

        return front(output, pipeline, platform, mode, options, file)
    else:
        plan = plan_with(pipeline, platform, mode, options)
    warning = seldom_repeats([task.period_ns for task in plan.tasks])
    if warning:
        output.warn(warning)
    seconds = round(time.monotonic() - started, 3)
    if file:
        if form:
            from socsched.cli.export import export

            export(plan, form, file, template, names)
        else:
            loading.save_plan(plan, file)
        output.note(f"wrote {file}")

    supply = _supply(output, platform or plan.platform) if wall else None

    def show() -> None:
        from rich.text import Text

        from socsched.reporting.terminal import console, plan_view
        from socsched.reporting.view_model import wall as at_the_wall

        screen = console(terminal_width())
        screen.print(plan_view(plan))
        if supply:
            screen.print(Text(at_the_wall(supply, plan.power.expected_mw or 0)))

    # next to the plan, not in it, so that the same input gives the same plan.json
    output.result({**loading.plan_document(plan), "planning_seconds": seconds}, show)
    return outcomes.exit_code(plan)


def _names(mapped: tuple[str, ...]) -> dict[str, str]:
    """Return task -> identifier of the --map options."""
    found: dict[str, str] = {}
    for text in mapped:
        task, equals, identity = text.partition("=")
        if not equals or not task or task in found:
            raise click.UsageError(f"--map {text}: expected TASK=ID, once for each task")
        found[task] = identity
    return found


def _supply(output: Output, platform: str) -> Supply | None:
    from socsched.descriptor.catalog import get_platform

    board = get_platform(platform)
    if board.supply is None:
        output.warn(f"{board.name} states no carrier board and adaptor (supply): no power at the wall")
    return board.supply
