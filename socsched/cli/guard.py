"""`socsched guard`: plan, simulate, compare with a baseline, and leave JUnit XML and a Markdown summary for CI."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import (
    NameOrPath,
    Output,
    Percentage,
    Quantity,
    Slack,
    allow_weaker_option,
    mode_option,
    output_options,
    platform_option,
    ready_to_write,
    seed_option,
    terminal_width,
)
from socsched.cli.search_options import refuse_with_plan, search_options

if TYPE_CHECKING:
    from socsched.api.planning import PlanOptions
    from socsched.planning.plan import Plan
    from socsched.reporting.plan_diff import PlanDiff

JUNIT, SUMMARY = "junit.xml", "summary.md"


@click.command("guard", short_help="For CI: plan, simulate, compare with a baseline; JUnit, summary, exit code.")
@click.argument("pipeline", metavar="PIPELINE|PLAN.json", type=NameOrPath("pipelines"))
@platform_option(required=False)
@mode_option
@search_options
@click.option(
    "--baseline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The last accepted plan.json; no figure may be worse by more than --max-regression.",
)
@click.option(
    "--max-regression", type=Percentage(), default="5%", show_default=True, help="Largest tolerated regression."
)
@allow_weaker_option
@click.option(
    "--require-slack",
    "slack",
    type=Slack(),
    help="Least difference between the bound of every chain and its deadline: a time (10ms) or a part of it (10%).",
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
    options: PlanOptions,
    baseline: Path | None,
    max_regression: float,
    weaker: tuple[str, ...],
    slack: tuple[float, int] | None,
    duration: int,
    folder: Path,
    seed: int,
) -> int:
    """Plan PIPELINE, simulate the plan, and compare it with a committed one.

    junit.xml and summary.md are always written, also for infeasible plans, regressions and invalid files.  To
    accept a change, commit the plan.json of the folder as the new baseline.  A requirement that asks for less than
    the baseline's fails the guard, unless --allow-weaker names it.

    Exit code 0: feasible, every simulated frame in time, nothing worse than the baseline; 1: otherwise; 4: undecided.
    """
    from socsched.api import folders

    output: Output = ctx.obj
    if platform is None and not pipeline.endswith(".json"):
        raise click.UsageError(f"a pipeline needs a platform: socsched guard {pipeline} -p PLATFORM")
    inputs = {path.resolve() for path in (baseline, Path(pipeline)) if path is not None}
    if (folder / folders.PLAN).resolve() in inputs:
        raise click.UsageError(f"{folder / folders.PLAN} would be overwritten: choose another folder with -o")
    if pipeline.endswith(".json"):
        refuse_with_plan(ctx, pipeline)
    ready_to_write(folder=folder)
    _clear(folder)

    def make() -> Plan:
        from socsched.api import loading
        from socsched.api.planning import plan_with

        if pipeline.endswith(".json"):
            return loading.load_plan(Path(pipeline))
        assert platform is not None
        plan = plan_with(pipeline, platform, mode, options)
        loading.save_plan(plan, folder / folders.PLAN)
        return plan

    try:
        return _guard(output, make, folder, _Gate(baseline, max_regression, weaker, slack), duration, seed)
    except Exception as error:
        _failed(folder, pipeline, error)
        raise


@dataclass(frozen=True, slots=True)
class _Gate:
    """What a plan has to hold beside its own requirements."""

    baseline: Path | None
    allowed: float
    weaker: tuple[str, ...]
    slack: tuple[float, int] | None


def _clear(folder: Path) -> None:
    """Remove the files of an earlier guard, so that none of them describes another plan."""
    from socsched.api import folders

    for name in (folders.PLAN, folders.RESULT, folders.TRACE, folders.PERFETTO, folders.PAGE, JUNIT, SUMMARY):
        (folder / name).unlink(missing_ok=True)


def _guard(
    output: Output,
    make: Callable[[], Plan],
    folder: Path,
    gate: _Gate,
    duration_ns: int,
    seed: int,
) -> int:
    from socsched.api import folders, loading
    from socsched.api.simulation import simulate
    from socsched.cli import outcomes
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.reporting import junit, summary
    from socsched.reporting.plan_diff import slack_of

    plan, baseline, allowed = make(), gate.baseline, gate.allowed
    trace, result = None, dict[str, Any]()
    if plan.tasks:
        done = simulate(plan, duration_ns, seed=seed)
        trace, result = done.trace, dict(done.figures)
        done.save(folder)
    else:
        loading.save_plan(plan, folder / folders.PLAN)
    differences = _compared(plan, gate, folder / folders.PLAN)
    if differences is not None:
        for name in gate.weaker:
            if not any(change.sense == "weaker" and change.named((name,)) for change in differences.requirements):
                output.warn(f"--allow-weaker {name}: no requirement of that name is weaker than the baseline's")
    slacks = slack_of(plan, *gate.slack) if gate.slack else ()
    (folder / JUNIT).write_text(junit.render(plan, result, differences, slacks), encoding="utf-8")
    text = summary.render(plan, trace, result, slacks)
    if differences is not None:
        from socsched.reporting.compare import markdown

        text += "\n" + markdown(differences, str(baseline), str(folder / folders.PLAN), allowed)
    (folder / SUMMARY).write_text(text, encoding="utf-8")
    output.note(f"wrote {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")

    def show() -> None:
        from rich.text import Text

        from socsched.reporting import terminal
        from socsched.reporting.compare import view

        screen = terminal.console(terminal_width())
        if result:
            screen.print(terminal.observed(result))
        screen.print(terminal.planned(plan))
        screen.print(terminal.violations(plan))
        if result:
            screen.print(terminal.outcome(result))
        for line in (one.told() for one in slacks if one.short):
            screen.print(Text(f"✗ {line}", "bold red"))
        if differences is not None:
            screen.print(view(differences, str(baseline), str(folder / folders.PLAN), allowed))

    document = {"verdict": plan.verdict, "chains": result.get("chains", {}), "folder": str(folder)}
    if slacks:
        document["slack"] = [asdict(one) for one in slacks]
    output.result(document | ({"compared": differences.document()} if differences is not None else {}), show)
    lost = outcomes.outcome_code(result) if result else EXIT_OK
    regressed = EXIT_VIOLATED if differences is not None and differences.regressions else EXIT_OK
    close = EXIT_VIOLATED if any(one.short for one in slacks) else EXIT_OK
    codes = {outcomes.exit_code(plan), lost, regressed, close} - {EXIT_OK}
    return min(codes, default=EXIT_OK)


def _compared(plan: Plan, gate: _Gate, plan_file: Path) -> PlanDiff | None:
    from socsched.api.loading import load_plan
    from socsched.errors import InputError
    from socsched.reporting.plan_diff import diff

    baseline = gate.baseline
    if baseline is None:
        return None
    if not baseline.exists():
        raise InputError(f"{baseline}: baseline not found", f"review {plan_file} and commit it as {baseline}")
    return diff(load_plan(baseline), plan, gate.allowed, gate.weaker)


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
