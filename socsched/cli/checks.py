"""Functions shared by the two `check` subcommands."""

from __future__ import annotations

from typing import Any


def grounds(file: str, strict: bool) -> tuple[dict[str, Any], str]:
    """Return the provenance of the numbers in a file, as counts and in words.

    With `strict`, raise DescriptorError listing every number without a source.
    """
    from socsched.descriptor.provenance import coverage, require_grounds
    from socsched.descriptor.source import read

    counted = (require_grounds if strict else coverage)(read(file))
    counts = {
        "sourced": counted.sourced,
        "derived": counted.derived,
        "assumed": counted.assumed,
        "uncovered": len(counted.uncovered),
        "kinds": dict(counted.kinds),
    }
    derived = f"{counted.derived} are derived from others, " if counted.derived else ""
    remark = f"; of {counted.total} numbers {counted.sourced} have a source, {derived}{counted.assumed} are assumed"
    remark += f", {len(counted.uncovered)} have neither (--strict lists them)" if counted.uncovered else ""
    return counts, remark


def say(text: str) -> None:
    """Print a sentence, wrapped between words at the terminal width."""
    from rich.text import Text

    from socsched.cli.options import terminal_width
    from socsched.reporting.terminal import console

    console(terminal_width()).print(Text(text))
