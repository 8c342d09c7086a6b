"""`socsched report` and `why`: results, or a plan, as a page or another file; the breakdown of one frame's response."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import PlanOptions, RunOptions, Whole, argument, option, shared
from socsched.cli.options import output_file, source
from socsched.cli.output import Output, echo, ready_to_write
from socsched.cli.plan import explore
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_OK, EXIT_VIOLATED, UsageError
from socsched.files import is_same_file, write_file

if TYPE_CHECKING:
    from socsched.api import folders


class ReportRequest(Request):
    """The results to show, the form, and where their descriptors and frames are."""

    folder: Path = argument("path", metavar="DIR|PLAN.json")
    file: Path | None = output_file(
        "Output file; the suffix selects the format: report.html, trace.pftrace, junit.xml, summary.md, result.json or "
        "drive.mcap (Foxglove).  Default: DIR/report.html, PLAN.html."
    )
    open_page: bool = option(
        "--open", kind="flag",
        help="Open the page, and the trace in the Perfetto UI: your browser loads ui.perfetto.dev, which reads the "
        "trace from this machine (127.0.0.1:9001).  Nothing is uploaded.  Allow the page to access this machine if the "
        "browser asks.  Ends once the trace has been read, or by Ctrl-C.",
    )  # fmt: skip
    pareto: bool = option(
        "--pareto", kind="flag",
        help="First plan every power mode (slow), to show the Pareto front on the page.",
    )  # fmt: skip
    inputs: Path | None = shared(RunOptions, "inputs")
    topics: tuple[tuple[str, str], ...] = shared(RunOptions, "topics")
    source: str | None = source()
    platform: str | None = option(
        "-p", "--platform", help="File or name of the plan's platform, if the name in the plan does not locate it."
    )


@verb("report", ReportRequest, "Turn results into an HTML page or a Perfetto trace; --open shows it.")
def command(output: Output, request: ReportRequest) -> None:
    """Render the results in DIR (of `simulate -o`, `run -o` or `demo`), or a plan.

    A page is one file that needs no network.  For a plan, the times shown are a simulation of its first hyperperiods.
    """
    from socsched.api import folders
    from socsched.descriptor.catalog import get_pipeline, get_platform

    folder = request.folder
    file = request.file or (folder.with_suffix(".html") if folder.is_file() else folder / folders.PAGE)
    if file.suffix not in folders.formats():
        raise click.UsageError(f"{file}: expected a name that ends in one of {', '.join(folders.formats())}")
    places = (folder, *folder.glob("*/"))
    if file.name in folders.READ and file.exists() and any(is_same_file(place, file.parent) for place in places):
        raise UsageError(f"{file}: is one of the results to read", "choose another file with -o")
    folders.folders(folder)  # check first: otherwise the folder of the page, here that of the results, would be created
    ready_to_write(file=file)
    if file.suffix != ".mcap" and (request.inputs or request.topics):
        raise click.UsageError("--input and --topic state which frames an .mcap file shows: give one with -o")
    if request.source:
        get_pipeline(request.source)
    if request.platform:
        get_platform(request.platform)
    sources = folders.Sources(request.source, request.platform, request.inputs, dict(request.topics))
    if request.pareto:
        _explore(output, folder, sources)
    folders.render(folder, file, sources)
    output.result({"report": str(file)}, lambda: echo(str(file)))
    if request.open_page:
        _open(output, folder, file)


def _explore(output: Output, folder: Path, sources: folders.Sources) -> None:
    """Write the Pareto front over modes next to the results."""
    from socsched.api import folders
    from socsched.api.simulation import policy_to_plan_with
    from socsched.planning import io
    from socsched.reporting.pareto import document
    from socsched.reporting.report import PARETO

    for place in folders.folders(folder):
        plan = io.load(place if place.is_file() else place / folders.PLAN)
        output.note(f"planning {plan.pipeline} in every mode of {plan.platform}")
        options = PlanOptions(policy=policy_to_plan_with(plan.policy), refine=False)
        points = explore(sources.pipeline or plan.pipeline, sources.platform or plan.platform, options)
        target = (place.parent if place.is_file() else place) / PARETO
        write_file(target, json.dumps(document(points), indent=1) + "\n")


def _open(output: Output, folder: Path, file: Path) -> None:
    """Open the page, and serve the trace until the Perfetto UI has loaded it."""
    from socsched.api import folders
    from socsched.cli import serve

    if file.suffix == ".html":
        click.launch(file.resolve().as_uri())
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / folders.PERFETTO
        folders.render(folder, trace)
        data = trace.read_bytes()

    def opened(link: str) -> None:
        output.note(f"trace: {link}")
        output.note("waiting for the Perfetto UI to read it (allow access if the browser asks); Ctrl-C to stop")
        click.launch(link)

    done = serve.serve(data, opened)
    output.note("the Perfetto UI has read the trace" if done else "stopped before the trace was read")


class WhyRequest(Request):
    """The frame to explain."""

    folder: Path = argument("path", metavar="DIR")
    frame: int | None = option("--frame", kind=Whole(0), help="Number of the frame at its sensor.")
    worst: bool = option("--worst", kind="flag", help="The frame with the largest lateness (default).")
    chain: str | None = option(
        "--chain", kind="chain",
        help="Chain to explain, if there are several; with --worst: consider only this chain.",
    )  # fmt: skip


@verb("why", WhyRequest, "Break down the response time of a frame: work, waits, slowdowns.")
def why(output: Output, request: WhyRequest) -> int:
    """Break down the response time of one frame of the results in DIR: waits and their causes, slowdowns, work.

    The parts add up to it to the nanosecond.  For a measured result, slowdown by other jobs' DRAM traffic is
    computed by the plan's model from the recorded overlap.  Exit code 0: the frame was in time, 1: it was late or lost.
    """
    from socsched.api import folders
    from socsched.trace.why import Why

    if request.worst and request.frame is not None:
        raise click.UsageError("--frame and --worst are mutually exclusive")
    folder = folders.single(request.folder)
    plan, trace = folders.load_trace(folder)
    reasons = Why(trace, plan)
    explanation = (
        reasons.worst(request.chain, folders.recorded(folder, plan))
        if request.frame is None
        else reasons.explain(request.chain, request.frame)
    )

    def show() -> Any:
        from socsched.reporting.why import view

        return view(explanation, plan)

    output.result(explanation.document(), show)
    return EXIT_OK if explanation.met else EXIT_VIOLATED
