"""Readers in a process of their own: limits on time and memory, Ctrl-C, and databases that never finish."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from socsched.confined import Confined, ConfinedError
from socsched.errors import InputError
from socsched.interchange import nsys
from socsched.interchange.sqlite_file import open_sqlite


def readers(folder: str) -> Callable[[str], Iterator[Any]]:
    """Return, in a child, readers of several kinds of misbehaviour."""

    def read(kind: str) -> Iterator[Any]:
        yield [1, "zwei", b"\0drei"]
        if kind == "busy":
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
            while True:
                pass
        if kind == "large":
            yield len(bytearray(2**30))
        if kind == "dying":
            os.kill(os.getpid(), signal.SIGSEGV)
        if kind == "wrong":
            raise ValueError("not a file")
        if kind == "talking":
            yield "x" * (2**26 + 1)
        yield from range(3000)

    Path(folder, "child").write_text(str(os.getpid()))
    return read


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Confined]:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    confined = Confined(f"{Path(__file__).stem}:readers", str(tmp_path), cpu_s=3)
    yield confined
    confined.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


def test_answers_arrive_whole_and_requests_repeat(child: Confined) -> None:
    for _ in range(2):
        first, *numbers = child.ask("plain")
        assert first == [1, "zwei", b"\0drei"] and numbers == list(range(3000))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("busy", "takes more than 3 s"),
        ("large", "takes more than 512 MiB"),
        ("dying", "ended with status -11"),
        ("wrong", "ValueError: not a file"),
        ("talking", "more than 64 MiB"),
    ],
)
def test_a_child_that_misbehaves_is_an_error(kind: str, message: str, child: Confined) -> None:
    with pytest.raises(ConfinedError, match=message):
        list(child.ask(kind))


def endless(path: Path) -> None:
    """Write an export whose generated column searches a text for itself without counting a step of SQLite."""
    base = sqlite3.connect(path)
    text = "replace(hex(zeroblob(260000)), '00', 'a')"
    slow = " + ".join(f"instr({text}, substr({text}, {number}, 100000) || 'b')" for number in range(1, 40))
    base.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ("end", correlationId)')
    base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, 1)", [(end,) for end in range(1000)])
    base.execute(f'ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN "start" AS ({slow})')
    base.commit()
    base.close()


def test_a_database_that_never_ends_is_refused(tmp_path: Path) -> None:
    endless(tmp_path / "f.sqlite")
    began = time.monotonic()
    with pytest.raises(InputError, match="takes more than 5 s to read"):
        nsys.read_export(tmp_path / "f.sqlite")
    assert time.monotonic() - began < 30


def test_ctrl_c_ends_the_reading_of_a_database(tmp_path: Path) -> None:
    endless(tmp_path / "f.sqlite")
    command = [sys.executable, "-m", "socsched", "profile", "import", "f.sqlite", "-p", "rk3588"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (children := Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()):
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    assert "interrupted" in running.communicate(timeout=10)[1]
    assert running.returncode == 130
    assert not any(Path(f"/proc/{number}").exists() for number in children)


def test_long_texts_and_recursion_are_bounded(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "f.db").close()
    (tmp_path / "f.db").write_bytes(b"")
    with open_sqlite(tmp_path / "f.db") as base, pytest.raises(sqlite3.Error):
        list(base.execute("WITH RECURSIVE t(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM t) SELECT max(x) FROM t"))
