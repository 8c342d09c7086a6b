"""`socsched lint`: what falls back or fails on a platform's accelerators, from operator rules alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from socsched.cli.names import ENGINE
from socsched.cli.options import NameOrPath, Output, echo, output_options, platform_option, ready_to_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from socsched.lint.check import Diagnostic


@click.command("lint", short_help="Report operators that fall back or fail on a platform's accelerators.")
@click.argument("files", nargs=-1, type=NameOrPath("pipelines"), metavar="PLAN.json|PIPELINE|NETWORK.onnx...")
@platform_option(required=False)
@click.option("--engine", "engines", type=ENGINE, multiple=True, help="Only this engine, or engines of this kind.")
@click.option("--runtime-version", "version", help="Version of the accelerators' runtime, such as TensorRT 8.5.2.")
@click.option(
    "--ignore", "ignored", multiple=True, metavar="PATTERN", help="Omit these rules, such as nvdla-v2/softmax."
)
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too.")
@click.option("--notes", is_flag=True, help="Also list conditions that shapes do not decide.")
@click.option(
    "--format",
    "style",
    type=click.Choice(["text", "sarif", "github"]),
    default="text",
    show_default=True,
    help="Text, SARIF 2.1.0, or annotations of GitHub Actions.",
)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@click.option("--lsp", is_flag=True, help="Serve editors over stdin and stdout (language server protocol).")
@output_options
@click.pass_obj
def command(
    output: Output,
    files: tuple[str, ...],
    platform: str | None,
    engines: tuple[str, ...],
    version: str | None,
    ignored: tuple[str, ...],
    strict: bool,
    notes: bool,
    style: str,
    file: Path | None,
    lsp: bool,
) -> int:
    """Check plans, pipelines and networks against the operator rules of the accelerators, without planning.

    A warning is an operator that an accelerator does not run, so that it falls back to another engine (in a plan, an
    error); an error is a stage that no engine runs as a whole, a version of the runtime without the accelerator, or an
    invalid file.  Each names its rule, with the document that states it (`socsched platforms rules` shows them all).

    Exit code 0: no errors, 1: errors (with --strict, or warnings), 2: a network that cannot be read.
    """
    from socsched.errors import EXIT_USAGE
    from socsched.lint.check import INVALID_FILE, kept, lint_file

    if lsp:
        from socsched.lint.server import serve

        serve(platform, engines, version, ignored)
        return 0
    if not files:
        raise click.UsageError("name a plan, a pipeline or a network to check")
    ready_to_write(file=file)
    found = [
        entry for name in files for entry in lint_file(name, platform, engines=engines, version=version, notes=notes)
    ]
    found = kept(found, ignored)
    _write(output, found, style, file)
    if any(entry.rule == INVALID_FILE and entry.stage for entry in found):  # no network, rather than one with faults
        return EXIT_USAGE
    wrong = {"error", "warning"} if strict else {"error"}
    return int(any(entry.level in wrong for entry in found))


def _write(output: Output, found: Sequence[Diagnostic], style: str, file: Path | None) -> None:
    from dataclasses import asdict

    from socsched.lint import formats

    if style == "text":
        text = formats.text(found)
    else:
        text = formats.sarif(found) if style == "sarif" else formats.github(found)
    if file:
        from socsched.errors import unwritable
        from socsched.files import write_file

        try:
            write_file(file, text + "\n")
        except OSError as error:
            raise unwritable(file, error) from None
    document = {"diagnostics": [asdict(entry) for entry in found]}
    output.result(document, lambda: None if file else _print(text))


def _print(text: str) -> None:
    for line in text.splitlines():
        echo(line)
