"""Run `socsched demo` on this machine and write its output into README.md between the demo marks.

usage: python -m tools.generate.readme        (on an otherwise idle machine)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tools import ROOT

README = ROOT / "README.md"
START, END = "<!-- demo -->", "<!-- /demo -->"


def main() -> None:
    """Run the demo in a scratch folder and rewrite the README."""
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
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    README.write_text(f"{before}{START}\n```text\n{shown}\n```\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
