"""Options shared by the verbs: output switches, name-or-path arguments with completion, quantities with units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from socsched.cli.names import MODE, POLICY
from socsched.text import printable

if TYPE_CHECKING:
    from socsched.cli.progress import Bar

SCHEMA_VERSION = "1"
F = TypeVar("F", bound=Callable[..., Any])


def echo(text: str, err: bool = False) -> None:
    """Print text to stdout or stderr; control characters in names and messages are escaped."""
    click.echo(printable(text), err=err)


@dataclass(slots=True)
class Output:
    """Output streams: results (or one JSON object) to stdout, progress and warnings to stderr."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: Bar | None = None

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

    def result(self, content: Mapping[str, Any], show: Callable[[], None]) -> None:
        """Print the result: the JSON object if requested, otherwise the output of `show`."""
        if self.json:
            self.document(content)
        elif not self.quiet:
            self.clear()
            show()


def output_options(function: F) -> F:
    """Add --json, -q and -v; the command finds the outcome in `ctx.obj` (an `Output`)."""
    for name, flags, text in (
        ("verbose", ("-v", "--verbose"), "Verbose output; show tracebacks."),
        ("quiet", ("-q", "--quiet"), "No progress, no tables: only the exit code."),
        ("json", ("--json",), "Print one JSON object instead of text."),
    ):
        function = click.option(
            *flags, name, is_flag=True, expose_value=False, is_eager=True, help=text, callback=_set_output
        )(function)
    return function


