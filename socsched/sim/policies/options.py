"""Options of a policy by name: ``prema:quantum=1ms:mechanism=kill`` calls the policy's `make` with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType

from socsched.errors import UsageError
from socsched.sim.policies.terms import Policy


def apply_options(module: ModuleType, name: str, written: list[str]) -> Policy:
    """Return the policy of a module with the options `written` (KEY=VALUE); raise UsageError for unknown ones.

    Options are the keyword arguments of its `make`: whole numbers, words, and times (arguments that end in ``_ns``,
    written with a unit and without that ending).
    """
    make: Callable[..., Policy] | None = getattr(module, "make", None)
    if make is None:
        raise UsageError(f"policy {name!r} has no options", hint=f"use {name} without options")
    known = {key.removesuffix("_ns"): (key, p.default) for key, p in inspect.signature(make).parameters.items()}
    given = {}
    for option in written:
        key, equals, value = option.partition("=")
        if key not in known or not equals:
            raise UsageError(f"policy {name!r}: no option {option!r}", hint=f"options: {', '.join(known)} (KEY=VALUE)")
        argument, default = known[key]
        given[argument] = _value(f"policy {name!r}: {key}", argument, default, value)
    try:
        return make(**given)
    except ValueError as error:
        raise UsageError(f"policy {name!r}: {error}") from None


def _value(where: str, argument: str, default: object, text: str) -> object:
    if not isinstance(default, int):
        return text
    try:
        if argument.endswith("_ns"):
            from socsched.units import parse

            return parse(text, "duration")
        return int(text)
    except ValueError:
        expected = "a time such as 250us" if argument.endswith("_ns") else "a whole number"
        raise UsageError(f"{where} must be {expected}, got {text!r}") from None


def check_choice(what: str, value: str, known: tuple[str, ...]) -> str:
    """Return `value`; raise ValueError listing the known values if it is not one of them."""
    if value not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, got {value!r}")
    return value
