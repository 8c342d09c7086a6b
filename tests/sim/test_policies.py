"""Policies are found by name, the third parties' ones through their entry point, in either form."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from builders import plan, task

from socsched.errors import UsageError
from socsched.sim import policies
from socsched.sim.engine import simulate
from socsched.sim.policies import Policy, Ready, Term

OWN = Policy("declared", (Term.DEADLINE, Term.ACTIVATION))


def asked(job: Ready, now_ns: int) -> tuple[int, ...]:
    """Order by deadline, in Python."""
    return (job.deadline_ns, job.activation_ns)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint(name, f"{__name__}:{name}", policies.GROUP) for name in ("asked", "OWN")]
    monkeypatch.setattr(policies, "entry_points", lambda group: entries if group == policies.GROUP else [])


@pytest.mark.parametrize("name", ["asked", "OWN"])
def test_an_installed_policy_is_used_like_a_built_in_one(name: str) -> None:
    made = plan([task("a", 3, period_ns=10), task("b", 4, period_ns=14, deadline_ns=9)])
    assert simulate(made, 500, policy=name) == simulate(made, 500, policy="edf")


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        policies.policy("smart")
    assert caught.value.hint is not None and "OWN, asked, cbs, dm, edf" in caught.value.hint


def test_the_non_preemptive_variant_lets_a_job_end() -> None:
    made = plan([task("long", 8, period_ns=100), task("short", 1, period_ns=100, offset_ns=2, deadline_ns=5)])
    assert [job.finish_ns for job in simulate(made, 50).jobs] == [9, 3]
    assert [job.finish_ns for job in simulate(made, 50, policy="np-edf").jobs] == [8, 9]
