"""`socsched study policies`: compare scheduling policies over loads and seeds."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.api.options import PlanOptions, shared
from socsched.cli.options import (
    Number,
    Numbers,
    Percentage,
    Quantity,
    mode,
    objective,
    output_folder,
    platform,
    profile,
)
from socsched.cli.output import Output, ready_to_write, terminal_width
from socsched.cli.verbs import decorated, output_options


@click.command("policies", short_help="Compare scheduling policies over loads and seeds.")
@click.argument("plan", metavar="PLAN.json|PIPELINE")
@decorated(platform=platform(required=False))
@decorated(mode=mode())
@decorated(objective=objective(), policy=shared(PlanOptions, "policy"), profile=profile())
@click.option(
    "--policies", "names", metavar="NAME[,...]", help="Policies to compare; by default all that apply (see simulate)."
)
@click.option(
    "--loads", type=Numbers(), default="1", show_default=True, help="Factors on the rates of sources; 1 is as planned."
)
@click.option(
    "--seeds", type=click.IntRange(1), default=20, show_default=True, help="Simulations of each policy and load."
)
@click.option("--duration", type=Quantity("duration"), default="10s", show_default=True, help="Simulated time of each.")
@click.option(
    "--spread",
    type=Percentage(),
    default="30%",
    show_default=True,
    help="Largest reduction of a job's time below its cost.",
)
@click.option(
    "--sla",
    type=Number(1),
    default=4.0,
    show_default=True,
    help="Agreed response as a multiple of that alone.",
)
@decorated(folder=output_folder())
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    plan: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
    names: str | None,
    loads: tuple[float, ...],
    seeds: int,
    duration: int,
    spread: float,
    sla: float,
    folder: Path | None,
) -> int:
    """Simulate one plan under many policies and show misses, tails, turnaround, fairness and energy.

    Each policy is applied to every engine; the row "as planned" keeps the plan's policies.  A seed draws the phases of
    sensors and timers, and the execution times of jobs.  -o writes policies.json and policies.svg.  Exit code 0:
    compared.
    """
    from socsched.cli import results
    from socsched.cli.results import plan_from
    from socsched.errors import EXIT_OK, UsageError
    from socsched_literature.studies import policies as studied
    from socsched_literature.studies.saved import save_study

    output: Output = ctx.obj
    if spread >= 1:
        raise UsageError(f"--spread must be below 100%, got {spread:.0%}")
    wanted = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
    if wanted is not None:
        studied.needs(wanted)
    ready_to_write(folder=folder)
    loaded = plan_from(plan, platform, mode, PlanOptions(objective, policy, profile_file))
    if not loaded.tasks:
        return results.show_refusal(output, loaded)
    found = studied.study(loaded, wanted, loads, seeds, duration, spread, sla, output.note)
    if folder:
        for path in save_study(folder, "policies", studied.document(found), studied.figure(found)):
            output.note(f"wrote {path}")

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(studied.view(found))

    output.result(studied.document(found), show)
    return EXIT_OK
