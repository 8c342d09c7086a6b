"""Scheduling policies: the order in which the ready jobs of an engine are served.

A policy is one `Policy`.  If its order consists of known terms, the compiled kernel evaluates it; if it
is a custom function, ``key(job, now_ns) -> tuple[int, ...]``, the kernel calls it (see `terms`).  Anything it needs in
addition to an order is declared (`mechanisms`).  Third parties register a `Policy`, or such a function,
under the entry-point group ``socsched.policies``; ``np-NAME`` is the non-preemptive variant of any policy, and
``NAME:KEY=VALUE`` one with options (`options`).  `docs/policies.md` walks through an example.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from socsched import plugins
from socsched.errors import UsageError
from socsched.sim.policies.terms import Key, Policy, ReadyJob, Term

# Options of a policy by name: ``prema:quantum=1ms:mechanism=kill`` calls the policy's `make` with them.


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


__all__ = [
    "GROUP", "REGISTERED", "Key", "Policy", "ReadyJob", "Term", "describe_policies", "get_policy", "list_policies",
    "register",
]  # fmt: skip

GROUP = "socsched.policies"
REGISTERED: dict[str, Policy] = {}
"""Policies passed to this process as objects, by name."""


def list_policies() -> list[str]:
    """Return the names of all policies: built-in, installed and passed as objects."""
    return sorted({*REGISTERED, *plugins.names(GROUP)})


def describe_policies() -> dict[str, str]:
    """Return a one-line description of every known policy by name; for an installed one, its registered object."""
    return {name: _description(name) for name in list_policies()}


def _description(name: str) -> str:
    if name in REGISTERED:
        return "from a file"
    entry = plugins.entries(GROUP)[name]
    if not plugins.is_own(entry):
        return f"installed: {entry.value}"
    return get_policy(name).about or (plugins.module_of(GROUP, name).__doc__ or "").split("\n")[0]


def get_policy(name: str) -> Policy:
    """Return the built-in or installed policy `name`; raise UsageError listing the known ones if there is none.

    ``np-NAME`` is the non-preemptive variant of any policy, ``NAME:KEY=VALUE`` one with options.
    """
    if name in REGISTERED:
        return REGISTERED[name]
    if name.startswith("np-"):
        return replace(get_policy(name.removeprefix("np-")), name=name, preemptive=False)
    base, *options = name.split(":")
    if options and base in plugins.names(GROUP):
        return replace(apply_options(plugins.module_of(GROUP, base), base, options), name=name)
    if name not in plugins.names(GROUP):
        hint = f"known policies: {', '.join(list_policies())}, and np- before any of them"
        raise UsageError(f"unknown scheduling policy {name!r}", hint=hint + plugins.literature_hint(GROUP))
    found = plugins.load(GROUP, name)
    return found if isinstance(found, Policy) else Policy(name, found)


def name_of(policy_or_name: str | Policy | Key) -> str:
    """Return the name of a policy; an object or a function is registered in this process under that name."""
    if isinstance(policy_or_name, str):
        return get_policy(policy_or_name).name
    return register(policy_or_name)


def register(made: Policy | Key, name: str = "") -> str:
    """Register a policy, or a function that serves as one, in this process and return its name.

    The name is the policy's own, or the function's unless `name` is given.  Raises UsageError if a built-in or
    installed policy has that name.
    """
    if not isinstance(made, Policy):
        made = Policy(name or re.sub(r"\W+", "-", made.__name__).strip("-"), made)
    if made.name in plugins.names(GROUP):
        raise UsageError(f"a policy named {made.name!r} exists already", "give it another name")
    REGISTERED[made.name] = made
    return made.name


# Policies from a Python file named on the command line; plans and results never load such a file.

_EXAMPLE = "expected FILE.py:NAME, a Policy or a function key(job, now_ns) in that file"


def register_file(text: str) -> str:
    """Run the file of FILE.py:NAME, register its policy in this process and return the policy's name.

    Raises UsageError for a file that cannot be run, a missing name, or a policy whose name is already taken.
    """
    text, before = text.removeprefix("np-"), "np-" if text.startswith("np-") else ""
    file, _, attribute = text.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise UsageError(f"--policy {text}: {path} does not exist", _EXAMPLE)
    spec = importlib.util.spec_from_file_location(f"socsched_policy_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # report any error in the user's file
        raise UsageError(f"--policy {text}: {path} fails: {type(error).__name__}: {error}", _EXAMPLE) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Policy) and not callable(found):
        raise UsageError(f"--policy {text}: {path} has no policy {attribute!r}", _EXAMPLE)
    try:
        return before + register(found, attribute)
    except UsageError as error:
        raise UsageError(f"--policy {text}: {error}", error.hint) from None
