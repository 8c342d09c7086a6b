"""The root command: loads verbs lazily, and turns all errors into text and exit codes."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from socsched import __version__, plugins
from socsched.cli.output import Output, echo, output_parameters
from socsched.cli.progress import show_progress
from socsched.errors import EXIT_MACHINE, EXIT_USAGE, SocschedError
from socsched.progress import speaking

VERBS = {
    "platforms": "platforms:command", "pipelines": "pipelines:command", "calibrate": "weights:calibrate",
    "compile": "compile:command", "plan": "plan:command", "advise": "advise:command", "book": "book:command",
    "analyze": "analyze:command",
    "simulate": "simulate:command", "run": "run:command", "verify": "verify:command", "profile": "costs:profile",
    "fit": "costs:fit", "report": "report:command", "why": "report:why", "weights": "weights:command",
    "compare": "compare:command", "lint": "lint:command", "validate": "costs:validate", "guard": "guard:command",
    "sweep": "studies:sweep", "fleet": "studies:fleet", "demo": "demo:command", "doctor": "doctor:command",
    "plugins": "doctor:plugins", "completion": "doctor:completion",
}  # fmt: skip
"""Every verb, in the order of the help, and the command in `socsched.cli` that it is."""
EXIT_INTERRUPTED, EXIT_READER_GONE = 130, 141
"""Exit codes that shells report for processes killed by SIGINT and SIGPIPE."""


def verbs() -> list[str]:
    """Return all verbs; registered commands precede the demo."""
    more = [name for name in plugins.names("socsched.commands") if name not in VERBS]
    own = list(VERBS)
    return [*own[:-4], *more, *own[-4:]]


class LazyGroup(click.Group):
    """Imports a verb on demand: one of `VERBS`, or a command registered under `socsched.commands`.

    A verb that cannot be imported is listed with the reason.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return verbs()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS and cmd_name not in verbs():
            return None
        try:
            if cmd_name not in VERBS:
                return plugins.entries("socsched.commands")[cmd_name].load()  # type: ignore[no-any-return]
            module, _, attribute = VERBS[cmd_name].partition(":")
            command: click.Command = getattr(import_module(f"socsched.cli.{module}"), attribute)
        except ImportError as error:
            return _unavailable(cmd_name, error)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in VERBS and name not in verbs():
            near = difflib.get_close_matches(name, verbs(), n=3, cutoff=0.5)
            suggestion = f"did you mean {' or '.join(near)}?" if near else f"commands: {', '.join(verbs())}"
            hint = plugins.literature_hint("socsched.commands") if name == "study" else ""
            ctx.fail(f"unknown command {name!r}; {suggestion}{hint}")
        return super().resolve_command(ctx, args)


def _unavailable(name: str, reason: ImportError) -> click.Command:
    @click.command(name, help=f"Not available here: {reason}.", add_help_option=False)
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: tuple[str, ...]) -> None:
        raise reason

    command.context_settings = {"ignore_unknown_options": True}
    return command


cli = LazyGroup(
    "cli",
    context_settings={"auto_envvar_prefix": "SOCSCHED", "help_option_names": ["-h", "--help"]},
    help="Map driving pipelines onto heterogeneous SoCs: compile, plan, simulate, run, and compare what happened.",
    epilog="Exit codes: 0 requirements met, 1 requirement violated, 2 usage or invalid file, 3 machine or board, "
    "4 undecided. Start with: socsched demo",
    params=output_parameters(),
    callback=lambda: None,
)
click.version_option(__version__, message="socsched %(version)s")(cli)
cli.params.insert(0, cli.params.pop())  # --version leads the help


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit code; no user error ends in a traceback (`-v` shows one)."""
    output = Output()
    _streams()
    try:
        with speaking(output.warn), show_progress(lambda: output.quiet) as output.progress:
            code = cli.main(list(arguments), prog_name="socsched", obj=output, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.note("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit as error:
        if error.code == 1:  # only click and rich use this code, for a reader that went away
            return _reader_gone()
        raise
    except Exception as error:
        return _report(error, output)


def _reader_gone() -> int:
    """Return the exit code of a process whose reader (head, less) went away, and suppress the error."""
    # The interpreter flushes its buffers at exit, which would raise an error.
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(nothing, stream.fileno())  # type: ignore[union-attr]
    return EXIT_READER_GONE


def _streams() -> None:
    """Replace closed streams, and make streams usable that cannot encode every character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace" if name == "stderr" else "replace")


def _report(error: Exception, output: Output) -> int:
    message, hint, code = _explain(error)
    if output.verbose:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    if output.json:
        output.document({"error": {"message": message, "hint": hint, "exit_code": code}})
    echo(f"error: {message}", err=True)
    if hint:
        echo(f"hint: {hint}", err=True)
    return code


def _explain(error: Exception) -> tuple[str, str, int]:
    if isinstance(error, SocschedError):
        return str(error), error.hint, error.exit_code
    if isinstance(error, ImportError):
        return (
            f"cannot import {error.name or 'a module'}: {error}",
            "run `socsched doctor` to see what is missing",
            EXIT_MACHINE,
        )
    if isinstance(error, (FileNotFoundError, IsADirectoryError, NotADirectoryError)):
        return f"{error.filename}: {error.strerror}", "check the path", EXIT_USAGE
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", "check permissions and free space (socsched doctor)", EXIT_MACHINE
    if isinstance(error, MemoryError):
        return "out of memory", "shorten --duration, or use a machine with more memory", EXIT_MACHINE
    from traceback import extract_tb

    at = extract_tb(error.__traceback__)[-1]  # a plugin's author looks there, not in socsched
    hint = f"this is a bug in {at.filename}:{at.lineno}; run again with -v for details"
    return f"{type(error).__name__}: {error}", hint, EXIT_MACHINE
