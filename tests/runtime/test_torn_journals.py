"""The journal of a run that was killed: wherever it ends, the part that was written can be read and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from socsched.errors import InputError
from socsched.planning.plan import Plan
from socsched.runtime.journal import recover
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result
from tests.journals import write_journal
from tests.sim.rich_plan import DURATION, rich_plan


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, bytes]:
    plan = rich_plan()
    trace = simulate(plan, DURATION // 50, 3)
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    return plan, write_journal(path, trace).read_bytes()


def test_a_journal_is_recovered_wherever_it_ends(journal: tuple[Plan, bytes], tmp_path: Path) -> None:
    plan, raw = journal
    lines = raw.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        for torn in (b"", lines[count][:40] if count < len(lines) else b"{"):
            (tmp_path / "j").write_bytes(b"".join(lines[:count]) + torn)
            trace = recover(tmp_path / "j")
            figures = result(trace, plan)
            assert set(figures["chains"]) == {chain.name for chain in plan.chains}
    assert len(trace.jobs) > 20 and trace.releases["lidar"]


def test_releases_are_written_before_the_jobs_they_began(journal: tuple[Plan, bytes]) -> None:
    rows = [set(json.loads(line)) for line in journal[1].splitlines()]
    first = {key: next(i for i, row in enumerate(rows) if key in row) for key in ("releases", "jobs")}
    assert first["releases"] < first["jobs"]


def test_a_job_whose_release_is_missing_is_no_crash(journal: tuple[Plan, bytes], tmp_path: Path) -> None:
    """Journals of earlier versions had the jobs first."""
    plan, raw = journal
    kept = [line for line in raw.splitlines(keepends=True) if b'"releases"' not in line]
    (tmp_path / "j").write_bytes(b"".join(kept))
    assert result(recover(tmp_path / "j"), plan)["chains"]["drive"]["released"] == 0


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jobs": [[1]]}', "journal"),
        (b'{"jobs": {"a": 1}}', "expected a list"),
        (b'{"releases": {"lidar": [-1]}}', "expected a number not below 0"),
        (b'{"slices": [["cpu", [5000], 0, "a", 0, 1]]}', "expected a number below 1024"),
        (b'{"counters": {"power_mw": [[0, NaN]]}}', "expected valid JSON"),
        (b"\xff\xfe", "expected valid JSON"),
    ],
)
def test_a_line_no_run_wrote_is_refused_by_number(
    journal: tuple[Plan, bytes], line: bytes, expected: str, tmp_path: Path
) -> None:
    head = journal[1].splitlines(keepends=True)[0]
    (tmp_path / "j").write_bytes(head + line + b"\n" + line + b"\n")
    with pytest.raises(InputError, match=rf"j:2: .*{expected}"):
        recover(tmp_path / "j")
