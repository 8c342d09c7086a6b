"""`socsched analyze`: the bounds of a plan or a task set, term by term."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import NameOrPath, Output, echo, output_options, source_option, terminal_width


@click.command("analyze", short_help="Show bounds, their terms and the slack of a plan or task set.")
@click.argument("file", metavar="PLAN.json|FILE.taskset.json", type=click.Path(path_type=Path))
@click.option(
    "--add", "new", type=NameOrPath("pipelines"), help="Check whether this pipeline can be added to the plan."
)
@source_option
@output_options
@click.pass_obj
def command(output: Output, file: Path, new: str | None, source: str | None) -> int:
    """Show every bound term by term, and which schedulability tests gave it.

    For a plan: chains, utilisation per engine, and the margins of execution times. For a task-set file (JSON or YAML):
    the tightest bound of each task and chain, by which test, and why the other tests do not apply. With --add: whether
    another pipeline can run next to a plan, with all planned stages kept in place or moved.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.cli.tasksets import is_taskset

    if new:
        return _add(output, file, new, source)
    return _taskset(output, file) if is_taskset(file) else _plan(output, file)


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
            "undecided": "Undecided: no mapping was found within the time limit.",
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


def _taskset(output: Output, file: Path) -> int:
    from socsched.api.analysis import analyze
    from socsched.api.loading import load_taskset
    from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED
    from socsched.reporting import taskset_analysis

    analysis = analyze(load_taskset(file))
    document = taskset_analysis.document(analysis)

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(taskset_analysis.view(analysis, document))

    output.result(document, show)
    return {True: EXIT_OK, False: EXIT_VIOLATED, None: EXIT_UNDECIDED}[analysis.verdict]
