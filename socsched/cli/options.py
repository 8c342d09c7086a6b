"""Types of the command line's parameters, what a shell completes of them, and the options that verbs share."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from socsched.api.options import PlanOptions, SimulateOptions, argument, option, shared
from socsched.units import parse, parse_number


class Parsed(click.ParamType[Any], ABC):
    """Text that becomes a value; a ValueError of `parse` says what is wrong with it."""

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Return the value of a text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default is converted already
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pair(Parsed):
    """Text of the form KEY=VALUE, as a pair."""

    name = "pair"

    def parse(self, text: str) -> tuple[str, str]:
        key, equals, value = text.partition("=")
        if not (equals and key and value):
            raise ValueError(f"expected KEY=VALUE, got {text!r}")
        return key, value


class Quantity(Parsed):
    """A value with a unit, such as `60s` or `15 W`; becomes an integer in base units."""

    def __init__(self, dimension: str) -> None:
        self.name = dimension

    def parse(self, text: str) -> int:
        number = parse(text, self.name)
        if number <= 0:
            raise ValueError(f"expected a {self.name} above zero, got {text!r}")
        return number


class Number(Parsed):
    """A finite number of at least `least`."""

    name = "number"

    def __init__(self, least: float) -> None:
        self.least = least

    def parse(self, text: str) -> float:
        number = parse_number(text)
        if number < self.least:
            raise ValueError(f"expected a number of at least {self.least:g}, got {text!r}")
        return number


class Numbers(Parsed):
    """Distinct numbers above zero, separated by commas."""

    name = "number[,...]"

    def parse(self, text: str) -> tuple[float, ...]:
        try:
            numbers = tuple(dict.fromkeys(parse_number(part) for part in text.split(",")))
        except ValueError:
            raise ValueError(f"expected numbers such as 0.5,1,2, got {text!r}") from None
        if not all(0 < number < 1e6 for number in numbers):
            raise ValueError(f"expected numbers above zero, got {text!r}")
        return numbers


class Percentage(Parsed):
    """A percentage such as `5%`; becomes a ratio."""

    name = "percent"

    def parse(self, text: str) -> float:
        try:
            number = parse_number(text.removesuffix("%")) / 100
        except ValueError:
            raise ValueError(f"expected a percentage such as 5%, got {text!r}") from None
        if number < 0:
            raise ValueError(f"expected a percentage of at least 0%, got {text!r}")
        return number


class Slack(Parsed):
    """A part of a deadline, as a percentage or as a time; becomes (ratio of the deadline, ns), one of them 0."""

    name = "percent|duration"

    def parse(self, text: str) -> tuple[float, int]:
        if text.strip().endswith("%"):
            return Percentage().parse(text), 0
        return 0.0, Quantity("duration").parse(text)


class NameOrPath(click.ParamType[str]):
    """A shipped platform or pipeline by name, or a path; completes shipped names."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = kind.removesuffix("s")

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        names = [name for name in shipped_names(self.kind) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


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


def shipped_names(kind: str) -> list[str]:
    """Return the names of shipped files of `kind` ("platforms" or "pipelines") without reading them."""
    package = Path(__file__).parents[1]
    folders = (package / kind, package.parent / kind)
    names = {path.stem for folder in folders for path in folder.glob("*.yaml")}
    return sorted(names | ({"host"} if kind == "platforms" else set()))


class Completed(click.ParamType[str]):
    """A name that is looked up later; `names` returns the available names, given the other words of the line."""

    def __init__(self, name: str, names: Callable[[click.Context], Iterable[str]]) -> None:
        self.name, self._names = name, names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that start with the incomplete word."""
        try:
            found = list(self._names(ctx))
        except Exception:  # completion of an unfinished line must not fail
            return []
        return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _given(ctx: click.Context, *names: str) -> str:
    """Return the value on the line of one of the names; arguments of an unfinished line are in `ctx.args`."""
    left = [word for word in ctx.args if not word.startswith("-")]
    return left[0] if left else str(next((ctx.params[name] for name in names if ctx.params.get(name)), ""))


def _plan(ctx: click.Context) -> dict[str, Any]:
    """Return the plan named on the line, as a file or in a result folder; {} if there is none."""
    from socsched.descriptor.json_file import JsonFile

    given = Path(_given(ctx, "plan", "pipeline", "folder"))
    file = given / "plan.json" if given.is_dir() else given
    if file.suffix != ".json":
        return {}
    document = JsonFile.open(file, "plan").data
    return document if isinstance(document, dict) else {}


def _platform(ctx: click.Context) -> Any:
    from socsched.descriptor.catalog import get_platform

    plan = _plan(ctx)
    return get_platform(str(ctx.params.get("platform") or plan.get("platform") or _given(ctx, "name")))


def _stages(ctx: click.Context) -> list[str]:
    from socsched.descriptor.catalog import get_pipeline

    plan = _plan(ctx)
    if plan:
        return [str(stage["name"]) for stage in plan["stages"]]
    return [stage.name for stage in get_pipeline(_given(ctx, "pipeline")).stages]


def _engines(ctx: click.Context) -> list[str]:
    return [engine.id for engine in _platform(ctx).engines]


class _PolicyName(Completed):
    """A policy by name, or one in a user's file: FILE.py:NAME."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name under which the policy is registered."""
        if ".py:" not in str(value):
            return str(value)
        from socsched.sim.policies import register_file

        return register_file(str(value))


def _policies(_: click.Context) -> list[str]:
    from socsched.sim.policies import list_policies

    return [*list_policies(), *(f"np-{name}" for name in list_policies())]


MODE = Completed("text", lambda ctx: [*(mode.name for mode in _platform(ctx).modes), "auto"])
ENGINE = Completed("text", _engines)
STAGE = Completed("text", _stages)
PIN = Completed("text", lambda ctx: (f"{stage}={engine}" for stage in _stages(ctx) for engine in _engines(ctx)))
POLICY = _PolicyName("policy", _policies)
CHAIN = Completed("chain", lambda ctx: (str(chain["name"]) for chain in _plan(ctx)["chains"]))


FILE, FOLDER, PATH = (
    click.Path(path_type=Path, dir_okay=False), click.Path(path_type=Path, file_okay=False), click.Path(path_type=Path)
)  # fmt: skip
TYPES: dict[str, click.ParamType[Any]] = {
    "path": PATH, "file": FILE, "folder": FOLDER,
    "duration": Quantity("duration"), "power": Quantity("power"), "bandwidth": Quantity("bandwidth"),
    "percent": Percentage(), "numbers": Numbers(), "slack": Slack(), "pair": Pair(),
    "date": click.DateTime(["%Y-%m-%d"]),
    "platform": NameOrPath("platforms"), "pipeline": NameOrPath("pipelines"), "study": NameOrPath("studies"),
    "objectives": Objectives(), "mode": MODE, "engine": ENGINE, "stage": STAGE, "pin": PIN, "policy": POLICY,
    "chain": CHAIN,
}  # fmt: skip
"""Type of a parameter by the kind that its declaration states."""


# -- options of several verbs


def pipeline() -> Any:
    return argument("pipeline")


def platform(required: bool = True) -> Any:
    text = "Shipped platform or path; `host` is this machine."
    return option("-p", "--platform", kind="platform", required=required, envvar="SOCSCHED_PLATFORM", help=text)


def mode() -> Any:
    text = "Power mode; not given: the ones that --profile measured, or any; auto: any."
    return option("--mode", "-m", kind="mode", envvar="SOCSCHED_MODE", help=text)


def source() -> Any:
    text = "File or name of the plan's pipeline, if the name in the plan does not locate it."
    return option("--pipeline", kind="pipeline", help=text)


def weights(text: str = ".npz file with weights.") -> Any:
    return option("--weights", kind="path", envvar="SOCSCHED_WEIGHTS", help=text)


def output_file(text: str, default: str | None = None, kind: str = "file") -> Any:
    return option("-o", "--output", name="file", kind=kind, default=default, shown=default is not None, help=text)


def output_folder(text: str = "Folder for the result files.", default: str | None = None, kind: str = "folder") -> Any:
    return option("-o", "--output", name="folder", kind=kind, default=default, shown=default is not None, help=text)


def seed() -> Any:
    return shared(SimulateOptions, "seed")


def objective() -> Any:
    return shared(PlanOptions, "objective")


def profile() -> Any:
    return shared(PlanOptions, "profile")


def allow_weaker() -> Any:
    text = "Accept a weaker requirement of this chain, stage or sensor, such as detection or detection.deadline."
    return option("--allow-weaker", multiple=True, metavar="NAME[.KIND]", help=text)


def strict() -> Any:
    return option("--strict", kind="flag", help="Also report every number without a source or a stated assumption.")


def quick() -> Any:
    """Return the option that leaves this machine unmeasured."""
    text = "Do not measure this machine first (-p host): figures of other machines, within wide intervals."
    return option("--quick", kind="flag", help=text)


def skip_probe(wanted: bool) -> None:
    """Let this process plan for this machine without its probe, if that is wanted."""
    from socsched.descriptor.host import QUICK, SWITCH

    if wanted:
        os.environ[SWITCH] = QUICK
