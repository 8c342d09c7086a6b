"""`socsched analyze`: what the bounds of a plan or of a task set are made of."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Output, output_options, terminal_width


@click.command("analyze", short_help="Show bounds, their terms and the slack of a plan or task set.")
@click.argument("file", metavar="PLAN.json|FILE.taskset.json", type=click.Path(path_type=Path))
@output_options
@click.pass_obj
def command(output: Output, file: Path) -> int:
    """Show every bound term by term, and which schedulability tests gave it.

    Of a plan: chains, utilisation per engine, and how much slower stages may become. Of a task-set file (JSON or YAML):
    the tightest bound of each task and chain, by which test, and why the other tests do not apply.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.cli.tasksets import is_taskset

    return _taskset(output, file) if is_taskset(file) else _plan(output, file)


def _plan(output: Output, file: Path) -> int:
    from socsched.cli import line
    from socsched.report.analysis import analysis

    made = line.load_plan(file)
    document = analysis(made)

    def show() -> None:
        from socsched.report.terminal import analysis_view, console

        console(terminal_width()).print(analysis_view(made, document))

    output.result(document, show)
    return line.exit_code(made)


def _taskset(output: Output, file: Path) -> int:
    from socsched.descriptor.taskset import load_taskset
    from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED
    from socsched.plan.schedulability.published.choose import analyse
    from socsched.report import taskset_analysis

    found = analyse(load_taskset(file))
    document = taskset_analysis.document(found)

    def show() -> None:
        from socsched.report.terminal import console

        console(terminal_width()).print(taskset_analysis.view(found, document))

    output.result(document, show)
    return {True: EXIT_OK, False: EXIT_VIOLATED, None: EXIT_UNDECIDED}[found.verdict]
