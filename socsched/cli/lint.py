"""`socsched lint`: what falls back or fails on a platform's accelerators, from operator rules alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from socsched.api.options import PlanOptions, argument, option, shared
from socsched.cli.options import platform
from socsched.cli.output import Output, echo, ready_to_write
from socsched.cli.verbs import Request, verb
from socsched.errors import EXIT_USAGE, writing
from socsched.files import write_file


class LintRequest(Request):
    """What is checked against which rules, and how findings are written."""

    files: tuple[str, ...] = argument(
        "pipeline", multiple=True, required=False, metavar="PLAN.json|PIPELINE|NETWORK.onnx..."
    )
    platform: str | None = platform(required=False)
    shapes: tuple[str, ...] = shared(PlanOptions, "shapes")
    dims: tuple[str, ...] = shared(PlanOptions, "dims")
    engines: tuple[str, ...] = option(
        "--engine", kind="engine", multiple=True, help="Only this engine, or engines of this kind."
    )
    version: str | None = option(
        "--runtime-version", help="Version of the accelerators' runtime, such as TensorRT 8.5.2."
    )
    ignored: tuple[str, ...] = option(
        "--ignore", multiple=True, metavar="PATTERN", help="Omit these rules, such as nvdla-v2/softmax."
    )
    strict: bool = option("--strict", kind="flag", help="Exit code 1 for warnings too.")
    notes: bool = option("--notes", kind="flag", help="Also list conditions that shapes do not decide.")
    style: str = option(
        "--format", kind=("text", "sarif", "github"), default="text", shown=True,
        help="Text, SARIF 2.1.0, or annotations of GitHub Actions.",
    )  # fmt: skip
    file: Path | None = option("-o", "--output", kind="file", help="Write to this file.")
    lsp: bool = option("--lsp", kind="flag", help="Serve editors over stdin and stdout (language server protocol).")


@verb("lint", LintRequest, "Report operators that fall back or fail on a platform's accelerators.")
def command(output: Output, request: LintRequest) -> int:
    """Check plans, pipelines and networks against the operator rules of the accelerators, without planning.

    A warning is an operator that an accelerator does not run, so that it falls back to another engine (in a plan, an
    error); an error is a stage that no engine runs as a whole, a version of the runtime without the accelerator, or an
    invalid file.  Each names its rule, with the document that states it (`socsched platforms rules` shows them all).

    Exit code 0: no errors, 1: errors (with --strict, or warnings), 2: a network that cannot be read.
    """
    from socsched.lint import check
    from socsched.lint.check import INVALID_FILE, UNKNOWN_OPERATOR, kept, lint_file

    engines, version, file = request.engines, request.version, request.file
    if request.lsp:
        from socsched.lint.server import serve

        serve(request.platform, engines, version, request.ignored)
        return 0
    if not request.files:
        raise click.UsageError("name a plan, a pipeline or a network to check")
    ready_to_write(file=file)
    findings = [
        entry
        for name in request.files
        for entry in lint_file(
            name,
            request.platform,
            engines=engines,
            version=version,
            notes=request.notes,
            sizes=(request.shapes, request.dims),
        )
    ]
    findings = kept(findings, request.ignored)
    text = {"text": check.text, "sarif": check.sarif, "github": check.github}[request.style](findings)
    if file:
        with writing(file):
            write_file(file, text + "\n")

    def show() -> None:
        for line in () if file else text.splitlines():
            echo(line)

    output.result({"diagnostics": [asdict(entry) for entry in findings]}, show)
    if any(entry.rule in (INVALID_FILE, UNKNOWN_OPERATOR) and entry.stage for entry in findings):  # no network is read
        return EXIT_USAGE
    wrong = {"error", "warning"} if request.strict else {"error"}
    return int(any(entry.level in wrong for entry in findings))
