"""`socsched study`: comparisons, one subcommand per subject, each in a separate module."""

from __future__ import annotations

from importlib import import_module

import click

from socsched.cli.verbs import output_options

SUBJECTS = ("acceptance", "mixed-criticality", "planners", "policies", "sharing")


class Subjects(click.Group):
    """Imports `socsched_literature.cli.SUBJECT` on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the available subjects."""
        return list(SUBJECTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a subject, None for an unknown subject."""
        if cmd_name not in SUBJECTS:
            return None
        command: click.Command = import_module(f"socsched_literature.cli.{cmd_name.replace('-', '_')}").command
        return command


@click.group("study", cls=Subjects, short_help="Compare scheduling policies, planners, ...")
@output_options
def command() -> None:
    """Compare approaches from the literature on a custom workload and platform."""
