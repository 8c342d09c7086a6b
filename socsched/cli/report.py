"""`socsched report`: a result folder as a page, a Perfetto trace or JUnit XML."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Output, output_options


@click.command("report", short_help="Turn a result folder into a page or a Perfetto trace.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="report.html, trace.pftrace, junit.xml or result.json: the suffix decides.  Default: DIR/report.html.",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@output_options
@click.pass_obj
def command(output: Output, folder: Path, file: Path | None, open_page: bool) -> None:
    """Render the results in DIR (of `simulate -o`, `run -o` or `demo`)."""
    from socsched.cli import results

    file = file or folder / results.PAGE
    if file.suffix not in results.FORMATS:
        raise click.UsageError(f"{file}: expected a name that ends in one of {', '.join(results.FORMATS)}")
    results.render(folder, file)
    output.result({"report": str(file)}, lambda: click.echo(str(file)))
    if open_page and file.suffix == ".html":
        click.launch(str(file))
