"""Compare the claims of every paper with the results here, and write that section of socsched_literature/README.md.

    python -m tools.literature.policies [--list] [--print] [SYSTEM ...]

Each file of tools/literature/claims is a system (`claims.claim.Claim`); without SYSTEM all are run.  Results of
systems that are not named stay as the page has them.  --print shows the rows and leaves the page alone.  A claim that
does not hold is a result, not an error; the exit code is 1 only where a system cannot be run.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from importlib import import_module
from pathlib import Path

from tools import ROOT
from tools.literature import claims
from tools.literature.claims.claim import Claim

PAGE = ROOT / "socsched_literature" / "README.md"
START, END = "<!-- policy-results -->", "<!-- /policy-results -->"
_BLOCK = re.compile(r"<!-- system (\w+) -->\n(.*?)<!-- /system -->\n", re.S)


def main() -> int:
    """Run the systems asked for, show their rows, and rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("systems", nargs="*", metavar="SYSTEM")
    parser.add_argument("--list", action="store_true", help="list the systems and end")
    parser.add_argument("--print", action="store_true", help="leave the page alone")
    options = parser.parse_args()
    known = systems()
    if options.list:
        print("\n".join(known))
        return 0
    if unknown := set(options.systems) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    made: dict[str, str] = {}
    failed = 0
    for name in options.systems or known:
        begin = time.perf_counter()
        try:
            rows = import_module(f"{claims.__name__}.{name}").claims()
        except Exception as error:
            failed = 1
            print(f"{name}: cannot be run: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        made[name] = block(rows)
        print(f"{made[name]}({time.perf_counter() - begin:.0f} s)\n", flush=True)
    if not options.print:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(rewritten(text, made, known), encoding="utf-8")
    return failed


def systems() -> list[str]:
    """Return the names of all systems there are."""
    found = Path(claims.__path__[0]).glob("*.py")
    return sorted(path.stem for path in found if path.stem != "claim" and not path.stem.startswith("_"))


def block(rows: list[Claim]) -> str:
    """Return a system's part of the page."""
    if not rows:
        raise ValueError("no claims")
    lines = [f"**{rows[0].system}** ({rows[0].paper})", ""]
    lines += ["| claim | workload here | paper | here | holds |", "|---|---|---|---|---|"]
    above: tuple[str, ...] = ("",) * 5
    for row in rows:
        verdict = ("yes" if row.holds else "**no**") + (f": {row.why}" if row.why else "")
        cells = (row.statement, row.workload, row.theirs, row.ours, verdict)
        lines.append(f"| {' | '.join(ditto(cell, last) for cell, last in zip(cells, above, strict=True))} |")
        above = cells
    return "\n".join(lines) + "\n\n"


def ditto(cell: str, above: str) -> str:
    """Return a cell's text, or a ditto mark where it is that of the row above."""
    return "″" if cell == above and len(cell) > 20 else cell


def rewritten(text: str, made: dict[str, str], known: list[str]) -> str:
    """Return the page with the parts `made` in place of its own, those of systems that are gone left out."""
    before, rest = text.split(START)
    inside, after = rest.split(END)
    parts = {name: part for name, part in _BLOCK.findall(inside) if name in known} | made
    body = "".join(f"<!-- system {name} -->\n{parts[name]}<!-- /system -->\n" for name in sorted(parts))
    return f"{before}{START}\n{body}{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
