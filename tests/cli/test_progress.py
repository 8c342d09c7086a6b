"""Progress: on terminals only, after a second, with rate and remaining time, without disturbing other output."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest

from socsched import progress
from socsched.cli.progress import Bar, line
from socsched.progress import Step


def test_a_line_has_share_rate_and_what_is_left() -> None:
    shown = line(Step("simulating", 15e9, 60e9, "ns", "gap 3 %"), gained=10e9, seconds=5)
    assert shown == "simulating  [###.........]   25%  15 s of 60 s  2 s/s  0:22 left  gap 3 %"
    assert line(Step("compiling", 2, 0, "stages"), 0, 61) == "compiling  2 stages  1:01"
    assert "1:02:30 left" in line(Step("running", 1, 3751, "frames"), 1, 1)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_waits_a_second_draws_over_itself_and_leaves_nothing() -> None:
    clock, screen = Clock(), io.StringIO()
    bar = Bar(screen, clock, width=40)
    bar.tell(Step("x", 1, 10))
    assert screen.getvalue() == ""
    clock.now = 1.5
    bar.tell(Step("x", 2, 10))
    first = screen.getvalue()
    assert first.startswith("\rx  [##")
    assert len(first) <= 40
    clock.now = 1.6
    bar.tell(Step("x", 3, 10))
    assert screen.getvalue() == first  # too soon to draw again
    bar.close()
    assert screen.getvalue().endswith("\r")
    assert screen.getvalue().count("\n") == 0


def test_the_clock_advances_without_reports() -> None:
    screen = io.StringIO()
    bar = Bar(screen, width=60)
    bar._begun -= 2
    bar.tell(Step("proving", 0, 0))
    time.sleep(0.6)
    bar.close()
    assert screen.getvalue().count("proving") >= 2


def test_a_step_reported_in_the_first_second_appears_after_it() -> None:
    """Work whose next step takes minutes would else show nothing, or stand still."""
    clock, screen = Clock(), io.StringIO()
    bar = Bar(screen, clock, width=60)
    bar.tell(Step("measuring", 0, 10))
    assert screen.getvalue() == ""
    clock.now = 1.5
    until = time.monotonic() + 60
    while "measuring" not in screen.getvalue() and time.monotonic() < until:
        time.sleep(0.05)
    bar.close()
    assert "measuring" in screen.getvalue()


def test_only_the_last_listener_receives_progress() -> None:
    heard: list[str] = []
    progress.tell("unheard", 1, 2)
    with progress.heard(lambda step: heard.append(f"outer {step.what}")):
        assert progress.listening()
        with progress.heard(lambda step: heard.append(f"inner {step.what}")):
            progress.tell("a", 1, 2)
        progress.tell("b", 1, 2)
    assert not progress.listening()
    assert heard == ["inner a", "outer b"]


def on_a_terminal(arguments: list[str], **env: str) -> tuple[str, str]:
    """Run a command with a terminal as stderr; return stdout and what the terminal saw."""
    master, slave = pty.openpty()
    settings = {**os.environ, "COLUMNS": "80", "TERM": "xterm", **env}
    program = (
        "import sys, time\nimport socsched.cli.progress as p\np.AFTER_S = p.EVERY_S = 0\n"
        "from socsched.cli.root import run\nsys.exit(run(sys.argv[1:]))"
    )
    seen: list[bytes] = []
    done = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=slave, env=settings
    )
    os.close(slave)
    reader = threading.Thread(target=lambda: seen.extend(_read(master)), daemon=True)
    reader.start()
    out, _ = done.communicate(timeout=120)
    reader.join(timeout=10)
    os.close(master)
    return out.decode(), b"".join(seen).decode()


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
        if not part:
            return
        yield part


PLAN = ["plan", "pointpillars", "-p", "jetson-agx-orin-64gb", "--mode", "MAXN"]


@pytest.mark.parametrize(
    ("flags", "env", "there"),
    [
        (["--no-refine"], {}, True),
        (["--no-refine", "-q"], {}, False),
        (["--no-refine"], {"TERM": "dumb"}, False),
    ],
)
@pytest.mark.sampled(3)
def test_it_is_shown_on_terminals_unless_quiet(flags: list[str], env: dict[str, str], there: bool) -> None:
    out, seen = on_a_terminal([*PLAN, *flags], **env)
    assert ("planning  [" in seen) is there
    assert "planning  [" not in out
    assert not seen or seen.endswith("\r")


@pytest.mark.slow
def test_solving_reports_its_gap_and_is_not_changed_by_it() -> None:
    pytest.importorskip("ortools")
    from socsched.planning.mapping.program import Program
    from tests.literature.mapping.mapping_problems import random_problem

    problem, heard = random_problem(Random(5), 2, 3, 2), list[Step]()
    with progress.heard(heard.append):
        watched = Program(problem).solve("makespan", 5, 1, 0)
    assert watched == Program(problem).solve("makespan", 5, 1, 0)
    assert heard[0].what == "proving"
    assert any(step.detail.startswith("gap ") for step in heard)
