"""Policies from a Python file named on the command line; plans and results never load such a file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from socsched.errors import UsageError
from socsched.sim.policies import register
from socsched.sim.policies.terms import Policy

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
