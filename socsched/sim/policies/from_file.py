"""A policy from a Python file that is named on the command line; nothing in a plan or result ever leads here."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from socsched.errors import UsageError
from socsched.sim.policies import register
from socsched.sim.policies.terms import Policy

_EXAMPLE = "expected FILE.py:NAME, a Policy or a function key(job, now_ns) in that file"


def registered(text: str) -> str:
    """Run the file of FILE.py:NAME and return the name its policy is known by from now on in this process.

    Raises UsageError for a file that cannot be run, a name it lacks, and a policy called like one there is already.
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
    except Exception as error:  # whatever the file does wrong is its author's to read
        raise UsageError(f"--policy {text}: {path} fails: {type(error).__name__}: {error}", _EXAMPLE) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, Policy) and not callable(found):
        raise UsageError(f"--policy {text}: {path} has no policy {attribute!r}", _EXAMPLE)
    try:
        return before + register(found, attribute)
    except UsageError as error:
        raise UsageError(f"--policy {text}: {error}", error.hint) from None
