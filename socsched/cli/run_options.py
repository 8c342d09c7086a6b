"""Execution options of `socsched run`: executor, real time, faults, overload, spare plans, board."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from socsched.cli.options import Quantity
from socsched.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from socsched.descriptor.pipeline import Pipeline
    from socsched.planning.plan import Plan
    from socsched.runtime.boards.base import Board
    from socsched.runtime.options import Options

F = TypeVar("F", bound="Callable[..., Any]")
BOARDS = ("local", "jetson")
EXECUTORS = ("auto", "event-chained", "native", "sequential", "stream-per-frame", "shared-queue")
FILE = click.Path(path_type=Path, dir_okay=False)


def run_options(function: F) -> F:
    """Add the options that `options_of` and `board_of` read."""
    decorators = (
        click.option(
            "--executor",
            type=click.Choice(EXECUTORS),
            default=EXECUTORS[0],
            show_default=True,
            help="Execute as planned (native: without an interpreter, event-chained: in Python, auto: native if it "
            "can), or with a simpler executor for comparison.",
        ),
        click.option(
            "--in-flight",
            type=click.IntRange(1, 64),
            default=1,
            show_default=True,
            help="With --no-pace: frames in flight at once.",
        ),
        click.option(
            "--steal", is_flag=True, help="Idle engine slots take jobs of equal slots (not covered by the bounds)."
        ),
        click.option(
            "--shield", is_flag=True, help="Hold back less critical jobs while more critical ones are active."
        ),
        click.option(
            "--awake",
            type=Quantity("duration"),
            help="How long workers stay awake for an expected job; default: 300us under real-time scheduling, else 0.",
        ),
        click.option(
            "--realtime",
            type=click.Choice(["off", "auto", "fifo", "deadline"]),
            default="off",
            show_default=True,
            help="Scheduling class of the workers; also locks memory. auto: fifo if a core is left for other programs.",
        ),
        click.option("--faults", "faults_file", type=FILE, help="YAML file with faults to inject."),
        click.option("--overload", "overload_file", type=FILE, help="YAML file with overload policies per stage."),
        click.option(
            "--limp-home",
            multiple=True,
            metavar="PLAN.json|BOOK|auto",
            help="Plan that takes over when an engine fails, or the folder of a book with such plans; auto: make them "
            "before the run.",
        ),
        click.option(
            "--hang-after", type=Quantity("duration"), help="A job that runs longer than this counts as hung."
        ),
        click.option(
            "--board", type=click.Choice(BOARDS), default=BOARDS[0], show_default=True, help="Kind of this machine."
        ),
        click.option("--apply-mode", is_flag=True, help="Set a Jetson to the plan's power mode."),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def board_of(how: Mapping[str, Any]) -> Board:
    """Return the requested board."""
    if how["board"] == "jetson":
        from socsched.runtime.boards.jetson import JetsonBoard

        return JetsonBoard(apply_mode=how["apply_mode"])
    if how["apply_mode"]:
        raise UsageError("--apply-mode needs a board with power modes", "add --board jetson")
    from socsched.runtime.boards.local import LocalBoard

    return LocalBoard()


def options_of(how: Mapping[str, Any], plan: Plan, pipeline: Pipeline, board: Board, folder: Path | None) -> Options:
    """Return the run's options; reads files, makes or reads spare plans; `folder` receives files during the run."""
    from socsched.api import folders
    from socsched.faults.file import load_faults
    from socsched.faults.model import RUN
    from socsched.runtime.frames_file import NAME
    from socsched.runtime.options import Options
    from socsched.runtime.overload import load_policies

    return Options(
        executor=how["executor"],
        in_flight=how["in_flight"],
        steal=how["steal"],
        shield=how["shield"],
        awake_ns=how["awake"],
        realtime=how["realtime"],
        faults=load_faults(how["faults_file"], plan, RUN) if how["faults_file"] else None,
        policies=load_policies(how["overload_file"], plan) if how["overload_file"] else None,
        limp_home=_spare_plans(how["limp_home"], plan, pipeline, board),
        hang_ns=how["hang_after"] or 0,
        journal=folder / folders.JOURNAL if folder else None,
        frames=folder / NAME if folder else None,
    )


def _spare_plans(names: tuple[str, ...], plan: Plan, pipeline: Pipeline, board: Board) -> tuple[Plan, ...]:
    from socsched.api import loading
    from socsched.modebook.book import is_book, load_book

    plans: list[Plan] = []
    for name in names:
        if name == "auto":
            from socsched.models.work import stage_work
            from socsched.runtime.limp_home import limp_home_plans

            plans += limp_home_plans(plan, pipeline, board.platform_for(plan), stage_work)
        elif is_book(name):
            plans += load_book(name).spares(plan)
        else:
            other = loading.load_plan(Path(name))
            if (other.pipeline, other.platform) != (plan.pipeline, plan.platform):
                raise UsageError(f"{name} is a plan for {other.pipeline} on {other.platform}", "plan the same pipeline")
            plans.append(other)
    return tuple(plans)
