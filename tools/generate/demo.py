"""Run `socsched demo` on this machine and write its output into docs/demo.md between the marks.

usage: python -m tools.generate.demo        (on an otherwise idle machine)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tools import ROOT

PAGE = ROOT / "docs" / "demo.md"
START, END = "<!-- demo -->", "<!-- /demo -->"


def main() -> None:
    """Run the demo in a scratch folder and rewrite the PAGE."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "socsched", "demo"],
            cwd=scratch,
            env=os.environ | {"COLUMNS": "118", "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    shown = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{START}\n```text\n{shown}\n```\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
