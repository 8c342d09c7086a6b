"""`socsched book`: a plan for every power mode, thermal state, lost unit and condition, and their switches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.names import ENGINE
from socsched.cli.options import (
    Number,
    Objectives,
    Output,
    Quantity,
    output_options,
    pipeline_argument,
    platform_option,
    ready_to_write,
    terminal_width,
)
from socsched.planning.clock import LEAST

if TYPE_CHECKING:
    from socsched.modebook.book import BookDocument

CELL = 6144
"""Default budget of the search of one cell."""


@click.command("book", short_help="Plan every power mode, thermal state, lost unit and condition.")
@pipeline_argument
@platform_option()
@click.option("--mode", "modes", multiple=True, help="Only this power mode; may be repeated.")
@click.option("--thermal", multiple=True, help="Only this thermal state of the platform; may be repeated.")
@click.option(
    "--loss", "losses", type=ENGINE, multiple=True, help="Only the loss of this engine, or none; may be repeated."
)
@click.option("--condition", "conditions", multiple=True, help="Only this operating condition; may be repeated.")
@click.option("--objective", type=Objectives(), default="latency", show_default=True, help="As for `plan`.")
@click.option(
    "--policy",
    type=click.Choice(["auto", "edf", "fp"]),
    default="auto",
    show_default=True,
    help="Policy to plan with; auto: EDF, then fixed priorities.",
)
@click.option(
    "--setup",
    type=Quantity("duration"),
    default="10ms",
    show_default=True,
    help="Time in which the board changes clocks and workers change plans.",
)
@click.option(
    "--evaluations",
    type=click.IntRange(LEAST),
    default=CELL,
    show_default=True,
    help="Budget of the search of one cell, in mappings analysed.",
)
@click.option(
    "--time-limit",
    type=Number(0.1),
    help="Guard rail in seconds on the search of one cell; a plan that it cut off says so.  [default: none]",
)
@click.option("--workers", type=click.IntRange(1), help="Number of cores to use; default: all.")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for book.json, the plans, a page and a picture.",
)
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str,
    platform: str,
    modes: tuple[str, ...],
    thermal: tuple[str, ...],
    losses: tuple[str, ...],
    conditions: tuple[str, ...],
    objective: str,
    policy: str,
    setup: int,
    evaluations: int,
    time_limit: float | None,
    workers: int | None,
    folder: Path | None,
) -> int:
    """Plan PIPELINE for every power mode, thermal state, lost engine and operating condition of a platform.

    Cells share a plan's placement where it meets every requirement, so that few are searched.  Between cells that
    differ in one coordinate the book states a switch with its bounds, or why there is none.  `simulate BOOK` goes
    through them, `run PLAN --limp-home BOOK` fails over to the plans for lost engines.

    Exit code 0: every cell has a feasible plan, 1: some have none, 4: some are undecided, none infeasible.
    """
    from socsched.api.books import book
    from socsched.modebook.book import plain
    from socsched.pool import cores

    started = time.monotonic()
    ready_to_write(folder=folder)
    made = book(
        pipeline,
        platform,
        modes=modes,
        thermal=thermal,
        losses=losses or None,
        conditions=conditions,
        setup=setup,
        objective=objective,
        policy=policy,
        workers=workers or cores(),
        evaluations=evaluations,
        time_limit=time_limit,
    )
    seconds = round(time.monotonic() - started, 3)
    if folder:
        made.save(folder)
        output.note(f"wrote {folder}/ (book.json, plans/, book.html, book.svg)")

    def show() -> None:
        from socsched.modebook.view import view
        from socsched.reporting.terminal import console

        console(terminal_width()).print(view(made.document))

    output.result({**plain(made.document), "planning_seconds": seconds}, show)
    return _exit_code(made.document)


def _exit_code(document: BookDocument) -> int:
    verdicts = {cell.verdict for cell in document.cells}
    return 1 if "infeasible" in verdicts else 4 if "undecided" in verdicts else 0
