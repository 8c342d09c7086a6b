"""`socsched report`: a result folder or a plan as a page, a Perfetto trace or JUnit XML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.options import (
    Output,
    echo,
    input_option,
    output_options,
    ready_to_write,
    source_option,
    topic_option,
)

if TYPE_CHECKING:
    from socsched.api import folders


@click.command("report", short_help="Turn results into an HTML page or a Perfetto trace; --open shows it.")
@click.argument("folder", metavar="DIR|PLAN.json", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Output file; the suffix selects the format: report.html, trace.pftrace, junit.xml, summary.md, "
    "result.json or drive.mcap (Foxglove).  Default: DIR/report.html, PLAN.html.",
)
@click.option(
    "--open",
    "open_page",
    is_flag=True,
    help="Open the page, and the trace in the Perfetto UI: your browser loads ui.perfetto.dev, which reads the trace "
    "from this machine (127.0.0.1:9001).  Nothing is uploaded.  Allow the page to access this "
    "machine if the browser asks.  Ends once the trace has been read, or by Ctrl-C.",
)
@click.option(
    "--pareto", is_flag=True, help="First plan every power mode (slow), to show the Pareto front on the page."
)
@input_option
@topic_option
@source_option
@click.option(
    "-p", "--platform", help="File or name of the plan's platform, if the name in the plan does not locate it."
)
@output_options
@click.pass_obj
def command(
    output: Output,
    folder: Path,
    file: Path | None,
    open_page: bool,
    pareto: bool,
    input_path: Path | None,
    topics: tuple[tuple[str, str], ...],
    source: str | None,
    platform: str | None,
) -> None:
    """Render the results in DIR (of `simulate -o`, `run -o` or `demo`), or a plan.

    A page is one file that needs no network.  For a plan, the times shown are a simulation of its first hyperperiods.
    """
    from socsched.api import folders
    from socsched.errors import UsageError
    from socsched.files import is_same_file

    file = file or (folder.with_suffix(".html") if folder.is_file() else folder / folders.PAGE)
    if file.suffix not in folders.formats():
        raise click.UsageError(f"{file}: expected a name that ends in one of {', '.join(folders.formats())}")
    places = (folder, *folder.glob("*/"))
    if file.name in folders.READ and file.exists() and any(is_same_file(place, file.parent) for place in places):
        raise UsageError(f"{file}: is one of the results to read", "choose another file with -o")
    folders.folders(folder)  # check first: otherwise the folder of the page, here that of the results, would be created
    ready_to_write(file=file)
    if file.suffix != ".mcap" and (input_path or topics):
        raise click.UsageError("--input and --topic state which frames an .mcap file shows: give one with -o")
    sources = folders.Sources(source, platform, input_path, dict(topics))
    _check(sources)
    if pareto:
        _explore(output, folder, sources)
    folders.render(folder, file, sources)
    output.result({"report": str(file)}, lambda: echo(str(file)))
    if open_page:
        _open(output, folder, file)


def _check(sources: folders.Sources) -> None:
    """Raise UsageError or InputError for a given name or file that does not exist, before any work."""
    from socsched.descriptor.catalog import get_pipeline, get_platform

    if sources.pipeline:
        get_pipeline(sources.pipeline)
    if sources.platform:
        get_platform(sources.platform)


def _explore(output: Output, folder: Path, sources: folders.Sources) -> None:
    """Write the Pareto front over modes next to the results."""
    import json

    from socsched.api import folders
    from socsched.api.planning import PlanOptions
    from socsched.api.simulation import policy_to_plan_with
    from socsched.cli.pareto import explore
    from socsched.files import write_file
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
    import tempfile

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
