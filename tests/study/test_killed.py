"""Sweeps whose workers, driver or disk fail midway end with the table of an undisturbed one."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from study_files import ROWS, STUDY, await_rows, digest, rows, start

pytest.importorskip("pyarrow", reason="tables are Parquet")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the study and an undisturbed sweep of it."""
    folder = tmp_path_factory.mktemp("killed")
    (folder / "killed.yaml").write_text(STUDY)
    assert start(folder, "out").wait() in (0, 1)
    return folder


def children(pid: int) -> list[int]:
    """Processes below one, by their parents in /proc."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    below, left = [], [pid]
    while left:
        new = found.get(left.pop(), [])
        below += new
        left += new
    return below


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def resumed(folder: Path, name: str, *more: str) -> None:
    """Go on, and compare with the undisturbed sweep: same bytes, and no row was done twice."""
    before = rows(folder / name)
    assert 0 < before < ROWS
    assert start(folder, name, "--resume", *more).wait() in (0, 1)
    assert digest(folder / name) == digest(folder / "out")
    assert ROWS <= rows(folder / name) <= ROWS + 1, "at most a torn line in addition to the rows"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_sweep_resumes(place: Path, how: signal.Signals) -> None:
    name = how.name
    process = start(place, name)
    await_rows(process, place / name, ROWS // 4)
    workers = [pid for pid in children(process.pid) if "spawn_main" in command_of(pid)]
    assert len(workers) == 2
    process.send_signal(how)
    assert process.wait() == (130 if how == signal.SIGINT else -how)
    deadline = time.monotonic() + 30
    while any("spawn_main" in command_of(pid) for pid in workers):
        assert time.monotonic() < deadline, "workers outlive their owner"
        time.sleep(0.1)
    resumed(place, name)


def test_a_killed_worker_is_replaced(place: Path) -> None:
    process = start(place, "worker")
    await_rows(process, place / "worker", ROWS // 4)
    for _ in range(2):
        worker = next(pid for pid in children(process.pid) if "spawn_main" in command_of(pid))
        os.kill(worker, signal.SIGKILL)
        time.sleep(1)
    assert process.wait() in (0, 1)
    assert digest(place / "worker") == digest(place / "out")
    assert rows(place / "worker") == ROWS


@pytest.mark.needs("mounting")
def test_a_full_disk_ends_the_sweep_and_free_space_lets_it_resume(place: Path) -> None:
    folder = place / "full"
    folder.mkdir()
    size = 40 * 1024 + sum(file.stat().st_size + 4096 for file in (place / "out" / "inputs").rglob("*"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size + 65536}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    try:
        process = start(place, "full/out")
        assert process.wait() == 3
        assert 0 < rows(folder / "out") < ROWS
        subprocess.run(["mount", "-o", "remount,size=20m", str(folder)], check=True)
        resumed(place, "full/out")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_ray_makes_the_same_table_though_a_worker_dies(place: Path) -> None:
    pytest.importorskip("ray", reason="the engine needs Ray")
    process = start(place, "ray", "--engine", "ray")
    await_rows(process, place / "ray", ROWS // 4)
    workers = [pid for pid in children(process.pid) if command_of(pid).startswith("ray::_perform")]
    assert workers, "no task is under way"
    os.kill(workers[0], signal.SIGKILL)
    assert process.wait() in (0, 1)
    assert digest(place / "ray") == digest(place / "out")
    assert rows(place / "ray") == ROWS


def test_a_sweep_with_a_killed_ray_driver_resumes_with_either_engine(place: Path) -> None:
    pytest.importorskip("ray", reason="the engine needs Ray")
    for name, again in (("driver-ray", "ray"), ("driver-local", "local")):
        process = start(place, name, "--engine", "ray")
        await_rows(process, place / name, ROWS // 4)
        below = children(process.pid)
        process.kill()
        process.wait()
        # the cluster this command started here loses its head with it; what is left of it is ours to end
        time.sleep(2)
        for pid in below:
            if "ray" in command_of(pid):
                os.kill(pid, signal.SIGKILL)
        resumed(place, name, "--engine", again)
