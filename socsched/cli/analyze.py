"""`socsched analyze`: the bounds of a plan or a task set, term by term."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import NameOrPath, Output, echo, output_options, source_option, terminal_width


@click.command("analyze", short_help="Show bounds, their terms and the slack of a plan or task set.")
@click.argument("file", metavar="PLAN.json|TASKSET|JOBS.csv", type=click.Path(path_type=Path))
@click.option(
    "--add", "new", type=NameOrPath("pipelines"), help="Check whether this pipeline can be added to the plan."
)
@click.option("--processors", type=click.IntRange(1, 1024), help="Processors, where the file does not state them.")
@click.option("--precedence", type=click.Path(path_type=Path), help="Precedence of a job set (CSV).")
@source_option
@output_options
@click.pass_obj
def command(
    output: Output, file: Path, new: str | None, processors: int | None, precedence: Path | None, source: str | None
) -> int:
    """Show every bound term by term, and which schedulability tests gave it.

    For a plan: chains, utilisation per engine, and the margins of execution times. For a task-set file (JSON or YAML;
    SimSo's XML, PARTSim's YAML, rt-app's JSON): the tightest bound of each task and chain, by which test, and why the
    other tests do not apply. For a job set of nptest (CSV): whether any schedule without preemption misses a deadline,
    and when each job ends. With --add: whether another pipeline can run next to a plan, with all planned stages kept in
    place or moved.

    The verdict on a plan is computed anew from its tasks, engines and requirements, whatever the file states; a plan
    with something that no analysis covers is undecided, and what that is is listed.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.api.interchange import TASKSET_FORMATS
    from socsched.cli import tasksets
    from socsched.errors import InputError, UsageError

    if new:
        return _add(output, file, new, source)
    if tasksets.is_taskset(file):
        return tasksets.analyze(output, file, processors or 0, precedence)
    if file.is_file() and file.suffix != ".json" and not tasksets.may_be_plan(file):
        raise InputError(f"{file}: neither a plan nor a task set", f"expected {TASKSET_FORMATS}")
    if processors or precedence:
        raise UsageError("--processors and --precedence are for task sets and job sets", "a plan states its lanes")
    return _plan(output, file)


def _add(output: Output, file: Path, new: str, source: str | None) -> int:
    from socsched.api import loading
    from socsched.cli import outcomes
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.work import stage_work
    from socsched.planning.admission import add

    plan = loading.load_plan(file)
    pipeline = loading.pipeline_of(plan, source, output.warn)
    admission = add(plan, pipeline, get_pipeline(new), get_platform(plan.platform), stage_work)
    document = {
        "answer": admission.answer,
        "added": list(admission.added),
        "moved": list(admission.moved),
        "plan": loading.plan_document(admission.plan),
    }

    def show() -> None:
        from socsched.reporting.terminal import console, plan_view

        moves = f"stages move ({', '.join(admission.moved)})" if admission.moved else "order and deadlines change"
        answers = {
            "yes": "Yes, without moving a stage of the plan.",
            "moving": f"Yes, if {moves}.",
            "no": "No: no mapping that meets every requirement was found.",
            "undecided": "Undecided: no mapping was found within the budget.",
        }
        echo(f"Can {new} be added to {plan.pipeline}? {answers[admission.answer]}")
        console(terminal_width()).print(plan_view(admission.plan))

    output.result(document, show)
    return outcomes.exit_code(admission.plan)


def _plan(output: Output, file: Path) -> int:
    from socsched.api.analysis import analyze
    from socsched.cli import outcomes

    analysis = analyze(file)
    plan, document = analysis.plan, analysis.document

    def show() -> None:
        from socsched.reporting.terminal import analysis_view, console

        console(terminal_width()).print(analysis_view(plan, document))

    output.result(document, show)
    return outcomes.exit_code(plan)
