"""`socsched study`: comparisons, one subcommand a subject, each in a module of its own."""

from __future__ import annotations

from importlib import import_module

import click

from socsched.cli.options import output_options

SUBJECTS = ("learn", "planners", "policies", "sharing")


class Subjects(click.Group):
    """Imports `socsched.literature.cli.SUBJECT` when asked for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subjects there are."""
        return list(SUBJECTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subject's command, None for one that there is not."""
        if cmd_name not in SUBJECTS:
            return None
        command: click.Command = import_module(f"socsched.literature.cli.{cmd_name}").command
        return command


@click.group("study", cls=Subjects, short_help="Compare scheduling policies, planners, ...")
@output_options
def command() -> None:
    """Compare what the literature has to offer on a workload and platform of your own."""
