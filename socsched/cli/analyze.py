"""`socsched analyze`: the bounds of a plan or a task set, term by term."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from socsched.api.interchange import TASKSET_FORMATS
from socsched.api.options import Whole, argument, option
from socsched.cli.options import source
from socsched.cli.output import Output, echo
from socsched.cli.results import exit_code
from socsched.cli.verbs import Request, verb
from socsched.errors import InputError, UsageError


class AnalyzeRequest(Request):
    """What is analysed."""

    file: Path = argument("path", metavar="PLAN.json|TASKSET|JOBS.csv")
    added: str | None = option(
        "--add", name="new", kind="pipeline", help="Check whether this pipeline can be added to the plan."
    )
    processors: int | None = option(
        "--processors", kind=Whole(1, 1024), help="Processors, where the file does not state them."
    )
    precedence: Path | None = option("--precedence", kind="path", help="Precedence of a job set (CSV).")
    margins: bool = option("--margins", kind="flag", help="Show the margin of each task, of large plans too.")
    source: str | None = source()


@verb("analyze", AnalyzeRequest, "Show bounds, their terms and the slack of a plan or task set.")
def command(output: Output, request: AnalyzeRequest) -> int:
    """Show every bound term by term, and which schedulability tests gave it.

    For a plan: chains, utilisation per engine, and the margins of execution times. For a task-set file (JSON or YAML;
    SimSo's XML, PARTSim's YAML, rt-app's JSON): the tightest bound of each task and chain, by which test, and why the
    other tests do not apply. For a job set of nptest (CSV): whether any schedule without preemption misses a deadline,
    and when each job ends. With --add: whether another pipeline can run next to a plan, with all planned stages kept in
    place or moved.

    The verdict on a plan is computed anew from its tasks, engines and requirements, whatever the file states; a plan
    with something that no analysis covers is undecided, and what that is is listed.

    Exit code 0: feasible, 1: a requirement is violated, 4: undecided.
    """
    from socsched.api.analysis import analyze
    from socsched.cli import tasksets

    file = request.file
    if request.added:
        return _add(output, file, request.added, request.source)
    if tasksets.is_taskset(file):
        return tasksets.analyze(output, file, request.processors or 0, request.precedence)
    if file.is_file() and file.suffix != ".json" and not tasksets.may_be_plan(file):
        raise InputError(f"{file}: neither a plan nor a task set", f"expected {TASKSET_FORMATS}")
    if request.processors or request.precedence:
        raise UsageError("--processors and --precedence are for task sets and job sets", "a plan states its lanes")
    analysis = analyze(file, request.margins)

    def show() -> Any:
        from socsched.reporting.terminal import analysis_view

        return analysis_view(analysis.plan, analysis.document)

    output.result(analysis.document, show)
    return exit_code(analysis.plan)


def _add(output: Output, file: Path, added: str, source: str | None) -> int:
    from socsched.api import loading
    from socsched.descriptor.catalog import get_pipeline, get_platform
    from socsched.models.work import stage_work
    from socsched.planning.admission import add

    plan = loading.load_plan(file)
    pipeline = loading.pipeline_of(plan, source, output.warn)
    admission = add(plan, pipeline, get_pipeline(added), get_platform(plan.platform), stage_work)
    document = {
        "answer": admission.answer,
        "added": list(admission.added),
        "moved": list(admission.moved),
        "plan": loading.plan_document(admission.plan),
    }

    def show() -> Any:
        from socsched.reporting.terminal import plan_view

        moves = f"stages move ({', '.join(admission.moved)})" if admission.moved else "order and deadlines change"
        answers = {
            "yes": "Yes, without moving a stage of the plan.",
            "moving": f"Yes, if {moves}.",
            "no": "No: no mapping that meets every requirement was found.",
            "undecided": "Undecided: no mapping was found within the budget.",
        }
        echo(f"Can {added} be added to {plan.pipeline}? {answers[admission.answer]}")
        return plan_view(admission.plan)

    output.result(document, show)
    return exit_code(admission.plan)