def _set_output(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    output = ctx.ensure_object(Output)
    if value and param.name:
        setattr(output, param.name, True)


def allow_weaker_option(function: F) -> F:
    """Add --allow-weaker."""
    return click.option(
        "--allow-weaker",
        "weaker",
        multiple=True,
        metavar="NAME[.KIND]",
        help="Accept a weaker requirement of this chain, stage or sensor, such as detection or detection.deadline.",
    )(function)


def strict_option(function: F) -> F:
    """Add --strict: every number must have a source."""
    text = "Also report every number without a source or a stated assumption."
    return click.option("--strict", is_flag=True, help=text)(function)


class Pair(click.ParamType[tuple[str, str]]):
    """Text of the form KEY=VALUE, as a pair."""

    name = "pair"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, found = value.partition("=")
        if not (equals and key and found):
            self.fail(f"expected KEY=VALUE, got {value!r}", param, ctx)
        return key, found


class Slack(click.ParamType["tuple[float, int]"]):
    """A part of a deadline, as a percentage or as a time; becomes (ratio of the deadline, ns), one of them 0."""

    name = "percent|duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, int]:
        """Return the slack."""
        if isinstance(value, tuple):
            return value
        if str(value).strip().endswith("%"):
            return Percentage().convert(value, param, ctx), 0
        return 0.0, Quantity("duration").convert(value, param, ctx)


class NameOrPath(click.ParamType[str]):
    """A shipped platform or pipeline by name, or a path; completes shipped names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = kind.removesuffix("s")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [name for name in shipped_names(self.kind) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


class Quantity(click.ParamType[int]):
    """A value with a unit, such as `60s` or `15 W`; becomes an integer in base units."""

    def __init__(self, dimension: str) -> None:
        self.dimension = dimension
        self.name = dimension

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from socsched.units import parse

        if isinstance(value, int):
            return value
        try:
            number = parse(value, self.dimension)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if number <= 0:
            self.fail(f"expected a {self.dimension} above zero, got {value!r}", param, ctx)
        return number


class Number(click.ParamType[float]):
    """A finite number of at least `least`."""

    name = "number"

    def __init__(self, least: float) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        from socsched.units import parse_number

        try:
            number = parse_number(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if number < self.least:
            self.fail(f"expected a number of at least {self.least:g}, got {value!r}", param, ctx)
        return number


class Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers above zero, separated by commas."""

    name = "number[,...]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        """Return the distinct numbers."""
        if isinstance(value, tuple):
            return value
        from socsched.units import parse_number

        try:
            numbers = tuple(dict.fromkeys(parse_number(part) for part in str(value).split(",")))
        except ValueError:
            self.fail(f"expected numbers such as 0.5,1,2, got {value!r}", param, ctx)
        if not all(0 < number < 1e6 for number in numbers):
            self.fail(f"expected numbers above zero, got {value!r}", param, ctx)
        return numbers


class Percentage(click.ParamType[float]):
    """A percentage such as `5%`; becomes a ratio."""

    name = "percent"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        from socsched.units import parse_number

        try:
            number = parse_number(str(value).removesuffix("%")) / 100
        except ValueError:
            self.fail(f"expected a percentage such as 5%, got {value!r}", param, ctx)
        if number < 0:
            self.fail(f"expected a percentage of at least 0%, got {value!r}", param, ctx)
        return number


def shipped_names(kind: str) -> list[str]:
    """Return the names of shipped files of `kind` ("platforms" or "pipelines") without reading them."""
    package = Path(__file__).parents[1]
    folders = (package / kind, package.parent / kind)
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    return sorted(names | ({"host"} if kind == "platforms" else set()))


def pipeline_argument(function: F) -> F:
    """Add the PIPELINE argument."""
    return click.argument("pipeline", type=NameOrPath("pipelines"))(function)


def source_option(function: F) -> F:
    """Add --pipeline: the pipeline file of a plan, if its name does not locate it."""
    text = "File or name of the plan's pipeline, if the name in the plan does not locate it."
    return click.option("--pipeline", "source", type=NameOrPath("pipelines"), help=text)(function)


def platform_option(required: bool = True) -> Callable[[F], F]:
    """Return a decorator that adds -p/--platform."""
    return click.option(
        "-p",
        "--platform",
        type=NameOrPath("platforms"),
        required=required,
        envvar="SOCSCHED_PLATFORM",
        help="Shipped platform or path; `host` is this machine.",
    )


def mode_option(function: F) -> F:
    """Add --mode."""
    return click.option(
        "--mode", "-m", type=MODE, envvar="SOCSCHED_MODE", help="Power mode; auto or not given: every mode is tried."
    )(function)


class Objectives(click.ParamType[str]):
    """One of the planner's objectives, or several in lexicographic order, separated by commas."""

    name = "latency|longest|energy|throughput|slack[,...]"
    names = ("latency", "longest", "energy", "throughput", "slack")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{name}") for name in self.names if name.startswith(last)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check the names; planning checks their order."""
        chosen = [name.strip() for name in str(value).split(",")]
        wrong = next((name for name in chosen if name not in self.names), None)
        if wrong is not None:
            self.fail(f"{wrong!r} is not one of {', '.join(self.names)}", param, ctx)
        if len(set(chosen)) < len(chosen):
            self.fail(f"{value!r} names an objective twice", param, ctx)
        return ",".join(chosen)


def planning_options(function: F, simulated: bool = False) -> F:
    """Add the planning options --objective, --policy and --profile; a simulation accepts more policies."""
    chosen: click.ParamType[str] = POLICY if simulated else click.Choice(["auto", "edf", "fp"])
    policies = "Scheduling policy" + (", see --policies." if simulated else " of preemptive engines; auto: EDF, and")
    policies += "" if simulated else " fixed priorities if no plan is found."
    decorators = (
        click.option(
            "--objective",
            type=Objectives(),
            default="latency",
            show_default=True,
            help="Objectives among mappings that meet the deadlines; the first is the most important.",
        ),
        click.option(
            "--policy",
            type=chosen,
            default="edf" if simulated else "auto",
            show_default=True,
            help=policies,
        ),
        click.option(
            "--profile",
            "profile_file",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Measured stage costs from `socsched profile`.",
        ),
    )
    for decorator in reversed(decorators):
        function = decorator(function)
    return function


def seed_option(function: F) -> F:
    """Add --seed."""
    return click.option(
        "--seed",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        envvar="SOCSCHED_SEED",
        help="Seed of all random numbers.",
    )(function)


def input_option(function: F) -> F:
    """Add --input."""
    return click.option(
        "--input",
        "input_path",
        type=click.Path(path_type=Path),
        help="File with frames, or a folder of them: scans (.bin), images, .npz with arrays by port name, .mcap.",
    )(function)


def topic_option(function: F) -> F:
    """Add --topic."""
    return click.option(
        "--topic",
        "topics",
        type=Pair(),
        multiple=True,
        metavar="SENSOR=TOPIC",
        help="Topic that feeds a sensor from an .mcap file of --input, if several could.",
    )(function)


def folder_option(function: F) -> F:
    """Add -o/--output for a result folder."""
    return click.option(
        "-o",
        "--output",
        "folder",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder for the result files.",
    )(function)


def ready_to_write(*, file: Path | None = None, folder: Path | None = None) -> None:
    """Check that the output location is writable before the work starts, so that an error costs no work.

    The folder of a `file` is created; a `folder` is not left behind, since the command may still fail.  Raises
    UsageError if an argument of the command names the same file.
    """
    import tempfile
    from itertools import takewhile

    from socsched.errors import unwritable
    from socsched.files import replaceable

    place = folder or (file.parent if file else None)
    if place is None:
        return
    try:
        if file is not None:
            _no_input(file)
            if not replaceable(file):
                file.parent.stat()
                return
        created = list(takewhile(lambda path: not path.exists(), (place, *place.parents)))
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            pass
        for path in created if folder else ():
            path.rmdir()
    except OSError as error:
        raise unwritable(folder or file, error) from None


def _no_input(file: Path) -> None:
    """Raise UsageError if an argument or another option of the command names its output file."""
    from socsched.errors import UsageError
    from socsched.files import is_same_file, replaceable

    context = click.get_current_context(silent=True)
    values = [value for value in context.params.values() if value is not file] if context else []
    names = [name for value in values for name in (value if isinstance(value, tuple) else (value,))]
    if replaceable(file) and any(isinstance(name, (str, Path)) and is_same_file(name, file) for name in names):
        raise UsageError(f"{file}: is an input of this command and cannot be its output", "choose another file with -o")


def terminal_width() -> int:
    """Return the width for tables: COLUMNS, else that of the terminal, else a large default (a file or pipe)."""
    import shutil

    return shutil.get_terminal_size((140, 24)).columns
