"""The page of claims of published systems: whole, in order, with a reason wherever one does not hold."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from tools.literature import policies as literature
from tools.literature.claims._plans import SECOND, engine, jobs_done, plan, simulate, task
from tools.literature.claims.claim import Claim
from tools.literature.claims.xsched import clients

PAGE = Path(__file__).parents[2] / "socsched_literature" / "README.md"


def test_results_on_the_page_are_whole() -> None:
    """Every system of tools/literature/claims is there, in the tool's order; rewriting keeps what is not named."""
    text = PAGE.read_text()
    shown = re.findall(r"<!-- system (\w+) -->", text)
    assert {"prema", "reef", "xsched"} <= set(shown) and shown == sorted(shown)
    known = literature.systems()
    assert set(shown) <= set(known)
    assert literature.rewritten(text, {}, known) == text
    changed = literature.rewritten(text, {"prema": "**PREMA** rewritten\n\n"}, known)
    assert changed.count("<!-- system reef -->") == 1 and "rewritten" in changed
    assert "<!-- system reef -->" not in literature.rewritten(text, {}, ["prema"])


@pytest.mark.slow
@pytest.mark.parametrize("name", literature.systems())
def test_every_system_runs(name: str) -> None:
    assert literature.block(import_module(f"tools.literature.claims.{name}").claims())


def test_a_claim_that_fails_says_why() -> None:
    with pytest.raises(ValueError, match="no reason is given"):
        Claim("A", "B", "c", "d", "e", "f", False)
    with pytest.raises(ValueError, match="one line"):
        Claim("A", "B", "c | d", "d", "e", "f", True)


def test_plans_of_requests_are_ones_the_simulator_takes() -> None:
    request = task("once", [("kernel", 1000)], engine="gpu")
    assert jobs_done(simulate(plan([request], [engine("gpu")]), None)) == [1]
    fore, back = jobs_done(simulate(clients(), None, SECOND))
    assert 0 < fore < back
