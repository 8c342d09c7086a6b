"""Plans and results of verbs: the plan named on the line, exit codes, notes on a run, --scenario."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import PlanOptions, option
from socsched.cli.output import Output
from socsched.errors import EXIT_OK, EXIT_UNDECIDED, EXIT_VIOLATED, InputError
from socsched.progress import tell
from socsched.units import format_duration

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.reporting.terminal import Sheet
    from socsched.runtime.frames import FrameReport
    from socsched.trace.io import ResultDocument, ScenarioDocument
    from socsched.trace.trace import Trace

CONSTANT, SINGLE = "constant-stream", "single-stream"


def given(name: str) -> bool:
    """Return whether a parameter was given, on the line or by the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not click.core.ParameterSource.DEFAULT


def on_the_line(name: str) -> bool:
    """Return whether a parameter was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def check_options(options: PlanOptions) -> None:
    """Raise UsageError for options of planning that need another."""
    if options.settings and not options.planner:
        raise click.UsageError("-O sets options of a planner: add --planner")


def plan_from(plan: str, platform: str | None, mode: str | None, options: PlanOptions) -> Plan:
    """Return the plan in a file, or plan a pipeline; options that only affect planning exclude a plan file."""
    from socsched.api.loading import load_plan
    from socsched.api.planning import plan_with

    if not plan.endswith(".json"):
        if platform is None:
            verb = click.get_current_context().command_path
            raise click.UsageError(f"a pipeline needs a platform: {verb} {plan} -p PLATFORM")
        return plan_with(plan, platform, mode, options)
    for name, value in (("platform", platform), ("mode", mode), ("profile", options.profile)):
        if value is not None and on_the_line(name):
            raise click.UsageError(f"--{name} is a planning option, but {plan} is a plan already: omit --{name}")
    return load_plan(plan)


def exit_code(plan: Plan) -> int:
    """Return the exit code of a planning command."""
    return {"feasible": EXIT_OK, "infeasible": EXIT_VIOLATED}.get(plan.verdict, EXIT_UNDECIDED)


def show_refusal(output: Output, plan: Plan) -> int:
    """Show a plan without tasks, which cannot be simulated or run, and return its exit code."""
    from socsched.api.loading import plan_document

    def show() -> Any:
        from socsched.reporting.terminal import plan_view

        return plan_view(plan)

    output.result(plan_document(plan), show)
    output.note("nothing to do: a stage has no engine")
    return exit_code(plan)


def outcome_code(result: Mapping[str, Any], paced: bool = True) -> int:
    """Return the exit code of a command that simulates or runs: 1 if a frame was late, dropped, aborted, or stale.

    Frames not released at a sensor's rate (not `paced`) cannot be late.  With figures of a scenario these decide.
    """
    from socsched.reporting.view_model import totals

    if "scenario" in result:
        figures = result["scenario"]
        return EXIT_OK if figures and all(one["valid"] for one in figures.values()) else EXIT_VIOLATED
    return EXIT_OK if totals(result, paced).met else EXIT_VIOLATED


def require_frames(details: Mapping[int, Mapping[str, Any]]) -> None:
    """Raise InputError if there were frames to compute and the input of every one was unusable."""
    problems = [str(frame["problem"]) for frame in details.values() if "problem" in frame]
    if problems and len(problems) == len(details):
        raise InputError(f"no frame was computed, {len(problems)} of {len(problems)} were skipped: {problems[0]}")


def frame_notes(
    note: Callable[[str], None], pace: bool, total: int, duration_ns: int | None = None
) -> Callable[[FrameReport], None]:
    """Return a callback that notes every finished frame, and reports progress by `duration_ns` or `total` frames."""
    done = 0

    def on_frame(report: FrameReport) -> None:
        nonlocal done
        done += 1
        if duration_ns:
            tell("running", report.finish_ns, duration_ns, "ns")
        else:
            tell("running", done, total, "frames")
        late = "" if report.met or not pace else f", late: {format_duration(report.deadline_ns)} allowed"
        note(f"     {report.chain} frame {report.frame}: {format_duration(report.response_ns)}{late}")

    return on_frame


def run_lines(figures: Mapping[str, Any], hang_ns: int = 0) -> list[str]:
    """Return a run's figures as text: a line about frames, the reasons for aborted ones, and a line about overheads.

    `hang_ns`: the time after which a job counts as hung, 0 for that of the executor.
    """
    account_line = "{released} released = {completed} completed + {dropped} dropped + {aborted} aborted"
    lines = [f"{source}: {account_line.format_map(account)}" for source, account in figures["accounts"].items()]
    lines += [f"  {count} × {reason}" for reason, count in figures["reasons"].items()]
    if any(" has run for " in reason for reason in figures["reasons"]):
        limit = format_duration(hang_ns) if hang_ns else "ten periods or planned times, at least 10 s"
        lines.append(f"  a job counts as hung after {limit}: --hang-after sets another limit")
    late = [quantiles["p50"] for quantiles in figures["release_jitter_ns"].values() if quantiles]
    if (waits := figures["dispatch_ns"]) is not None:
        dispatch = (
            f"Executor: a ready job starts after {format_duration(waits['p50'])} (p99 {format_duration(waits['p99'])})"
        )
        jitter = f", releases are {format_duration(max(late))} late (median)" if late else ""
        lines.append(dispatch + jitter)
    return lines


def scenario(*names: str) -> Any:
    """Return the declaration of --scenario with these choices."""
    text = (
        "Measure as MLPerf Automotive does: p99.9 with early stopping at 99 % confidence.  constant-stream: at the "
        "sensors' rates, within the deadline"
    )
    text += "; single-stream: the next frame once one is answered." if SINGLE in names else "."
    return option("--scenario", kind=names, help=text)


def measure(result: ResultDocument, trace: Trace, plan: Plan, scenario: str) -> ResultDocument:
    """Return a result with the figures of the scenario."""
    from socsched.trace.scenario import measured

    return {**result, "scenario": {one.chain.name: one.document() for one in measured(trace, plan, scenario)}}


def scenario_table(figures: dict[str, ScenarioDocument]) -> Sheet:
    """Return the figures of every chain as a table."""
    from socsched.reporting.terminal import Sheet
    from socsched.reporting.view_model import duration

    rows = [
        (
            name,
            found["scenario"],
            f"{found['frames']} of {found['frames_needed']}",
            duration(found["p99_9_ns"]),
            duration(found["p99_9_estimate_ns"]),
            str(found["over_deadline"]),
            "valid" if found["valid"] else "invalid",
        )
        for name, found in figures.items()
    ]
    columns = ["chain", "scenario", "frames of those needed", "p99.9", "at most (99 % sure)", "over deadline", "result"]
    return Sheet(columns, rows)
