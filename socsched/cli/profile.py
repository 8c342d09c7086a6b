"""`socsched profile`: measured stage times of this machine, for `plan --profile`."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import (
    Output,
    Percentage,
    input_option,
    output_options,
    pipeline_argument,
    platform_option,
    ready_to_write,
    seed_option,
    terminal_width,
)


@click.command("profile", short_help="Measure the execution time of each stage on this machine.")
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
    """
    from dataclasses import asdict

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

    def show() -> None:
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
        title = "Expected by the vendor's compiler for" if vendor_model else "Measured on"
        console(terminal_width()).print(table(f"{title} {profile.platform}", columns, rows, (4, 5, 6)))

    output.result(asdict(profile), show)
