"""`socsched book`: a plan for every power mode, thermal state, lost unit and condition, and their switches."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from socsched.api.options import Real, Whole, option
from socsched.cli.options import output_folder, pipeline, platform
from socsched.cli.output import Output, ready_to_write
from socsched.cli.verbs import Request, verb
from socsched.planning.clock import EVALUATIONS, LEAST


class BookRequest(Request):
    """The cells of a book, how each is searched, and where the book goes."""

    pipeline: str = pipeline()
    platform: str = platform()
    modes: tuple[str, ...] = option("--mode", multiple=True, help="Only this power mode; may be repeated.")
    thermal: tuple[str, ...] = option(
        "--thermal", multiple=True, help="Only this thermal state of the platform; may be repeated."
    )
    losses: tuple[str, ...] = option(
        "--loss", kind="engine", multiple=True, help="Only the loss of this engine, or none; may be repeated."
    )
    conditions: tuple[str, ...] = option(
        "--condition", multiple=True, help="Only this operating condition; may be repeated."
    )
    objective: str = option("--objective", kind="objectives", default="latency", shown=True, help="As for `plan`.")
    policy: str = option(
        "--policy", kind=("auto", "edf", "fp"), default="auto", shown=True,
        help="Policy to plan with; auto: EDF, then fixed priorities.",
    )  # fmt: skip
    setup: int = option(
        "--setup", kind="duration", default="10ms", shown=True,
        help="Time in which the board changes clocks and workers change plans.",
    )  # fmt: skip
    evaluations: int = option(
        "--evaluations", kind=Whole(LEAST), default=EVALUATIONS, shown=True,
        help="Budget of the search of one cell, in mappings analysed.",
    )  # fmt: skip
    time_limit: float | None = option(
        "--time-limit", kind=Real(0.1),
        help="Guard rail in seconds on the search of one cell; a plan that it cut off says so.  [default: none]",
    )  # fmt: skip
    workers: int | None = option("--workers", kind=Whole(1), help="Number of cores to use; default: all.")
    folder: Path | None = output_folder("Folder for book.json, the plans, a page and a picture.")


@verb("book", BookRequest, "Plan every power mode, thermal state, lost unit and condition.")
def command(output: Output, request: BookRequest) -> int:
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
    ready_to_write(folder=request.folder)
    made = book(
        request.pipeline,
        request.platform,
        modes=request.modes,
        thermal=request.thermal,
        losses=request.losses or None,
        conditions=request.conditions,
        setup=request.setup,
        objective=request.objective,
        policy=request.policy,
        workers=request.workers or cores(),
        evaluations=request.evaluations,
        time_limit=request.time_limit,
    )
    seconds = round(time.monotonic() - started, 3)
    if request.folder:
        made.save(request.folder)
        output.note(f"wrote {request.folder}/ (book.json, plans/, book.html, book.svg)")

    def show() -> Any:
        from socsched.modebook.view import view

        return view(made.document)

    output.result({**plain(made.document), "planning_seconds": seconds}, show)
    verdicts = {cell.verdict for cell in made.document.cells}
    return 1 if "infeasible" in verdicts else 4 if "undecided" in verdicts else 0
