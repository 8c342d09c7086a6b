"""Verbs made from the fields of a request: parameters with their types and help, and the request of a command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field
from typing import Any, TypeVar

import click

from socsched.api.options import Option, Real, Whole
from socsched.cli.options import TYPES, Number
from socsched.cli.output import Output, output_parameters

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Request:
    """What a verb is asked: its attributes are declared options and arguments, those of an instance their values.

    Not a dataclass: generating the methods of thirty would take longer than the rest of `socsched --help`.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def verb(
    name: str,
    request: type[T],
    short_help: str | None = None,
    cls: type[click.Command] = click.Command,
    group: click.Group | None = None,
) -> Callable[[Callable[[Output, T], int | None]], click.Command]:
    """Return a decorator that makes a verb of a function; its docstring is the help, `request` declares the options."""

    def decorate(function: Callable[[Output, T], int | None]) -> click.Command:
        def callback(**values: Any) -> int | None:
            return function(click.get_current_context().ensure_object(Output), pack(request, values))

        made = [*(_parameter(name, one) for name, one in declared(request)), *output_parameters()]
        command = cls(name, params=made, callback=callback, help=function.__doc__, short_help=short_help)
        if group is not None:
            group.add_command(command)
        return command

    return decorate


def declared(request: type) -> Iterator[tuple[str, Option]]:
    """Yield the parameters of a request, those of requests in it in their place."""
    for name, each in _fields(request):
        if (inner := each.metadata.get("request")) is not None:
            yield from declared(inner)
        elif (one := each.metadata.get("option")) is not None:
            yield one.name or name, one


def _fields(request: type) -> list[tuple[str, Field[Any]]]:
    own = getattr(request, "__dataclass_fields__", vars(request))
    return [(name, each) for name, each in own.items() if isinstance(each, Field)]


def pack(request: type[T], values: dict[str, Any]) -> T:
    """Return the request of parsed parameters; fields for which nothing was given have their defaults."""
    held: dict[str, Any] = {}
    for name, each in _fields(request):
        one: Option | None = each.metadata.get("option")
        if (inner := each.metadata.get("request")) is not None:
            held[name] = pack(inner, values)
        elif one is not None and (value := values.get(one.name or name)) is not None:
            held[name] = one.convert(value) if one.convert else value
        elif each.default is not MISSING:
            held[name] = each.default
    return request(**held)


def output_options(function: F) -> F:
    """Add --json, -q and -v to a command of click's own; it finds the outcome in `ctx.obj` (an `Output`)."""
    own = reversed(output_parameters())
    function.__click_params__ = [*getattr(function, "__click_params__", []), *own]  # type: ignore[attr-defined]
    return function


def _parameter(name: str, one: Option) -> click.Parameter:
    kind: Any = one.kind
    if isinstance(kind, tuple):
        kind = click.Choice(kind)
    elif isinstance(kind, Whole):
        kind = click.IntRange(kind.least, kind.most)
    elif isinstance(kind, Real):
        kind = Number(kind.least)
    elif kind is not None and kind != "flag":
        kind = TYPES[kind]
    how: dict[str, Any] = {"metavar": one.metavar, "required": one.required}
    if not one.flags:
        return click.Argument([name], type=kind, nargs=-1 if one.multiple else 1, **how)
    how |= {"help": one.help, "envvar": one.envvar, "multiple": one.multiple, "show_default": one.shown or None}
    if one.default is not None:
        how["default"] = one.default
    how |= {"is_flag": True} if kind == "flag" else {"type": kind}
    if one.act is not None:
        how |= {"is_eager": True, "expose_value": False, "callback": _acting(one.act)}
    return click.Option([*one.flags, name], **how)


def _acting(act: Callable[[Output], None]) -> Callable[[click.Context, click.Parameter, bool], None]:
    def callback(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            act(ctx.ensure_object(Output))
            ctx.exit(0)

    return callback
