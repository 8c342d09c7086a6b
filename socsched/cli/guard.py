"""`socsched guard`: plan, simulate, compare with a baseline, and leave JUnit XML and a Markdown summary for CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import (
    NameOrPath,
    Output,
    Percentage,
    Quantity,
    mode_option,
    output_options,
    planning_options,
    platform_option,
    ready_to_write,
    seed_option,
    terminal_width,
)

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.reporting.diff import PlanDiff

JUNIT, SUMMARY = "junit.xml", "summary.md"


@click.command("guard", short_help="For CI: plan, simulate, compare with a baseline; JUnit, summary, exit code.")
@click.argument("pipeline", metavar="PIPELINE|PLAN.json", type=NameOrPath("pipelines"))
@platform_option(required=False)
@mode_option
@planning_options
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The last accepted plan.json; no figure may be worse by more than --max-regression.",
)
@click.option(
    "--max-regression", type=Percentage(), default="5%", show_default=True, help="Largest tolerated regression."
)
@click.option("--duration", type=Quantity("duration"), default="10s", show_default=True, help="Simulated time.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="guard",
    show_default=True,
    help="Folder for junit.xml, summary.md, plan.json and the simulation's results.",
)
@seed_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    pipeline: str,
    platform: str | None,
    mode: str | None,
    objective: str,
    policy: str,
    profile_file: Path | None,
    baseline: Path | None,
    max_regression: float,
    duration: int,
    folder: Path,
    seed: int,
) -> int:
    """Plan PIPELINE, simulate the plan, and compare it with a committed one.

    junit.xml and summary.md are always written, also for infeasible plans, regressions and invalid files.  To
    accept a change, commit the plan.json of the folder as the new baseline.

    Exit code 0: feasible, every simulated frame in time, nothing worse than the baseline; 1: otherwise; 4: undecided.
    """
    from socsched.api import folders

    output: Output = ctx.obj
    if platform is None and not pipeline.endswith(".json"):
        raise click.UsageError(f"a pipeline needs a platform: socsched guard {pipeline} -p PLATFORM")
    inputs = {path.resolve() for path in (baseline, Path(pipeline)) if path is not None}
    if (folder / folders.PLAN).resolve() in inputs:
        raise click.UsageError(f"{folder / folders.PLAN} would be overwritten: choose another folder with -o")
    ready_to_write(folder=folder)
    _clear(folder)

    def make() -> Plan:
        from socsched.api import loading
        from socsched.api.planning import PlanOptions, plan_with
        from socsched.cli.plan_argument import plan_from

        if pipeline.endswith(".json"):
            return plan_from(ctx, pipeline, platform, mode, objective, policy, profile_file)
        assert platform is not None
        plan = plan_with(pipeline, platform, mode, PlanOptions(objective, policy, profile_file))
        loading.save_plan(plan, folder / folders.PLAN)
        return plan

    try:
        return _guard(output, make, folder, baseline, max_regression, duration, seed)
    except Exception as error:
        _failed(folder, pipeline, error)
        raise


def _clear(folder: Path) -> None:
    """Remove the files of an earlier guard, so that none of them describes another plan."""
    from socsched.api import folders

    for name in (folders.PLAN, folders.RESULT, folders.TRACE, folders.PERFETTO, folders.PAGE, JUNIT, SUMMARY):
        (folder / name).unlink(missing_ok=True)


def _guard(
    output: Output,
    make: Callable[[], Plan],
    folder: Path,
    baseline: Path | None,
    allowed: float,
    duration_ns: int,
    seed: int,
) -> int:
    from socsched.api import folders, loading
    from socsched.api.simulation import simulate
    from socsched.cli import outcomes
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.reporting import junit, summary

    plan = make()
    trace, result = None, dict[str, Any]()
    if plan.tasks:
        done = simulate(plan, duration_ns, seed=seed)
        trace, result = done.trace, dict(done.figures)
        done.save(folder)
    else:
        loading.save_plan(plan, folder / folders.PLAN)
    differences = _compared(plan, baseline, folder / folders.PLAN, allowed)
    (folder / JUNIT).write_text(junit.render(plan, result, differences), encoding="utf-8")
    text = summary.render(plan, trace, result)
    if differences is not None:
        from socsched.reporting.compare_view import markdown

        text += "\n" + markdown(differences, str(baseline), str(folder / folders.PLAN), allowed)
    (folder / SUMMARY).write_text(text, encoding="utf-8")
    output.note(f"wrote {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")

    def show() -> None:
        from socsched.reporting import terminal
        from socsched.reporting.compare_view import view

        screen = terminal.console(terminal_width())
        if result:
            screen.print(terminal.observed(result))
        screen.print(terminal.planned(plan))
        screen.print(terminal.violations(plan))
        if result:
            screen.print(terminal.outcome(result))
        if differences is not None:
            screen.print(view(differences, str(baseline), str(folder / folders.PLAN), allowed))

    document = {"verdict": plan.verdict, "chains": result.get("chains", {}), "folder": str(folder)}
    output.result(document | ({"compared": differences.document()} if differences is not None else {}), show)
    lost = outcomes.outcome_code(result) if result else EXIT_OK
    regressed = EXIT_VIOLATED if differences is not None and differences.regressions else EXIT_OK
    codes = {outcomes.exit_code(plan), lost, regressed} - {EXIT_OK}
    return min(codes, default=EXIT_OK)


def _compared(plan: Plan, baseline: Path | None, plan_file: Path, allowed: float) -> PlanDiff | None:
    from socsched.api.loading import load_plan
    from socsched.errors import InputError
    from socsched.reporting.diff import diff

    if baseline is None:
        return None
    if not baseline.exists():
        raise InputError(f"{baseline}: baseline not found", f"review {plan_file} and commit it as {baseline}")
    return diff(load_plan(baseline), plan, allowed)


def _failed(folder: Path, name: str, error: Exception) -> None:
    """Write JUnit and summary of a guard that reached no verdict; files of an existing verdict stay."""
    from socsched.errors import SocschedError
    from socsched.reporting import junit, summary

    hint = error.hint if isinstance(error, SocschedError) else ""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / JUNIT).exists():
        (folder / JUNIT).write_text(junit.error_case(name, str(error), hint), encoding="utf-8")
    if not (folder / SUMMARY).exists():
        (folder / SUMMARY).write_text(summary.error_summary(name, str(error), hint), encoding="utf-8")
