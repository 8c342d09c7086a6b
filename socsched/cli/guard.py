"""`socsched guard`: plan, simulate, compare with a baseline, and leave JUnit XML and a Markdown summary for CI."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import PlanOptions, SimulateOptions, argument, option, requested, shared
from socsched.cli.options import allow_weaker, mode, output_folder, platform
from socsched.cli.output import Output, ready_to_write
from socsched.cli.results import check_options, exit_code, on_the_line, outcome_code
from socsched.cli.verbs import Request, declared, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, InputError, SocschedError

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.reporting.plan_diff import PlanDiff

JUNIT, SUMMARY = "junit.xml", "summary.md"


class GuardRequest(Request):
    """What is planned, what the plan has to hold beside its own requirements, and where the files go."""

    pipeline: str = argument("pipeline", metavar="PIPELINE|PLAN.json")
    platform: str | None = platform(required=False)
    mode: str | None = mode()
    options: PlanOptions = requested(PlanOptions)
    baseline: Path | None = option(
        "--baseline", kind="file",
        help="The last accepted plan.json; no figure may be worse by more than --max-regression.",
    )  # fmt: skip
    max_regression: float = option(
        "--max-regression", kind="percent", default="5%", shown=True, help="Largest tolerated regression."
    )
    weaker: tuple[str, ...] = allow_weaker()
    slack: tuple[float, int] | None = option(
        "--require-slack", name="slack", kind="slack",
        help="Least difference between the bound of every chain and its deadline: a time (10ms) or a part of it (10%).",
    )  # fmt: skip
    duration: int = option("--duration", kind="duration", default="10s", shown=True, help="Simulated time.")
    folder: Path = output_folder("Folder for junit.xml, summary.md, plan.json and the simulation's results.", "guard")
    seed: int = shared(SimulateOptions, "seed")

    @property
    def planned(self) -> bool:
        """Return whether the argument is a plan already."""
        return self.pipeline.endswith(".json")


@verb("guard", GuardRequest, "For CI: plan, simulate, compare with a baseline; JUnit, summary, exit code.")
def command(output: Output, request: GuardRequest) -> int:
    """Plan PIPELINE, simulate the plan, and compare it with a committed one.

    junit.xml and summary.md are always written, also for infeasible plans, regressions and invalid files.  To
    accept a change, commit the plan.json of the folder as the new baseline.  A requirement that asks for less than
    the baseline's fails the guard, unless --allow-weaker names it.

    Exit code 0: feasible, every simulated frame in time, nothing worse than the baseline; 1: otherwise; 4: undecided.
    """
    from socsched.api import folders

    check_options(request.options)
    folder = request.folder
    if request.platform is None and not request.planned:
        raise click.UsageError(f"a pipeline needs a platform: socsched guard {request.pipeline} -p PLATFORM")
    inputs = {path.resolve() for path in (request.baseline, Path(request.pipeline)) if path is not None}
    if (folder / folders.PLAN).resolve() in inputs:
        raise click.UsageError(f"{folder / folders.PLAN} would be overwritten: choose another folder with -o")
    if request.planned:
        _refuse_planning_options(request.pipeline)
    ready_to_write(folder=folder)
    # none of the files of an earlier guard may describe another plan
    for name in (folders.PLAN, folders.RESULT, folders.TRACE, folders.PERFETTO, folders.PAGE, JUNIT, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    try:
        return _guard(output, request)
    except Exception as error:
        _write_failure(folder, request.pipeline, error)
        raise


def _refuse_planning_options(plan: str) -> None:
    """Raise UsageError for an option of planning on the command line where the argument is a plan already."""
    planning = {"platform", "mode", *(name for name, _ in declared(PlanOptions))} - {"objective", "policy"}
    for parameter in click.get_current_context().command.params:
        if parameter.name in planning and on_the_line(str(parameter.name)):
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} is a planning option, but {plan} is a plan already: omit {option}")


def _plan(request: GuardRequest) -> Plan:
    from socsched.api import folders, loading
    from socsched.api.planning import plan_with

    if request.planned:
        return loading.load_plan(Path(request.pipeline))
    assert request.platform is not None
    plan = plan_with(request.pipeline, request.platform, request.mode, request.options)
    loading.save_plan(plan, request.folder / folders.PLAN)
    return plan


def _guard(output: Output, request: GuardRequest) -> int:
    from socsched.api import folders, loading
    from socsched.api.simulation import simulate
    from socsched.reporting import junit, summary
    from socsched.reporting.compare import markdown
    from socsched.reporting.plan_diff import slack_of

    folder, plan = request.folder, _plan(request)
    trace, result = None, dict[str, Any]()
    if plan.tasks:
        done = simulate(plan, request.duration, seed=request.seed)
        trace, result = done.trace, dict(done.figures)
        done.save(folder)
    else:
        loading.save_plan(plan, folder / folders.PLAN)
    differences = _compared(plan, request)
    if differences is not None:
        for name in request.weaker:
            if not any(change.sense == "weaker" and change.named((name,)) for change in differences.requirements):
                output.warn(f"--allow-weaker {name}: no requirement of that name is weaker than the baseline's")
    slacks = slack_of(plan, *request.slack) if request.slack else ()
    (folder / JUNIT).write_text(junit.render(plan, result, differences, slacks), encoding="utf-8")
    text = summary.render(plan, trace, result, slacks)
    names = str(request.baseline), str(folder / folders.PLAN), request.max_regression
    if differences is not None:
        text += "\n" + markdown(differences, *names)
    (folder / SUMMARY).write_text(text, encoding="utf-8")
    output.note(f"wrote {folder}/ ({', '.join(sorted(path.name for path in folder.iterdir()))})")

    def show() -> list[Any]:
        from rich.text import Text

        from socsched.reporting import terminal
        from socsched.reporting.compare import view

        short = [Text(f"✗ {one.told()}", "bold red") for one in slacks if one.short]
        return [
            *([terminal.observed(result)] if result else []),
            terminal.planned(plan),
            terminal.violations(plan),
            *([terminal.outcome(result)] if result else []),
            *short,
            *([view(differences, *names)] if differences is not None else []),
        ]

    document = {"verdict": plan.verdict, "chains": result.get("chains", {}), "folder": str(folder)}
    if slacks:
        document["slack"] = [asdict(one) for one in slacks]
    output.result(document | ({"compared": differences.document()} if differences is not None else {}), show)
    lost = outcome_code(result) if result else EXIT_OK
    regressed = EXIT_VIOLATED if differences is not None and differences.regressions else EXIT_OK
    close = EXIT_VIOLATED if any(one.short for one in slacks) else EXIT_OK
    return min({exit_code(plan), lost, regressed, close} - {EXIT_OK}, default=EXIT_OK)


def _compared(plan: Plan, request: GuardRequest) -> PlanDiff | None:
    from socsched.api import folders
    from socsched.api.loading import load_plan
    from socsched.reporting.plan_diff import diff

    baseline = request.baseline
    if baseline is None:
        return None
    if not baseline.exists():
        file = request.folder / folders.PLAN
        raise InputError(f"{baseline}: baseline not found", f"review {file} and commit it as {baseline}")
    return diff(load_plan(baseline), plan, request.max_regression, request.weaker)


def _write_failure(folder: Path, name: str, error: Exception) -> None:
    """Write JUnit and summary of a guard that reached no verdict; files of an existing verdict stay."""
    from socsched.reporting import junit, summary

    hint = error.hint if isinstance(error, SocschedError) else ""
    folder.mkdir(parents=True, exist_ok=True)
    for file, write in ((JUNIT, junit.error_case), (SUMMARY, summary.error_summary)):
        if not (folder / file).exists():
            (folder / file).write_text(write(name, str(error), hint), encoding="utf-8")
