"""Lines that `socsched run` and `socsched demo` print during and after a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socsched.runtime.executor import FrameReport

Note = Callable[[str], None]


def frame_notes(note: Note, pace: bool, total: int, duration_ns: int | None = None) -> Callable[[FrameReport], None]:
    """Return a callback that notes every finished frame, and reports progress by `duration_ns` or `total` frames."""
    from socsched.progress import tell
    from socsched.units import format_duration

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
    from socsched.units import format_duration

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
