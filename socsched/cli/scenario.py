"""--scenario of `run` and `simulate`: figures as MLPerf Automotive measures them, and LoadGen's logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from socsched.cli.options import Output
from socsched.errors import EXIT_OK, EXIT_VIOLATED

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.reporting.terminal import Sheet
    from socsched.trace.io import ResultDocument, ScenarioDocument
    from socsched.trace.trace import Trace

F = TypeVar("F", bound="Callable[..., Any]")
CONSTANT, SINGLE = "constant-stream", "single-stream"


def scenario_option(*names: str) -> Callable[[F], F]:
    """Return a decorator that adds --scenario with these choices."""
    return click.option(
        "--scenario",
        type=click.Choice(names),
        help="Measure as MLPerf Automotive does: p99.9 with early stopping at 99 % confidence; -o also writes logs in "
        "LoadGen's form.  constant-stream: at the sensors' rates, within the deadline"
        + ("; single-stream: the next frame once one is answered." if SINGLE in names else "."),
    )


def measure(result: ResultDocument, trace: Trace, plan: Plan, scenario: str) -> ResultDocument:
    """Return a result with the figures of the scenario."""
    from socsched.trace.scenario import measured

    return {**result, "scenario": {one.chain.name: one.document() for one in measured(trace, plan, scenario)}}


def save_logs(output: Output, trace: Trace, plan: Plan, scenario: str | None, folder: Path) -> None:
    """Write the logs of a scenario into a result folder; those of an earlier run are deleted."""
    from socsched.trace.scenario import DETAIL, LOGS, SUMMARY, measured, write_logs

    for name in (SUMMARY, DETAIL):
        for stale in (folder / LOGS).glob(f"*/{name}"):
            stale.unlink()
    for place in write_logs(measured(trace, plan, scenario), plan, trace, folder) if scenario else ():
        output.note(f"wrote {place}/ ({SUMMARY}, {DETAIL})")


def scenario_table(figures: dict[str, ScenarioDocument]) -> Sheet:
    """Return the figures of every chain as a table."""
    from socsched.reporting.terminal import Sheet
    from socsched.units import format_duration

    def shown(time_ns: int | None) -> str:
        return "–" if time_ns is None else format_duration(time_ns)

    rows: list[Sequence[str]] = [
        (
            name,
            found["scenario"],
            f"{found['frames']} of {found['frames_needed']}",
            shown(found["p99_9_ns"]),
            shown(found["p99_9_estimate_ns"]),
            str(found["over_deadline"]),
            "valid" if found["valid"] else "invalid",
        )
        for name, found in figures.items()
    ]
    columns = ["chain", "scenario", "frames of those needed", "p99.9", "at most (99 % sure)", "over deadline", "result"]
    return Sheet(columns, rows)


def scenario_code(figures: dict[str, ScenarioDocument]) -> int:
    """Return the exit code: 0 if every chain's result is valid."""
    return EXIT_OK if figures and all(found["valid"] for found in figures.values()) else EXIT_VIOLATED
