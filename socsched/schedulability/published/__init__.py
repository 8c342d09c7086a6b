"""Published schedulability tests, one family per module, over the tasks of a task-set file.

A test is a function from a `model.Problem` to an `Answer` that `model.published` declares with its name, its source and
the systems it holds for; `choose` runs all that apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules


def built_in() -> Iterator[tuple[str, str]]:
    """Yield the name of every test declared in this package, and where it is, as an entry point says it."""
    from socsched.schedulability.published.model import SchedulabilityTest

    for info in iter_modules(__path__, f"{__name__}."):
        for name, value in vars(import_module(info.name)).items():
            if isinstance(value, SchedulabilityTest) and value.run.__module__ == info.name:
                yield name.replace("_", "-"), f"{info.name}:{name}"
