"""Scheduling policies: in which order the ready jobs of an engine are served.

A policy is one `Policy` in a file of its own.  Where its order is made of known terms the compiled kernel works it out;
where it is a function of its own, ``key(job, now_ns) -> tuple[int, ...]``, the kernel asks it (see `terms`).  What it
needs besides an order it declares (`mechanisms`, `control`).  Third parties register a `Policy`, or such a function,
under the entry-point group ``socsched.policies``; ``np-NAME`` is the non-preemptive variant of any policy, and
``NAME:KEY=VALUE`` one with options (`options`).  `docs/policies.md` shows one being written.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from importlib.metadata import entry_points

from socsched.errors import UsageError
from socsched.sim.policies.options import with_options
from socsched.sim.policies.terms import Key, Policy, Ready, Term

__all__ = ["GROUP", "POLICIES", "Key", "Policy", "Ready", "Term", "descriptions", "known", "policy", "register"]

GROUP = "socsched.policies"
_BUILT_IN = (
    "edf", "fp", "fifo", "rm", "dm", "rr", "llf", "edf_criticality", "cbs", "hhpf", "srtf", "sjf", "token", "prema",
    "reef", "xsched_hpf", "xsched_edf", "xsched_lax", "xsched_fair", "xsched_share", "irina", "xauto", "adaptive",
    "learned",
)  # fmt: skip
_MODULES = {name.replace("_", "-"): import_module(f"{__name__}.{name}") for name in _BUILT_IN}
POLICIES: dict[str, Policy] = {name: module.POLICY for name, module in _MODULES.items()}


def known() -> list[str]:
    """Return the names of all policies, built in and installed."""
    return sorted({*POLICIES, *(entry.name for entry in entry_points(group=GROUP))})


def descriptions() -> dict[str, str]:
    """Return what every known policy does, in a line, by name; an installed one is told by what it is registered as."""
    told = {name: (module.__doc__ or "").split("\n")[0] for name, module in _MODULES.items()}
    installed = {entry.name: f"installed: {entry.value}" for entry in entry_points(group=GROUP)}
    return {name: {**installed, **told}.get(name, "from a file") for name in known()}


def policy(name: str) -> Policy:
    """Return the policy of this name, built in or installed; UsageError naming the known ones when there is none."""
    if name.startswith("np-"):
        return replace(policy(name.removeprefix("np-")), name=name, preemptive=False)
    base, *options = name.split(":")
    if options and base in _MODULES:
        return replace(with_options(_MODULES[base], base, options), name=name)
    if name in POLICIES:
        return POLICIES[name]
    found = next((entry.load() for entry in entry_points(group=GROUP) if entry.name == name), None)
    if found is None:
        hint = f"known policies: {', '.join(known())}, and np- before any of them"
        raise UsageError(f"unknown scheduling policy {name!r}", hint=hint)
    return found if isinstance(found, Policy) else Policy(name, found)


def register(made: Policy | Key, name: str = "") -> str:
    """Return the name by which a policy, or a function that is one, is known from now on in this process.

    The name is the policy's own, or the function's unless `name` is given.  Raises UsageError where a built-in or
    installed policy is called so.
    """
    found = made if isinstance(made, Policy) else Policy(name or made.__name__.replace("_", "-"), made)
    if found.name in known() and found.name not in _REGISTERED:
        raise UsageError(f"there is a policy {found.name!r} already", "give it another name")
    _REGISTERED.add(found.name)
    POLICIES[found.name] = found
    return found.name


_REGISTERED: set[str] = set()
"""Names of policies that were given as objects or files."""
