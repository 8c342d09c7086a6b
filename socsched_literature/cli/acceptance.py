"""`socsched study acceptance`: what competing schedulability tests accept, against utilisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.options import output_folder
from socsched.cli.output import Output, ready_to_write, terminal_width
from socsched.cli.verbs import decorated, output_options

if TYPE_CHECKING:
    from socsched_literature.studies.acceptance import Study


@click.command("acceptance", short_help="Compare what schedulability tests accept, against utilisation.")
@click.option("--sets", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Task sets per load.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the task sets.")
@decorated(folder=output_folder())
@output_options
@click.pass_obj
def command(output: Output, sets: int, seed: int, folder: Path | None) -> int:
    """Draw task sets at rising utilisation, and show the share that each schedulability test accepts.

    Four groups of competing tests: one processor with deadlines at and before the ends of periods, four processors
    under global scheduling, and tasks that suspend themselves.  -o writes acceptance.json, .csv and .svg.  Exit code
    0: compared.
    """
    from socsched_literature.studies import acceptance

    return show(output, lambda: acceptance.study("acceptance", acceptance.PANELS, sets, seed), folder)


def show(output: Output, make: Callable[[], Study], folder: Path | None) -> int:
    """Make a study of acceptance ratios, write and print it, and return the exit code."""
    from socsched.errors import EXIT_OK
    from socsched.reporting.terminal import console
    from socsched_literature.studies import acceptance
    from socsched_literature.studies.saved import save_study

    ready_to_write(folder=folder)
    found = make()
    if folder:
        parts = acceptance.document(found), acceptance.figure(found), acceptance.lines(found)
        for path in save_study(folder, found.name, *parts):
            output.note(f"wrote {path}")
    output.result(acceptance.document(found), lambda: console(terminal_width()).print(acceptance.view(found)))
    return EXIT_OK
