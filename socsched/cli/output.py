"""What verbs print: results or one JSON object to stdout, progress and warnings to stderr; where they may write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from socsched.cli.progress import Bar
from socsched.errors import UsageError, writing
from socsched.files import is_same_file, replaceable
from socsched.text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

SCHEMA_VERSION = "1"


def echo(text: str, err: bool = False) -> None:
    """Print text to stdout or stderr; control characters in names and messages are escaped."""
    click.echo(printable(text), err=err)


@dataclass(slots=True)
class Output:
    """Output streams of a verb, as the options --json, --quiet and --verbose ask for them."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: Bar | None = None
    started: float = field(default_factory=time.monotonic)

    def note(self, text: str) -> None:
        """Print progress to stderr unless quiet."""
        if not self.quiet:
            self.clear()
            echo(text, err=True)

    def clear(self) -> None:
        """Remove the progress line; it reappears with the next step."""
        if self.progress is not None:
            self.progress.clear()

    def warn(self, text: str) -> None:
        """Print a warning to stderr."""
        self.clear()
        echo(f"warning: {text}", err=True)

    def document(self, content: Mapping[str, Any]) -> None:
        """Print one JSON object with `schema_version` to stdout."""
        click.echo(json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2, sort_keys=True))

    def result(self, content: Mapping[str, Any], show: Callable[[], Any]) -> None:
        """Print the result: the JSON object if requested, otherwise what `show` returns for `show_all`, or prints."""
        if self.json:
            self.document(content)
        elif not self.quiet:
            self.clear()
            show_all(show())


def show_all(parts: RenderableType | list[Any] | tuple[Any, ...] | None) -> None:
    """Print tables and lines, one or several, as wide as the terminal."""
    if parts is None:
        return
    # rich takes longer to load than most verbs take to answer --json
    from socsched.reporting.terminal import console

    screen = console(terminal_width())
    for part in parts if isinstance(parts, list | tuple) else (parts,):
        screen.print(part)


def _set_output(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    output = ctx.ensure_object(Output)
    if value and param.name:
        setattr(output, param.name, True)


def output_parameters() -> list[click.Parameter]:
    """Return the options --json, -q and -v; the command finds the outcome in `ctx.obj` (an `Output`)."""
    shown = (
        (("--json",), "Print one JSON object instead of text."),
        (("-q", "--quiet"), "No progress, no tables: only the exit code."),
        (("-v", "--verbose"), "Verbose output; show tracebacks."),
    )
    return [
        click.Option(
            [*flags, flags[-1].lstrip("-")], is_flag=True, expose_value=False, is_eager=True, help=text,
            callback=_set_output,
        )
        for flags, text in shown
    ]  # fmt: skip


def ready_to_write(*, file: Path | None = None, folder: Path | None = None) -> None:
    """Check that the output location is writable before the work starts, so that an error costs no work.

    The folder of a `file` is created; a `folder` is not left behind, since the command may still fail.  Raises
    UsageError if an argument of the command names the same file.
    """
    import tempfile
    from itertools import takewhile

    place = folder or (file.parent if file else None)
    if place is None:
        return
    with writing(folder or file):
        if file is not None:
            context = click.get_current_context(silent=True)
            values = [value for value in context.params.values() if value is not file] if context else []
            names = [name for value in values for name in (value if isinstance(value, tuple) else (value,))]
            if replaceable(file) and any(isinstance(name, (str, Path)) and is_same_file(name, file) for name in names):
                problem = f"{file}: is an input of this command and cannot be its output"
                raise UsageError(problem, "choose another file with -o")
            if not replaceable(file):
                file.parent.stat()
                return
        created = list(takewhile(lambda path: not path.exists(), (place, *place.parents)))
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
        for path in created if folder else ():
            path.rmdir()


def terminal_width() -> int:
    """Return the width for tables: COLUMNS, else that of the terminal, else a large default (a file or pipe)."""
    import shutil

    return shutil.get_terminal_size((140, 24)).columns


def table(*args: Any, **how: Any) -> Any:
    """Return `reporting.terminal.table`, which is imported where something is shown."""
    from socsched.reporting import terminal

    return terminal.table(*args, **how)
