"""The verdict on a job set as plain data in the file's unit, and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from socsched.schedulability.assumptions import PAGE, sections
from socsched.schedulability.published.model import VERDICTS
from socsched.schedulability.schedule_abstraction import Job, Verdict

if TYPE_CHECKING:
    from rich.console import RenderableType

TEST = "schedule abstraction"
_SHOWN = 40


def document(name: str, jobs: Sequence[Job], scale: int, processors: int, verdict: Verdict) -> dict[str, Any]:
    """Return the verdict, the job that is late where one is, and the earliest and latest end of every job."""

    def in_unit(value: int) -> int | float:
        exact = Fraction(value, scale)
        return int(exact) if exact.denominator == 1 else float(exact)

    late = None
    if verdict.missed:
        job = jobs[verdict.missed[0]]
        late = {
            "task": job.task,
            "job": job.number,
            "end": in_unit(verdict.missed[1]),
            "deadline": in_unit(job.deadline),
        }
    rows = [
        {
            "task": job.task,
            "job": job.number,
            "earliest_end": in_unit(ends[0]),
            "latest_end": in_unit(ends[1]),
            "deadline": in_unit(job.deadline),
        }
        for job, ends in zip(jobs, verdict.completions, strict=False)
    ]
    return {
        "jobset": name,
        "processors": processors,
        "preemptive": False,
        "jobs": len(jobs),
        "verdict": VERDICTS[verdict.met],
        "decided_by": TEST if verdict.met is not None else "",
        "why": verdict.why,
        "states": verdict.states,
        "missed": late,
        "completions": rows,
        "proofs": {"page": PAGE, "sections": sections([TEST])},
    }


def view(shown: Mapping[str, Any]) -> RenderableType:
    """Return the tables that `socsched analyze` prints for a job set."""
    from rich.console import Group
    from rich.text import Text

    from socsched.reporting.terminal import rests_on, table

    style = {"feasible": "bold green", "infeasible": "bold red"}.get(shown["verdict"], "bold yellow")
    by = f" (by {shown['decided_by']})" if shown["decided_by"] else f" ({shown['why']})"
    count = f"{shown['jobs']} jobs without preemption, {shown['processors']} processor(s), {shown['states']} states"
    parts: list[Any] = [
        Text.assemble((shown["verdict"], style), f"  {shown['jobset']}: {count}", by),
        Text(rests_on(shown)),
        Text(""),
    ]
    if late := shown["missed"]:
        ends = f"ends at {late['end']}, after its deadline of {late['deadline']}"
        parts += [Text(f"Task {late['task']}, job {late['job']} {ends}, in a schedule that can happen."), Text("")]
    keys = ("task", "job", "earliest_end", "latest_end", "deadline")
    rows = [[str(row[key]) for key in keys] for row in shown["completions"][:_SHOWN]]
    if rows:
        more = f", the first {_SHOWN}; all with --json" if len(shown["completions"]) > _SHOWN else ""
        heads = ["task", "job", "ends from", "to at most", "deadline"]
        parts.append(table(f"Completion of jobs{more}", heads, rows, (0, 1, 2, 3, 4)))
    return Group(*parts)
