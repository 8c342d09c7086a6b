"""`socsched plugins`: the objects registered under the entry-point groups, and their packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from socsched.cli.options import Output, output_options, terminal_width

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@click.command("plugins", short_help="List what is registered: policies, planners, targets, ...")
@click.argument("group", required=False, metavar="[GROUP]")
@output_options
@click.pass_obj
def command(output: Output, group: str | None) -> None:
    """List policies, planners, schedulability tests, models, compile targets and more, built in and installed.

    GROUP is the last word of an entry-point group, such as policies.  docs/extending.md shows how to add to each.
    """
    from socsched import plugins
    from socsched.errors import UsageError

    known = [name.partition(".")[2] for name in plugins.GROUPS]
    if group is not None and group not in known:
        raise UsageError(f"unknown group {group!r}", f"one of {', '.join(known)}")
    groups = {
        name: {entry.name: {"object": entry.value, "package": _package(entry)} for entry in entries}
        for name in known
        if group in (None, name)
        for entries in [[plugins.entries(f"socsched.{name}")[one] for one in plugins.names(f"socsched.{name}")]]
    }

    def show() -> None:
        from socsched.reporting.terminal import Sheet, console

        rows = [
            (kind, name, entry["object"], entry["package"])
            for kind, entries in groups.items()
            for name, entry in entries.items()
        ]
        console(terminal_width()).print(Sheet(["group", "name", "object", "package"], rows))

    output.result({"groups": groups}, show)


def _package(entry: EntryPoint) -> str:
    """Return the package that registers an entry, with its version."""
    from socsched import __version__, plugins

    if entry.dist is not None:
        return f"{entry.dist.metadata['Name']} {entry.dist.version}"
    return f"socsched {__version__}" if plugins.is_own(entry) else ""
