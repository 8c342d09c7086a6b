"""`socsched profile`: measured stage times of this machine, for `plan --profile`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.options import (
    NameOrPath,
    Output,
    Pair,
    Percentage,
    input_option,
    output_options,
    pipeline_argument,
    platform_option,
    ready_to_write,
    seed_option,
    terminal_width,
)

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


class _Verb(click.Command):
    """`profile PIPELINE` measures; `profile import FILE...` is a command of its own."""

    @property
    def subcommands(self) -> dict[str, click.Command]:
        """Return the commands that their first word selects."""
        return {"import": import_command}

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == ["import"]:
            return import_command.make_context(f"{info_name} import", args[1:], parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)


@click.command("profile", cls=_Verb, short_help="Measure the execution time of each stage on this machine.")
@pipeline_argument
@platform_option()
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default="profile.json",
    show_default=True,
    help="Output file: the profile.",
)
@click.option("--repeat", type=click.IntRange(1), default=10, show_default=True, help="Measurements per stage.")
@click.option("--until", type=Percentage(), help="Repeat until every median is known to this precision, e.g. 2%.")
@click.option("--contention", is_flag=True, help="Also measure the slowdown of co-running stages.")
@click.option("--vendor-model", is_flag=True, help="No run: take the cycles that the vendor's compiler expects.")
@click.option("--conversions", is_flag=True, help="Also measure conversions of the stages' tensors.")
@input_option
@click.option("--weights", type=click.Path(path_type=Path), envvar="SOCSCHED_WEIGHTS", help=".npz file with weights.")
@seed_option
@output_options
@click.pass_obj
def command(
    output: Output,
    pipeline: str,
    platform: str,
    file: Path,
    repeat: int,
    until: float | None,
    contention: bool,
    vendor_model: bool,
    conversions: bool,
    input_path: Path | None,
    weights: Path | None,
    seed: int,
) -> None:
    """Run every stage of PIPELINE alone on this machine and write its times for `socsched plan --profile`.

    With --vendor-model nothing runs: the times are those that the compiler of an NPU's vendor states for its networks
    on PLATFORM, and plans treat them as less certain than measured, published or fitted ones.

    `socsched profile import FILE...` reads the times from profiles of other tools instead.
    """
    from socsched.api.execution import list_inputs
    from socsched.api.profiling import expect
    from socsched.api.profiling import profile as measure
    from socsched.cost.profile import save_profile

    ready_to_write(file=file)
    if vendor_model and (contention or conversions or input_path or until is not None):
        raise click.UsageError("--vendor-model measures nothing: omit --contention, --conversions, --input and --until")
    profile = (
        expect(pipeline, platform, weights=weights, note=output.note)
        if vendor_model
        else measure(
            pipeline,
            platform,
            repeat=repeat,
            inputs=list_inputs(input_path),
            weights=weights,
            seed=seed,
            until=until,
            contention=contention,
            conversions=conversions,
            note=output.note,
        )
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    save_profile(profile, file)
    output.note(f"wrote {file}")

    title = "Expected by the vendor's compiler for" if vendor_model else "Measured on"
    output.result(_document(profile), lambda: _show(f"{title} {profile.platform}", profile))


def _document(profile: Profile) -> dict[str, Any]:
    """Return the profile as plain data, the costs without fields that only imported ones have."""
    from dataclasses import asdict

    document = asdict(profile)
    for cost in document["costs"]:
        for name in ("source", "state"):
            if not cost[name]:
                del cost[name]
    return document


def _show(title: str, profile: Profile) -> None:
    from socsched.reporting.terminal import console, table
    from socsched.units import format_duration

    rows = [
        [
            c.stage,
            c.engine,
            c.precision,
            str(c.share or "all"),
            format_duration(c.time_ns),
            f"±{c.error:.0%}",
            str(c.samples),
        ]
        for c in profile.costs
    ]
    columns = ["stage", "engine", "precision", "units", "time", "error", "samples"]
    console(terminal_width()).print(table(title, columns, rows, (4, 5, 6)))


@click.command("import", short_help="Read the execution times from profiles of other tools.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@platform_option()
@click.option("-m", "--mode", help="Power mode of the recording, if the files do not state it.")
@click.option(
    "--precision", type=click.Choice(["fp32", "fp16", "int8"]), help="Data type, if the files do not state it."
)
@click.option(
    "--engine", "engines", type=Pair(), multiple=True, metavar="KIND=ENGINE", help="Engine of a kind: dla=dla1."
)
@click.option("--stage", "stages", type=Pair(), multiple=True, metavar="SOURCE=NAME", help="Stage of a file or range.")
@click.option("--pipeline", type=NameOrPath("pipelines"), help="Pipeline whose networks' layers the files name.")
@click.option(
    "--results", type=click.Path(path_type=Path, file_okay=False), help="Result folder with the jobs recorded."
)
@click.option("--skip", type=click.IntRange(0), default=0, show_default=True, help="First jobs to leave out: warm-up.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    default="profile.json",
    show_default=True,
    help="Output file: the profile.",
)
@output_options
@click.pass_obj
def import_command(
    output: Output,
    files: tuple[Path, ...],
    platform: str,
    mode: str | None,
    precision: str | None,
    engines: tuple[tuple[str, str], ...],
    stages: tuple[tuple[str, str], ...],
    pipeline: str | None,
    results: Path | None,
    skip: int,
    file: Path,
) -> None:
    """Read execution times from profiles of other tools and write them for `socsched plan --profile`.

    FILE: trtexec --exportProfile, --exportTimes, --exportLayerInfo, or its console text; an SQLite export of Nsight
    Systems, or the tables of nsys stats; profiles of ONNX Runtime, PyTorch and QNN (CSV); RKNN's tables; scheduler
    events of ftrace and perf; a log of tegrastats or jtop, which states the board's condition and power mode.

    What the files state holds: a --mode that contradicts them is an error, a --precision is not used.
    """
    from socsched.api.interchange import import_profile, save_recording
    from socsched.cost.profile import save_profile

    ready_to_write(file=file)
    found = import_profile(
        files,
        platform,
        pipeline=pipeline,
        mode=mode or "",
        precision=precision or "",
        engines=dict(engines),
        stages=dict(stages),
        skip=skip,
    )
    for note in found.notes:
        output.note(note)
    file.parent.mkdir(parents=True, exist_ok=True)
    save_profile(found.profile, file)
    output.note(f"wrote {file}")
    if results:
        save_recording(found, platform, results)
        output.note(f"wrote {results}/ (plan.json, result.json, trace.pftrace)")
    recordings: list[Mapping[str, Any]] = [
        {"file": one.file, "tool": one.tool, "total_ns": round(one.total_ns), "handover_ns": round(one.handover_ns)}
        | ({"lost_events": one.lost, "discarded_jobs": one.discarded} if one.lost or one.discarded else {})
        for one in found.recordings
        if one.sections
    ]
    document = {
        **_document(found.profile),
        "recordings": recordings,
        "layers": {name: list(layers) for name, layers in found.layers.items()},
        "cuts": dict(found.cuts),
        "notes": list(found.notes),
    }

    def show() -> None:
        from socsched.units import format_duration

        _show(f"Imported for {found.profile.platform}", found.profile)
        for row in recordings:
            if row["handover_ns"]:
                output.note(
                    f"{row['file']}: {format_duration(row['total_ns'])} in all, of it hand-overs between engines "
                    f"{format_duration(row['handover_ns'])}, which no stage includes"
                )

    output.result(document, show)
