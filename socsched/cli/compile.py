"""`socsched compile`: a plan, or a pipeline for a platform, compiled into a folder that runs on the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.api.options import CompileOptions, PlanOptions, argument, requested, shared
from socsched.cli.options import output_folder, platform, source
from socsched.cli.output import Output, ready_to_write, table
from socsched.cli.results import on_the_line
from socsched.cli.verbs import Request, verb
from socsched.errors import InputError

if TYPE_CHECKING:
    from socsched.executor.check_bundle import Point


class CompileRequest(Request):
    """What is compiled, for what, and where the artefacts go."""

    pipeline: str = argument("pipeline", metavar="PLAN.json|PIPELINE|BUNDLE")
    platform: str | None = platform(required=False)
    source: str | None = source()
    options: CompileOptions = requested(CompileOptions)
    shapes: tuple[str, ...] = shared(PlanOptions, "shapes")
    dims: tuple[str, ...] = shared(PlanOptions, "dims")
    folder: Path = output_folder("Folder for the artefacts, their manifest and the start script.", "artifacts")


@verb("compile", CompileRequest, "Compile a plan, or the stages of a pipeline, for a platform.")
def command(output: Output, request: CompileRequest) -> None:
    """Compile the stages of a plan for the engines it chose, or PIPELINE's for every engine that takes them.

    The output of a plan is one folder that starts on its board without Python: start.sh, and build.sh where the
    board's own tools make a stage. A compiler that is missing is fetched, or exit code 3 says what to install. With
    --check, such a folder is checked: processors, glibc, digests, every stage, and what the board builds or needs.
    Of a pipeline, only code and hand-overs are written. Results are cached.
    """
    from socsched.api import loading
    from socsched.api.deployment import check, compile_pipeline, compile_plan
    from socsched.descriptor.catalog import get_platform
    from socsched.models.sizes import sized

    name, folder, options = request.pipeline, request.folder, request.options
    if options.check:
        points = check(name)
        faults = [point for point in points if point.state == "fault"]
        output.result({"bundle": name, "points": [asdict(point) for point in points]}, lambda: _checked(points, name))
        if faults:
            listed = "\n".join(f"{point.what}: {point.detail}" for point in faults)
            raise InputError(f"{name} cannot start on its board:\n{listed}", "compile the plan again")
        return
    if name.endswith(".json"):
        if request.shapes or request.dims:
            raise click.UsageError(f"{name} is a plan, which states its sizes: plan again with other --shape and --dim")
        plan = loading.load_plan(Path(name))
        if on_the_line("platform") and request.platform != plan.platform:
            raise click.UsageError(f"{name} is a plan for {plan.platform}: omit --platform")
        pipeline = loading.pipeline_of(plan, request.source, output.warn)
        ready_to_write(folder=folder)
        if plan.verdict != "feasible":
            output.warn(f"{name} is {plan.verdict}: its bundle starts, but may miss deadlines")
        manifest = compile_plan(plan, pipeline, folder, options, output.note)
    elif request.platform is None:
        raise click.UsageError(f"a pipeline needs a platform: socsched compile {name} -p PLATFORM")
    else:
        pipeline = sized(loading.load_pipeline(name), request.shapes, request.dims)
        board = get_platform(request.platform)
        ready_to_write(folder=folder)
        manifest = compile_pipeline(pipeline, board, folder, options, output.note)
    output.result(manifest, lambda: _table(manifest, folder))


def _checked(points: Sequence[Point], name: str) -> Any:
    rows = [[point.what, point.state, point.detail] for point in points]
    return table(f"{name}/", ["what", "state", "detail"], rows)


def _table(manifest: dict[str, Any], folder: Path) -> Any:
    from rich.console import Group

    rows = []
    for a in manifest["artifacts"]:
        files = [*a["files"], *([a["qdq"]] if "qdq" in a else [])]
        rows.append([a["stage"], a["engine"], a["precision"], a["target"], ", ".join(files), "; ".join(a["notes"])])
    for h in manifest["handovers"]:
        if "compiled" in h:
            files = [f"{h['folder']}/{name}" for name in h["compiled"]["files"]]
            versions = ", ".join(f"{name} {version}" for name, version in h["compiled"]["versions"].items())
            left = f"compiled by {versions}"
        else:
            files = [f"{h['folder']}/model.onnx"]
            scripts = [name for name in ("build.sh", "build.py") if name in h["files"]]
            left = f"run {scripts[0]} there" if scripts else f"{h['toolchain']} reads it there"
        rows.append([h["stage"], h["engine"], h["precision"], h["toolchain"], ", ".join(files), left])
    title = f"{manifest['pipeline']} for {manifest['platform']}, in {folder}/"
    made = table(title, ["stage", "engine", "precision", "target", "files", "notes"], rows)
    if "application" not in manifest:
        return made
    first = "sh build.sh, then " if manifest["application"]["built_on_board"] else ""
    return Group(made, f"Next: copy {folder}/ to the board; there {first}sh start.sh --selftest (see its README.txt)")
