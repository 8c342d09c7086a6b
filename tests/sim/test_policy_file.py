"""Custom policies from a file: served like built-in ones, and refused if their name is taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import plan, sensor, task

from socsched.errors import UsageError
from socsched.sim.policies import REGISTERED, describe_policies, register_file
from socsched.sim.simulate import simulate

FILE = """
from socsched.sim.policies import Policy, Term
EARLIEST = Policy("earliest", (Term.DEADLINE, Term.ACTIVATION))
EDF = Policy("edf", (Term.DEADLINE,))
NUMBER = 3

def latest_first(job, now_ns):
    return (-job.activation_ns,)
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Other tests know the built-in policies only."""
    yield
    for name in ("earliest", "latest_first"):
        REGISTERED.pop(name, None)


def written(folder: Path, text: str = FILE) -> Path:
    file = folder / "own.py"
    file.write_text(text)
    return file


def test_a_policy_of_a_file_serves_as_the_built_in_one_of_that_order(tmp_path: Path) -> None:
    tasks = [task("a", 7, after=("s",), deadline_ns=30), task("b", 9, after=("s",), deadline_ns=20)]
    made = plan(tasks, sensors=(sensor("s", 40, jitter_ns=5),))
    name = register_file(f"{written(tmp_path)}:EARLIEST")
    assert name == "earliest" and describe_policies()[name] == "from a file"
    assert simulate(made, 2_000, policy=name).jobs == simulate(made, 2_000, policy="edf").jobs


def test_a_function_of_a_file_orders_jobs_and_np_keeps_what_runs(tmp_path: Path) -> None:
    assert register_file(f"{written(tmp_path)}:latest_first") == "latest_first"
    made = plan([task("a", 10, period_ns=40), task("b", 3, period_ns=40, offset_ns=2)])
    finish = {job.task: job.finish_ns for job in simulate(made, 40, policy="latest_first").jobs}
    assert finish == {"a": 13, "b": 5}
    assert register_file(f"np-{written(tmp_path)}:latest_first") == "np-latest_first"
    finish = {job.task: job.finish_ns for job in simulate(made, 40, policy="np-latest_first").jobs}
    assert finish == {"a": 10, "b": 13}


@pytest.mark.parametrize(
    ("attribute", "text", "says"),
    [
        ("EDF", FILE, "a policy named 'edf' exists already"),
        ("NUMBER", FILE, "has no policy 'NUMBER'"),
        ("NOTHING", FILE, "has no policy 'NOTHING'"),
        ("EDF", "1 / 0", "fails: ZeroDivisionError"),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, attribute: str, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        register_file(f"{written(tmp_path, text)}:{attribute}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        register_file(f"{tmp_path}/none.py:EDF")
