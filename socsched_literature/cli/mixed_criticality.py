"""`socsched study mixed-criticality`: what schemes for two levels of criticality accept, against utilisation."""

from __future__ import annotations

from pathlib import Path

import click

from socsched.cli.options import Number, Percentage, output_folder
from socsched.cli.output import Output
from socsched.cli.verbs import decorated, output_options
from socsched_literature.cli.acceptance import show


@click.command("mixed-criticality", short_help="Compare what schemes for two levels of criticality accept.")
@click.option("--sets", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Task sets per load.")
@click.option("--tasks", type=click.IntRange(1, 200), default=20, show_default=True, help="Tasks of each set.")
@click.option(
    "--factor", type=Number(1), default=2.0, show_default=True, help="C(HI) of a task as a multiple of C(LO)."
)
@click.option(
    "--share",
    type=Percentage(),
    default="50%",
    show_default=True,
    help="Probability that a task is of high criticality.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the task sets.")
@decorated(folder=output_folder())
@output_options
@click.pass_obj
def command(output: Output, sets: int, tasks: int, factor: float, share: float, seed: int, folder: Path | None) -> int:
    """Draw task sets as in the papers on AMC and EDF-VD, and show the share that each scheme accepts.

    Fixed priorities are assigned by Audsley's algorithm.  UB-H&L: each level schedulable by itself, an upper bound.
    -o writes mixed-criticality.json, .csv and .svg.  Exit code 0: compared.
    """
    from socsched.errors import UsageError
    from socsched_literature.studies import acceptance

    if share > 1:
        raise UsageError(f"--share must be at most 100%, got {share:.0%}")
    panel = acceptance.mixed_criticality_panel(tasks, factor, share)
    return show(output, lambda: acceptance.study("mixed-criticality", [panel], sets, seed), folder)
