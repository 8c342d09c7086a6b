"""`socsched study planners`: compare the planners of the literature with ours on one pipeline and platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.api.options import PlanOptions, shared
from socsched.cli.options import Number, mode, objective, output_folder, platform, profile
from socsched.cli.output import Output, ready_to_write, terminal_width
from socsched.cli.verbs import decorated, output_options

if TYPE_CHECKING:
    from socsched.planning.plan import Plan


@click.command("planners", short_help="Compare planners from the literature with socsched's.")
@click.argument("pipeline", required=False)
@decorated(platform=platform(required=False))
@decorated(mode=mode())
@decorated(objective=objective(), policy=shared(PlanOptions, "policy"), profile=profile())
@click.option(
    "--planners",
    "names",
    multiple=True,
    metavar="NAME[:OPTION=VALUE,...]",
    help="A planner to compare; repeat it for several. All planners, with socsched's own, by default.",
)
@click.option("--list", "listing", is_flag=True, help="Show the planners with their papers and options, and exit.")
@click.option("--time-limit", type=Number(0.1), default=30.0, show_default=True, help="Seconds for each planner.")
@decorated(folder=output_folder())
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str | None,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
    names: tuple[str, ...],
    listing: bool,
    time_limit: float,
    folder: Path | None,
) -> int:
    """Plan PIPELINE with every planner, simulate the plans, and show latency, bounds, energy and planning time.

    -o writes planners.json and planners.svg.

    Exit code 0: some plan is feasible, 1: none is.
    """
    from socsched.api import comparison
    from socsched.api.options import PlanOptions
    from socsched.api.planning import plan_with
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.reporting.pareto import figure
    from socsched_literature.studies import planners as study
    from socsched_literature.studies.saved import save_study

    def listed() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(study.listing())

    if listing:
        output.result(study.listing_document(), listed)
        return EXIT_OK
    if not pipeline or not platform:
        raise click.UsageError("name a pipeline and a platform: socsched study planners PIPELINE -p PLATFORM")
    _check(pipeline, platform, mode, profile_file)
    ready_to_write(folder=folder)
    options = PlanOptions(objective, policy, profile_file, time_limit=time_limit, explain=False)

    def make(name: str, settings: Mapping[str, str]) -> Plan:
        if name == comparison.OURS:
            return plan_with(pipeline, platform, mode, options)
        # proposals of other planners are simulated below, refined or not
        return plan_with(pipeline, platform, mode, replace(options, planner=name, settings=settings, refine=False))

    outcomes = comparison.compare_planners(comparison.select_planners(names), make)
    if folder:
        picture = figure(comparison.points(outcomes))
        for path in save_study(folder, "planners", study.document(outcomes), picture):
            output.note(f"wrote {path}")

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(study.view(outcomes))

    output.result(study.document(outcomes), show)
    return EXIT_OK if any(o.plan and o.plan.verdict == "feasible" for o in outcomes) else EXIT_VIOLATED


def _check(pipeline: str, platform: str, mode: str | None, profile: Path | None) -> None:
    """Raise UsageError or InputError for invalid inputs before the first planner runs."""
    from socsched.api.planning import get_mode
    from socsched.cost.profile import load_profile
    from socsched.descriptor.catalog import get_pipeline, get_platform

    get_pipeline(pipeline)
    get_mode(get_platform(platform), None if mode == "auto" else mode)
    if profile is not None:
        load_profile(profile)
