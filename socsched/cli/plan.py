"""`socsched plan`: the mapping of stages to engines, and whether every requirement holds; fronts over power modes."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched import deadline
from socsched.api.export import FORMATS, export
from socsched.api.options import PlanOptions, option, requested
from socsched.cli.options import mode, output_file, pipeline, platform, quick, skip_probe
from socsched.cli.output import Output, ready_to_write
from socsched.cli.results import check_options, exit_code
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, UsageError
from socsched.files import write_file

if TYPE_CHECKING:
    from socsched.planning.pareto import Point


class PlanRequest(Request):
    """What is planned, and where the plan goes."""

    pipeline: str = pipeline()
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    options: PlanOptions = requested(PlanOptions)
    pareto: bool = option(
        "--pareto", kind="flag",
        help="Plan every power mode and objective and print a table; -o FILE.svg draws it, -o pareto.json is for "
        "reports.",
    )  # fmt: skip
    quick: bool = quick()
    wall: bool = option(
        "--wall", kind="flag", help="State the power at the wall too, if the platform has a carrier and an adaptor."
    )
    file: Path | None = output_file(
        "Output file: the plan (plan.json), or the front of --pareto (FILE.svg, pareto.json).", kind="path"
    )
    form: str | None = option(
        "--export", kind=tuple(FORMATS),
        help=f"Format of -o: {'; '.join(f'{name}: {form.what}' for name, form in FORMATS.items())}.",
    )  # fmt: skip
    template: Path | None = option(
        "--template", kind="file",
        help="File of the target whose identifiers an export keeps, such as the one of autoware's prerun mode.",
    )  # fmt: skip
    mapped: tuple[str, ...] = option(
        "--map", multiple=True, metavar="TASK=ID",
        help="Identifier of a task in the export; TASK= leaves it out of a template.",
    )  # fmt: skip


def _ready_to_export(request: PlanRequest) -> dict[str, str]:
    """Check what -o and --export ask for, and return the identifiers of tasks in the export."""
    file, form = request.file, request.form
    if form and not file:
        raise click.UsageError("--export needs an output file: -o FILE")
    if (request.template or request.mapped) and not form:
        raise click.UsageError("--template and --map are options of --export")
    names: dict[str, str] = {}
    for text in request.mapped:
        task, equals, identity = text.partition("=")
        if not equals or not task or task in names:
            raise click.UsageError(f"--map {text}: expected TASK=ID, once for each task")
        names[task] = identity
    folder = form is not None and FORMATS[form].folder
    if file and file.exists() and file.is_dir() is not folder:
        problem = "is no folder" if folder else "is a directory"
        raise click.BadParameter(f"File '{file}' {problem}.", param_hint="'-o' / '--output'")
    ready_to_write(**{"folder" if folder else "file": file})
    return names


@verb("plan", PlanRequest, "Map a pipeline onto a platform and prove its deadlines.")
def command(output: Output, request: PlanRequest) -> int:
    """Map PIPELINE onto a platform: engine, precision and priority of every stage, bounds, power, verdict.

    With --export, PIPELINE may also be a finished plan.json.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.api import loading
    from socsched.api.planning import plan_with
    from socsched.descriptor.catalog import get_platform
    from socsched.descriptor.fields import seldom_repeats
    from socsched.models.sizes import open_batches, sized

    started = time.monotonic()
    skip_probe(request.quick)
    check_options(request.options)
    file, form, platform = request.file, request.form, request.platform
    names = _ready_to_export(request)
    if request.pipeline.endswith(".json") and form:
        plan = loading.load_plan(Path(request.pipeline))
    elif platform is None:
        raise click.UsageError(f"a pipeline needs a platform: socsched plan {request.pipeline} -p PLATFORM")
    elif request.pareto:
        return _show_front(output, request, platform)
    else:
        sizes = request.options.shapes, request.options.dims
        for text in open_batches(sized(loading.load_pipeline(request.pipeline), *sizes)):
            output.warn(f"{text} (--dim and --shape set it)")
        with deadline.command(output.started):
            plan = plan_with(request.pipeline, platform, request.mode, request.options)
    if warning := seldom_repeats([task.period_ns for task in plan.tasks]):
        output.warn(warning)
    from socsched.planning.task import LOAD

    told = {*(engine.id for engine in plan.engines), *(task.name for task in plan.tasks if task.shared)}
    for name, text in (plan.solver.notes or {}).items():
        if name in told or f"{LOAD}{name}" in {task.name for task in plan.tasks}:
            output.note(f"{name}: {text}")
    seconds = round(time.monotonic() - started, 3)
    if file:
        if form:
            export(plan, form, file, request.template, names)
        else:
            loading.save_plan(plan, file)
        output.note(f"wrote {file}")
        source = Path(request.pipeline)
        if not form and source.is_file() and source.resolve().parent != Path.cwd():
            # a plan names its pipeline by name alone: the same input gives the same plan wherever it lies
            output.note(f"verbs that read this plan find the pipeline by --pipeline {shlex.quote(str(source))}")

    supply = None
    if request.wall:
        board = get_platform(platform or plan.platform)
        supply = board.supply
        if supply is None:
            output.warn(f"{board.name} states no carrier board and adaptor (supply): no power at the wall")

    def show() -> list[Any]:
        from rich.text import Text

        from socsched.reporting.terminal import plan_view
        from socsched.reporting.view_model import wall

        return [plan_view(plan), *([Text(wall(supply, plan.power.expected_mw or 0))] if supply else [])]

    # next to the plan, not in it, so that the same input gives the same plan.json
    output.result({**loading.plan_document(plan), "planning_seconds": seconds}, show)
    return exit_code(plan)


def _show_front(output: Output, request: PlanRequest, platform: str) -> int:
    """Print the front, draw it to a file, and return the exit code: 0 if any mode meets every requirement."""
    from socsched.reporting import pareto

    file = request.file
    if request.mode not in (None, "auto"):
        raise UsageError("--pareto plans every mode", "omit --mode")
    if file is not None and file.suffix.lower() != ".svg" and not file.name.endswith("pareto.json"):
        raise UsageError(f"{file}: the front can only be drawn as SVG", "use -o FILE.svg, or pareto.json for reports")
    points = explore(request.pipeline, platform, request.options)
    if file is not None:
        if file.suffix.lower() == ".json":
            write_file(file, json.dumps(pareto.document(points), indent=1) + "\n")
        else:
            pareto.draw(file, points)
        output.note(f"wrote {file}")
    output.result(pareto.document(points), lambda: pareto.view(points))
    verdicts = {point.plan.verdict for point in points}
    if "feasible" in verdicts:
        return EXIT_OK
    return EXIT_UNDECIDED if "undecided" in verdicts else EXIT_VIOLATED


def explore(pipeline: str, platform: str, options: PlanOptions) -> list[Point]:
    """Plan every mode of a platform and every objective."""
    from socsched.api.planning import known_costs, plan_with
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.planning import pareto

    board = get_platform(platform)
    costs = known_costs(board, options)
    return pareto.explore(
        get_pipeline(pipeline),
        board,
        costs.work,
        lambda mode, objective: plan_with(
            pipeline, platform, mode, replace(options, objective=objective, explain=False), costs
        ),
    )
