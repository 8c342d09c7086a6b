"""Compare all policies that apply to perception-stack on a Jetson AGX Orin; write a section of the claims page.

    python -m tools.literature.policy_study [--seeds 20] [--duration 10] [--print]

The same as `socsched study policies perception-stack -p jetson-agx-orin-64gb --mode MAXN --loads 1,1.75,2.5`; the
picture goes to socsched_literature/policies.svg.  Load 1 is as planned; above 1.78 the camera preprocessing needs over
its core.
"""

from __future__ import annotations

import argparse
import sys

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from socsched_literature.studies import policies
from socsched_literature.studies.policies import Study, study
from tools import ROOT

PAGE, PICTURE = ROOT / "socsched_literature" / "README.md", ROOT / "socsched_literature" / "policies.svg"
START, END = "<!-- policy-study -->", "<!-- /policy-study -->"
LOADS = (1.0, 1.75, 2.5)


def main() -> None:
    """Run the study and rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--duration", type=int, default=10, help="seconds each")
    parser.add_argument("--print", action="store_true", help="leave page and picture alone")
    options = parser.parse_args()
    board = get_platform("jetson-agx-orin-64gb")
    plan = make_plan(get_pipeline("perception-stack"), board, "MAXN", work=stage_work)
    found = study(
        plan, None, LOADS, options.seeds, options.duration * 10**9, progress=lambda text: print(text, file=sys.stderr)
    )
    text = section(found)
    print(text)
    if not options.print:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(START)
        PAGE.write_text(f"{before}{START}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")
        PICTURE.write_text(policies.figure(found) + "\n", encoding="utf-8")


def section(found: Study) -> str:
    """Return the part of the page."""
    verdicts = []
    for load in found.loads:
        beaten = found.beats(load)
        outcome = "is beaten by " + ", ".join(f"`{name}`" for name in beaten) if beaten else "is on the front"
        verdicts.append(f"at load {load:g} the unmodified plan {outcome}")
    left = "; ".join(f"`{name}` {why}" for name, why in found.left_out.items())
    return (
        f"{found.seeds} seeds of {found.duration_ns // 10**9} s each; of misses and energy, {'; '.join(verdicts)}. "
        f"Left out: {left}.\n\n{policies.markdown(found)}"
    )


if __name__ == "__main__":
    main()
