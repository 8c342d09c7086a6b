"""`socsched analyze`: the bounds of a plan or a task set, term by term."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import NameOrPath, Output, echo, output_options, source_option, terminal_width


@click.command("analyze", short_help="Show bounds, their terms and the slack of a plan or task set.")
@click.argument("file", metavar="PLAN.json|FILE.taskset.json", type=click.Path(path_type=Path))
@click.option("--add", "new", type=NameOrPath("pipelines"), help="Ask whether this pipeline fits beside the plan.")
@source_option
@output_options
@click.pass_obj
def command(output: Output, file: Path, new: str | None, source: str | None) -> int:
    """Show every bound term by term, and which schedulability tests gave it.

    Of a plan: chains, utilisation per engine, and how much slower stages may become. Of a task-set file (JSON or YAML):
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

    made = loading.load_plan(file)
    pipeline = loading.pipeline_of(made, source, output.warn)
    found = add(made, pipeline, get_pipeline(new), get_platform(made.platform), stage_work)
    document = {
        "answer": found.answer,
        "added": list(found.added),
        "moved": list(found.moved),
        "plan": loading.plan_document(found.plan),
    }

    def show() -> None:
        from socsched.reporting.terminal import console, plan_view

        said = {
            "yes": "Yes, with every stage of the plan where it is.",
            "moving": f"Yes, if stages move: {', '.join(found.moved) or 'only their order and deadlines change'}.",
            "no": "No: no mapping was found that meets every requirement.",
            "undecided": "Undecided: no mapping was found within the limit.",
        }
        echo(f"{new} beside {made.pipeline}? {said[found.answer]}")
        console(terminal_width()).print(plan_view(found.plan))

    output.result(document, show)
    return outcomes.exit_code(found.plan)


def _plan(output: Output, file: Path) -> int:
    from socsched.api.analysis import analyze
    from socsched.cli import outcomes

    found = analyze(file)
    made, document = found.plan, found.document

    def show() -> None:
        from socsched.reporting.terminal import analysis_view, console

        console(terminal_width()).print(analysis_view(made, document))

    output.result(document, show)
    return outcomes.exit_code(made)


def _taskset(output: Output, file: Path) -> int:
    from socsched.api.analysis import analyze
    from socsched.api.loading import load_taskset
    from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED
    from socsched.reporting import taskset_analysis

    found = analyze(load_taskset(file))
    document = taskset_analysis.document(found)

    def show() -> None:
        from socsched.reporting.terminal import console

        console(terminal_width()).print(taskset_analysis.view(found, document))

    output.result(document, show)
    return {True: EXIT_OK, False: EXIT_VIOLATED, None: EXIT_UNDECIDED}[found.verdict]
