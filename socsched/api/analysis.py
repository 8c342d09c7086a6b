"""Bounds of plans and task sets, term by term, and the schedulability tests that gave them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from socsched.api.loading import load_plan
from socsched.descriptor.limits import Verdict
from socsched.descriptor.taskset import TaskSet
from socsched.planning.plan import Plan
from socsched.planning.recheck import recheck
from socsched.reporting.analysis import analysis, jobs_document
from socsched.schedulability.published.choose import Analysis as TaskSetAnalysis
from socsched.schedulability.published.schedule_abstraction import decide


@dataclass(frozen=True, slots=True)
class Analysis:
    """Results of the schedulability tests of a plan; `document` is the output of `socsched analyze --json`.

    `plan` has the bounds, the violations and the verdict that follow from its other fields, whatever the file states.
    """

    plan: Plan
    document: dict[str, Any]

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the plan: feasible | infeasible | undecided."""
        return self.plan.verdict


@overload
def analyze(subject: str | Path | Plan, margins: bool = False) -> Analysis: ...
@overload
def analyze(subject: TaskSet) -> TaskSetAnalysis: ...
def analyze(subject: str | Path | Plan | TaskSet, margins: bool = False) -> Analysis | TaskSetAnalysis:
    """Return the bounds of a plan (or its plan.json), or of a task set, and the tests they come from.

    The verdict of a plan is computed anew: undecided where it states anything that no analysis covers.  `margins`: of
    each task, which plans of more than `reporting.analysis.MARGINS` tasks lack otherwise.
    """
    if isinstance(subject, TaskSet):
        from socsched.schedulability.published.choose import analyse

        return analyse(subject)
    checked = recheck(load_plan(subject))
    return Analysis(checked.plan, analysis(checked, margins))


@dataclass(frozen=True, slots=True)
class JobSetAnalysis:
    """The exact verdict on a job set; `document` is what `socsched analyze --json` prints."""

    verdict: Verdict
    document: dict[str, Any]


def analyze_jobs(file: str | Path, processors: int = 1, precedence: str | Path | None = None) -> JobSetAnalysis:
    """Return whether a schedule of a job set of nptest (CSV) without preemption misses a deadline on `processors`.

    `precedence`: the file that says which jobs wait for which.  Raises InputError or DescriptorError for faulty files.
    """
    from socsched.interchange.nptest import read_jobs

    found = read_jobs(Path(file), Path(precedence) if precedence is not None else None)
    verdict = decide(found.jobs, processors)
    document = jobs_document(found.name, found.jobs, found.scale, processors, verdict)
    return JobSetAnalysis(document["verdict"], document)
