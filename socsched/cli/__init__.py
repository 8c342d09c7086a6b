"""The command line: one file per verb, imported when the verb is used, so that `--help` stays fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line on `arguments` (default: those of the process) and exit with its code."""
    from socsched.cli.root import run

    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))
