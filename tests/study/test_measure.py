"""Boards of a tracker: TVM's own tracker and two RPC servers on the loopback address, one of which is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="tables are Parquet")

from socsched.cli.root import run
from socsched.study import store as table

STUDY = """schema_version: "1"
name: boards
parameters:
  platform: host
  pipeline: pointpillars
simulate: {duration: 1 s}
measure: {keys: {host: x86}, repeat: 40, timeout: 60 s, choose: all}
"""


class Farm:
    """A tracker and boards, each a process group of its own."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        paths = os.pathsep.join([str(checkout), os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, "PYTHONPATH": paths, "TVM_NUM_THREADS": "1"}
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self.port = self.start("socsched.compiler.loading.tracker")

    def start(self, module: str, *more: str) -> int:
        command = [sys.executable, "-m", module, *more]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=self.environment,
            cwd=self.folder, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        assert process.stdout is not None
        return int(process.stdout.readline())

    def board(self, key: str) -> None:
        self.start("socsched.compiler.loading.rpc", "--tracker", f"127.0.0.1:{self.port}", "--key", key)

    def kill(self, number: int) -> None:
        os.killpg(self.started[number].pid, signal.SIGKILL)

    def serving(self, number: int) -> str:
        """Return the process that serves a board's client (TVM has one for each), empty without a client."""
        pid = self.started[number].pid
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def farm(tmp_path: Path, checkout: Path) -> Iterator[Farm]:
    """Return a farm with two boards x86."""
    pytest.importorskip("tornado", reason="TVM's tracker needs tornado")
    made = Farm(tmp_path, checkout)
    try:
        made.board("x86")
        made.board("x86")
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_host_stages_are_measured_though_a_board_dies(
    farm: Farm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from socsched.compiler.loading.tracker import boards

    (tmp_path / "boards.yaml").write_text(STUDY)
    deadline = time.monotonic() + 60
    while boards("127.0.0.1", farm.port) != {"x86": 2} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert boards("127.0.0.1", farm.port) == {"x86": 2}
    killed: list[int] = []

    def kill() -> None:
        """End the first board that has had the same client for a while: a stage is being timed there."""
        since: dict[str, float] = {}
        while not killed:
            now = time.monotonic()
            serving = {farm.serving(number): number for number in (1, 2)}
            since = {pid: since.get(pid, now) for pid in serving if pid}
            for pid, began in since.items():
                if now - began > 2 and not killed:
                    farm.kill(serving[pid])
                    killed.append(serving[pid])
            time.sleep(0.01)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    command = ["sweep", str(tmp_path / "boards.yaml"), "-o", str(tmp_path / "out"), "--workers", "1"]
    assert run([*command, "--measure", f"127.0.0.1:{farm.port}"]) in (0, 1)
    reported = capsys.readouterr().err
    assert killed and "was lost, its work goes to another" in reported, reported
    (row,) = table.read(tmp_path / "out" / "table.parquet")
    assert row["measured"] and row["measured_stages"] == 4
    assert row["measured_ns"] > 1_000_000 and row["measured_planned_ns"] > 0
    assert len(list((tmp_path / "out" / "measured").glob("*.json"))) == 4
    assert boards("127.0.0.1", farm.port) == {"x86": 1}
    # known values are not measured again: no board is left to do it
    farm.kill(3 - killed[0])
    run([*command, "--resume", "-q"])
    (row,) = table.read(tmp_path / "out" / "table.parquet")
    assert not row["measured"], "without --measure the table has none"


def test_a_tracker_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from socsched.compiler.loading.tracker import boards
    from socsched.errors import MachineError

    with pytest.raises(MachineError, match=r"no tracker answers at 127.0.0.1:9"):
        boards("127.0.0.1", 9)
