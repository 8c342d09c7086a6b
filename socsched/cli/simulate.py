"""`socsched simulate`: what a plan does over time, on a clock of integer nanoseconds."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import (
    Output,
    Quantity,
    folder_option,
    mode_option,
    output_options,
    planning_options,
    platform_option,
    seed_option,
    terminal_width,
)


@click.command("simulate", short_help="Run a plan or a pipeline on a simulated board.")
@click.argument("plan", metavar="PLAN.json|PIPELINE")
@platform_option(required=False)
@mode_option
@planning_options
@click.option("--duration", type=Quantity("duration"), default="60s", show_default=True, help="Simulated time.")
@seed_option
@click.option(
    "--faults",
    "faults_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file with sensor dropouts, slow engines, overruns.",
)
@folder_option
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
    duration: int,
    seed: int,
    faults_file: Path | None,
    folder: Path | None,
) -> int:
    """Simulate a plan, or plan a pipeline first and simulate that; the same seed gives the same bytes.

    Exit code 0: every frame in time, 1: some late or dropped.
    """
    from socsched.cli import line, results

    output: Output = ctx.obj
    made = line.plan_from(ctx, plan, platform, mode, objective, policy, profile_file)
    if not made.tasks:
        return line.refused(output, made)
    chosen = policy if _given(ctx, "policy") else None
    trace = line.simulate(made, duration, seed, chosen, faults_file)
    result = line.result(made, trace)
    if folder:
        results.save(folder, made, trace, result)
        output.note(f"wrote {folder}/ (report.html, trace.pftrace, plan.json, result.json)")

    def show() -> None:
        from socsched.report import terminal

        screen = terminal.console(terminal_width())
        for item in (
            terminal.verdict(made),
            terminal.outcome(result),
            terminal.engines(result),
            terminal.power_line(made, result),
        ):
            screen.print(item)

    output.result(result, show)
    return line.outcome_code(result)


def _given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
