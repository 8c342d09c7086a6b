"""`socsched analyze`: what the bounds of a plan are made of."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Output, output_options, terminal_width


@click.command("analyze", short_help="Show bounds, their terms and the slack of a plan.")
@click.argument("plan", metavar="PLAN.json", type=click.Path(path_type=Path))
@output_options
@click.pass_obj
def command(output: Output, plan: Path) -> int:
    """Show every chain's bound term by term, utilisation per engine, and how much slower stages may become.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.cli import line
    from socsched.report.analysis import analysis

    made = line.load_plan(plan)
    document = analysis(made)

    def show() -> None:
        from socsched.report.terminal import analysis_view, console

        console(terminal_width()).print(analysis_view(made, document))

    output.result(document, show)
    return line.exit_code(made)
