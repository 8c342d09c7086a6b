"""The command line: one file per verb, imported when the verb is used, so that `--help` stays fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments` (default: those of the process) and exit with its code."""
    try:
        from socsched.cli.root import run

        code = run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:  # while modules are imported
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
