"""Exit codes of commands, from plans and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, InputError

if TYPE_CHECKING:
    from socsched.cli.options import Output
    from socsched.planning.plan import Plan


def exit_code(plan: Plan) -> int:
    """Return the exit code of a planning command."""
    return {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED}.get(plan.verdict, EXIT_UNDECIDED)


def show_refusal(output: Output, plan: Plan) -> int:
    """Show a plan without tasks, which cannot be simulated or run, and return its exit code."""

    from socsched.api.loading import plan_document

    def show() -> None:
        from socsched.cli.options import terminal_width
        from socsched.reporting.terminal import console, plan_view

        console(terminal_width()).print(plan_view(plan))

    output.result(plan_document(plan), show)
    output.note("nothing to do: a stage has no engine")
    return exit_code(plan)


def outcome_code(result: Mapping[str, Any], paced: bool = True) -> int:
    """Return the exit code of a command that simulates or runs: 1 if a frame was late, dropped, aborted, or stale.

    Frames not released at a sensor's rate (not `paced`) cannot be late.
    """
    from socsched.reporting.view_model import totals

    return EXIT_OK if totals(result, paced).met else EXIT_VIOLATED


def require_frames(details: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise InputError if there were frames to compute and the input of every one was unusable."""
    problems = [str(frame["problem"]) for frame in details.values() if "problem" in frame]
    if problems and len(problems) == len(details):
        raise InputError(f"no frame was computed, {len(problems)} of {len(problems)} were skipped: {problems[0]}")
