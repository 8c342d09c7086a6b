"""Scheduling policies: in which order the ready jobs of an engine are served.

A policy is one `Policy` in a file of its own.  Where its order is made of known terms the compiled kernel works it out;
where it is a function of its own, ``key(job, now_ns) -> tuple[int, ...]``, the kernel asks it (see `terms`).  What it
needs besides an order it declares (`mechanisms`, `control`).  Third parties register a `Policy`, or such a function,
under the entry-point group ``socsched.policies``; ``np-NAME`` is the non-preemptive variant of any policy, and
``NAME:KEY=VALUE`` one with options (`options`).  `docs/policies.md` shows one being written.
"""

from __future__ import annotations

import re
from dataclasses import replace

from socsched import plugins
from socsched.errors import UsageError
from socsched.sim.policies.options import with_options
from socsched.sim.policies.terms import Key, Policy, Ready, Term

__all__ = ["GIVEN", "GROUP", "Key", "Policy", "Ready", "Term", "descriptions", "known", "policy", "register"]

GROUP = "socsched.policies"
GIVEN: dict[str, Policy] = {}
"""Policies given to this process as objects, by name."""


def known() -> list[str]:
    """Return the names of all policies, built in, installed and given."""
    return sorted({*GIVEN, *plugins.names(GROUP)})


def descriptions() -> dict[str, str]:
    """Return what every known policy does, in a line, by name; an installed one is told by what it is registered as."""
    return {name: _description(name) for name in known()}


def _description(name: str) -> str:
    if name in GIVEN:
        return "from a file"
    entry = plugins.entries(GROUP)[name]
    if not plugins.is_own(entry):
        return f"installed: {entry.value}"
    return (plugins.module_of(GROUP, name).__doc__ or "").split("\n")[0]


def policy(name: str) -> Policy:
    """Return the policy of this name, built in or installed; UsageError naming the known ones when there is none.

    ``np-NAME`` is the non-preemptive variant of any policy, ``NAME:KEY=VALUE`` one with options.
    """
    if name in GIVEN:
        return GIVEN[name]
    if name.startswith("np-"):
        return replace(policy(name.removeprefix("np-")), name=name, preemptive=False)
    base, *options = name.split(":")
    if options and base in plugins.names(GROUP):
        return replace(with_options(plugins.module_of(GROUP, base), base, options), name=name)
    if name not in plugins.names(GROUP):
        hint = f"known policies: {', '.join(known())}, and np- before any of them"
        raise UsageError(f"unknown scheduling policy {name!r}", hint=hint)
    found = plugins.load(GROUP, name)
    return found if isinstance(found, Policy) else Policy(name, found)


def register(made: Policy | Key, name: str = "") -> str:
    """Return the name by which a policy, or a function that is one, is known from now on in this process.

    The name is the policy's own, or the function's unless `name` is given.  Raises UsageError where a built-in or
    installed policy is called so.
    """
    if not isinstance(made, Policy):
        made = Policy(name or re.sub(r"\W+", "-", made.__name__).strip("-"), made)
    if made.name in plugins.names(GROUP):
        raise UsageError(f"there is a policy {made.name!r} already", "give it another name")
    GIVEN[made.name] = made
    return made.name
