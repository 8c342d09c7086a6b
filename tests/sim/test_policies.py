"""Policies are found by name, the third parties' ones through their entry point."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from builders import plan, task

from socsched.errors import UsageError
from socsched.sim import policies
from socsched.sim.engine import simulate


def test_an_installed_policy_is_used_like_a_built_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("own-edf", "socsched.sim.policies.edf:key", policies.GROUP)
    monkeypatch.setattr(policies, "entry_points", lambda group: [entry] if group == policies.GROUP else [])
    made = plan([task("a", 3, period_ns=10), task("b", 4, period_ns=14, deadline_ns=9)])
    assert simulate(made, 500, policy="own-edf") == simulate(made, 500, policy="edf")
    with pytest.raises(UsageError) as caught:
        policies.policy("rm")
    assert caught.value.hint == "known policies: edf, fifo, fp, own-edf"
