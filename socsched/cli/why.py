"""`socsched why`: the breakdown of a frame's response time, and the jobs it waited for."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.names import CHAIN
from socsched.cli.options import Output, output_options, terminal_width


@click.command("why", short_help="Break down the response time of a frame: work, waits, slowdowns.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--frame", type=click.IntRange(0), help="Number of the frame at its sensor.")
@click.option("--worst", is_flag=True, help="The frame with the largest lateness (default).")
@click.option(
    "--chain", type=CHAIN, help="Chain to explain, if there are several; with --worst: consider only this chain."
)
@output_options
@click.pass_obj
def command(output: Output, folder: Path, frame: int | None, worst: bool, chain: str | None) -> int:
    """Break down the response time of one frame of the results in DIR: waits and their causes, slowdowns, work.

    The parts add up to it to the nanosecond.  For a measured result, slowdown by other jobs' DRAM traffic is
    computed by the plan's model from the recorded overlap.  Exit code 0: the frame was in time, 1: it was late or lost.
    """
    from socsched.api import folders
    from socsched.errors import EXIT_OK, EXIT_VIOLATED
    from socsched.trace.why import Why

    if worst and frame is not None:
        raise click.UsageError("--frame and --worst are mutually exclusive")
    plan, trace, _ = folders.load(folders.single(folder))
    why = Why(trace, plan)
    explanation = why.worst(chain) if frame is None else why.explain(chain, frame)

    def show() -> None:
        from socsched.reporting.terminal import console
        from socsched.reporting.why import view

        console(terminal_width()).print(view(explanation))

    output.result(explanation.document(), show)
    return EXIT_OK if explanation.met else EXIT_VIOLATED
