"""Policies are found by name, third-party ones by their entry point, in both forms, in both kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from builders import engine, plan, spans, task

from socsched import plugins
from socsched.cli.root import run as command_line
from socsched.errors import MachineError, UsageError
from socsched.planning.io import save
from socsched.planning.plan import Plan
from socsched.sim import build, policies
from socsched.sim.build import load_kernel
from socsched.sim.policies import Policy, ReadyJob, Term
from socsched.sim.simulate import run
from socsched.trace.trace import Trace

OWN = Policy("own-edf", (Term.DEADLINE, Term.ACTIVATION))
LATEST = Policy("latest", lambda job, now_ns: (-job.deadline_ns,), preemptive=False)


def by_deadline(job: ReadyJob, now_ns: int) -> tuple[int, ...]:
    """Order as EDF does."""
    assert job.activation_ns <= now_ns and job.remaining_ns >= 0 and not job.task.reads
    return job.deadline_ns, job.activation_ns


def broken(job: ReadyJob, now_ns: int) -> tuple[int, ...]:
    """Fail at the second job."""
    if job.frame:
        raise ZeroDivisionError("a fault of the policy's own")
    return (0,)


def talkative(job: ReadyJob, now_ns: int) -> tuple[int, ...]:
    """Give three keys, one too many."""
    return 1, 2, 3


INSTALLED = ("own-edf:OWN", "latest:LATEST", "by-deadline:by_deadline", "broken:broken", "talkative:talkative")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint(name, f"{__name__}:{what}", policies.GROUP) for name, what in
               (entry.split(":") for entry in INSTALLED)]  # fmt: skip
    for entry in entries:
        monkeypatch.setitem(plugins.entries(policies.GROUP), entry.name, entry)


@pytest.fixture(params=[pytest.param("compiled", marks=pytest.mark.needs("Python headers")), "python"])
def simulate(request: pytest.FixtureRequest) -> Callable[[Plan, int, str], Trace]:
    try:
        load_kernel(request.param)
    except MachineError as error:
        pytest.skip(str(error))

    def call(made: Plan, duration: int, policy: str) -> Trace:
        trace = run(made, duration, policy=policy, implementation=request.param).trace
        assert trace is not None
        return trace

    return call


Simulate = Callable[[Plan, int, str], Trace]


def pair() -> Plan:
    return plan([task("a", 3, period_ns=10), task("b", 4, period_ns=14, deadline_ns=9)])


@pytest.mark.parametrize("name", ["own-edf", "by-deadline"])
def test_an_installed_policy_is_used_like_a_built_in_one(simulate: Simulate, name: str) -> None:
    assert simulate(pair(), 500, name) == simulate(pair(), 500, "edf")


def test_a_custom_order_without_preemption(simulate: Simulate) -> None:
    tasks = [task(f"t{i}", 4, offset_ns=i, deadline_ns=20 + i, period_ns=100) for i in range(3)]
    assert spans(simulate(plan(tasks), 50, "latest")) == [("t0", 0, 4), ("t2", 4, 8), ("t1", 8, 12)]
    assert spans(simulate(plan(tasks), 50, "edf")) == [("t0", 0, 4), ("t1", 4, 8), ("t2", 8, 12)]


def test_np_before_an_installed_name(simulate: Simulate) -> None:
    assert simulate(pair(), 500, "np-by-deadline") == simulate(pair(), 500, "np-edf")


def test_an_error_of_a_policy_reaches_the_caller(simulate: Simulate) -> None:
    with pytest.raises(ZeroDivisionError, match="own") as caught:
        simulate(pair(), 500, "broken")
    assert caught.traceback[-1].name == "broken"
    with pytest.raises(UsageError, match=r"'talkative' must give one or two whole numbers below 2\*\*62, got \(1, 2"):
        simulate(pair(), 500, "talkative")


@pytest.mark.parametrize("implementation", ["auto", "python"])
def test_an_error_of_a_policy_reaches_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str], implementation: str
) -> None:
    monkeypatch.setenv("SOCSCHED_KERNEL", implementation)
    file = tmp_path / "plan.json"
    save(replace(pair(), engines=(engine(policy="broken"),)), file)
    assert command_line(["simulate", str(file), "--duration", "1us"]) == 3
    said = capfd.readouterr().err
    assert "ZeroDivisionError: a fault of the policy's own" in said
    assert "Traceback" not in said
    assert command_line(["-v", "simulate", str(file), "--duration", "1us"]) == 3
    said = capfd.readouterr().err
    assert "Traceback" in said and "in broken" in said


def test_many_small_simulations_are_worth_a_compiled_kernel_as_one_long_one_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With an empty cache, small simulations are interpreted until they have been as much work as compiling is."""
    built: list[int] = []
    asked: list[int] = []
    digest = build._digest

    def record(variant: object) -> Path:
        built.append(len(asked))
        raise build._Impossible("not in this test")

    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path))
    monkeypatch.delenv("SOCSCHED_KERNEL", raising=False)
    for name in ("_loaded", "_failed", "_expected"):
        monkeypatch.setattr(build, name, {})
    build._is_cached.cache_clear()
    monkeypatch.setattr(build, "_digest", lambda variant: asked.append(1) or digest(variant))  # type: ignore[func-returns-value]
    monkeypatch.setattr(build, "_build_cached", record)
    count = 0
    while not built and count < 10_000:
        assert build.load_kernel(segments=100).__module__ == "socsched.sim.kernel.kernel"
        count += 1
    assert 50 < count <= build.WORTH_COMPILING / 100 and asked == [1], "sources are hashed once, not every time"
    build.load_kernel(segments=100)
    assert len(built) == 1
    build._is_cached.cache_clear()


def test_unknown_names_are_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        policies.get_policy("rmx")
    assert caught.value.hint.startswith("known policies: broken, by-deadline, cbs, dm, edf, ")


def test_the_list_describes_every_policy_and_the_page_every_term(checkout: Path) -> None:
    text = (checkout / "docs" / "policies.md").read_text(encoding="utf-8")
    described = policies.describe_policies()
    assert {name for name in plugins.names(policies.GROUP, own=True) if not described.get(name)} == set()
    assert {term.name for term in policies.Term if term.name not in text} == {"CUSTOM"}
