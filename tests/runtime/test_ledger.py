"""released = completed + dropped + aborted, under every load and every injected fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from run_plans import MS, Scripted, plan, run, sleep, task

from socsched.faults.model import Dropout, Failure, Faults, Overrun, Slowdown
from socsched.planning.plan import Plan
from socsched.runtime.errors import StageFailed
from socsched.runtime.options import Options
from socsched.runtime.overload import Policies, StagePolicy
from socsched.trace.trace import Trace


def balanced(account: Mapping[str, int]) -> bool:
    return account["released"] == account["completed"] + account["dropped"] + account["aborted"]


def chain() -> Plan:
    return plan(
        task("a", "s", criticality="hard"), task("b", "a", lanes=(1,), queue=1), task("c", "b", lanes=(2,), queue=0),
        sensors={"s": 8 * MS},
    )  # fmt: skip


def spare() -> Plan:
    """Return the plan without lane 1."""
    made = chain()
    return replace(made, tasks=tuple(replace(t, lanes=(3,)) if t.lanes == (1,) else t for t in made.tasks))


FAULTS = {
    "none": Faults(),
    "dropout": Faults(dropouts=(Dropout("s", 30 * MS, 90 * MS),)),
    "slow": Faults(slowdowns=(Slowdown("cpu", 20 * MS, 120 * MS, Fraction(20)),)),
    "overruns": Faults(overruns=(Overrun("b", Fraction(2, 5), Fraction(30)),)),
    "failure": Faults(failures=(Failure("cpu", 60 * MS, "fail", (1,)),)),
    "hang": Faults(failures=(Failure("cpu", 60 * MS, "hang", (1,)),)),
    "all": Faults(
        dropouts=(Dropout("s", 30 * MS, 60 * MS),),
        slowdowns=(Slowdown("cpu", 20 * MS, 90 * MS, Fraction(9)),),
        overruns=(Overrun("c", Fraction(1, 2), Fraction(9)),),
        failures=(Failure("cpu", 100 * MS, "hang", (1,)),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("limp_home", [False, True], ids=["alone", "limp-home"])
@pytest.mark.parametrize("policy", ["", "skip", "abort", "shed"])
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.sampled(8)
def test_accounts_balance_under_every_injected_fault(name: str, policy: str, limp_home: bool) -> None:
    policies = (
        Policies(shed_below="hard") if policy == "shed" else Policies({"b": StagePolicy(policy)} if policy else {})
    )
    options = Options(
        faults=FAULTS[name], policies=policies, limp_home=(spare(),) if limp_home else (), hang_ns=120 * MS
    )
    trace = Trace("measured", 0, 0)
    accounts: dict[str, Any] = {}
    try:
        trace = run(chain(), Scripted(lambda *_: sleep(1)), duration_ns=260 * MS, options=options, accounts=accounts)
    except StageFailed as failed:
        assert name == "failure" and not limp_home, "only a stage that raises ends a run, and only without another plan"
        trace = failed.trace
    assert accounts["s"]["released"] == len(trace.releases["s"])
    assert balanced(accounts["s"])
    lost = sum(note.kind == "drop" and note.subject == "s" for note in trace.instants)
    assert (lost > 0) == bool(FAULTS[name].dropouts)
    assert accounts["s"]["dropped"] >= lost
    ended = {job.frame for job in trace.jobs if job.task == "c" and job.status == "done"}
    assert accounts["s"]["completed"] <= len(ended) <= accounts["s"]["released"]


def test_an_interrupted_run_accounts_for_what_was_under_way() -> None:
    accounts: dict[str, Any] = {}
    with pytest.raises(StageFailed):
        made, backend = chain(), Scripted(lambda name, n: 1 / 0 if (name, n) == ("b", 6) else None)
        run(made, backend, frames=50, accounts=accounts)
    assert balanced(accounts["s"]) and accounts["s"]["aborted"] >= 1
