"""What is printed: progress, words and widths; hostile names are escaped."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.text import Text

from socsched import progress
from socsched.cli.output import echo
from socsched.cli.progress import Bar, line
from socsched.cli.results import outcome_code
from socsched.cli.root import run, verbs
from socsched.planning.mapping.program import Program
from socsched.progress import Step
from socsched.reporting.compare import compare
from socsched.reporting.junit import render
from socsched.reporting.terminal import console, observed, table
from socsched.text import one_line, printable
from tests.sim.rich_plan import rich_plan
from tests.validation import pairs


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
    from tests.literature.mapping.mapping_problems import random_problem

    problem, heard = random_problem(Random(5), 2, 3, 2), list[Step]()
    with progress.heard(heard.append):
        watched = Program(problem).solve("makespan", 5, 1, 0)
    assert watched == Program(problem).solve("makespan", 5, 1, 0)
    assert heard[0].what == "proving"
    assert any(step.detail.startswith("gap ") for step in heard)


PIPELINE = """
schema_version: "1"
name: cart
title: a camera sampled by a timer
sensors:
  cam: {kind: camera, period: 100 ms, bytes_per_frame: 1 kB, assumed: a test}
stages:
  see: {title: see, after: [cam], share: 1, queue: 1, assumed: a test, costs: [COST20]}
  act: {title: act, reads: [see], period: 50 ms, share: 1, assumed: a test, costs: [COST1]}
chains:
  react: {path: [cam, see, act], deadline: 120 ms, assumed: a test}
  image: {path: [cam, see], deadline: 60 ms, assumed: a test}
"""
COST = (
    "{platform: jetson-agx-orin-64gb, mode: MAXN, engine: cpu, precision: fp32, units: 1, "
    "time: {value: %d ms, kind: assumed, note: a test, error: 0.1}}"
)
FAULTS = """
dropouts:  [{sensor: cam, from: 1 s, until: 1.35 s}]
slowdowns: [{engine: cpu0, from: 2 s, until: 3 s, factor: 12}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan, its simulation without faults (`quiet`) and with them (`lossy`)."""
    place = tmp_path_factory.mktemp("words")
    (place / "cart.yaml").write_text(PIPELINE.replace("COST20", COST % 20).replace("COST1", COST % 1))
    (place / "faults.yaml").write_text(FAULTS)
    plan = str(place / "plan.json")
    assert run(["plan", str(place / "cart.yaml"), "-p", "jetson-agx-orin-64gb", "--mode", "MAXN", "-o", plan]) == 0
    assert run(["simulate", plan, "--duration", "5s", "-o", str(place / "quiet")]) == 0
    faults = ["--faults", str(place / "faults.yaml")]
    assert run(["simulate", plan, "--duration", "5s", *faults, "-o", str(place / "lossy")]) == 1
    return place


def test_simulate_says_first_what_became_of_the_frames(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(folder / "plan.json")
    assert run(["simulate", plan, "--duration", "5s", "--faults", str(folder / "faults.yaml")]) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "✗ simulated: 10 late, 18 dropped of 100 frames of 2 chains"
    assert second == "plan: feasible under edf, cart on jetson-agx-orin-64gb, mode MAXN"
    assert run(["simulate", plan, "--duration", "5s", "--policy", "fifo"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "✓ simulated: none late or dropped of 100 frames of 2 chains"
    assert "mode MAXN; engines under fifo, for which it was not proved" in " ".join(" ".join(rest).split())


def test_guard_says_the_outcome_of_its_simulation_before_the_verdict_of_its_plan(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["guard", str(folder / "plan.json"), "--duration", "1s", "-o", str(tmp_path / "guard")]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "✓ simulated: none late or dropped of 20 frames of 2 chains"
    assert second.startswith("plan: feasible under edf")


def test_compare_tells_late_from_dropped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(folder / "quiet"), str(folder / "lossy")]) == 1
    text = capsys.readouterr().out
    assert "✗ react: 5 of 50 frames late (0.00% -> 10.00%)" in text
    assert "✗ react: 9 of 50 frames dropped (0.00% -> 18.00%)" in text


def test_a_dropped_frame_has_no_response_anywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frame 11 is lost by its sensor, frame 22 at a full queue; the timer samples newer frames instead."""
    counts = json.loads((folder / "lossy" / "result.json").read_text())["chains"]["react"]
    page = (folder / "lossy" / "report.html").read_text()
    drawn = page[page.index("Chains: response times against deadlines") :]
    chart = drawn[drawn.index("react: response times over time") :].split("</svg>")[0]
    assert "9 without a response" in chart
    crosses = re.search(r'<path d="([^"]*)" class="late-dot"', chart)
    dots = re.search(r'<path d="([^"]*)" class="dot"', chart)
    assert crosses is not None and dots is not None
    assert crosses[1].count("M") == counts["missed"] == 5
    assert crosses[1].count("M") + dots[1].count("M") == counts["completed"] == 41
    assert "share of the completed frames" in drawn
    for frame, where in (("11", "cam"), ("22", "see")):
        assert run(["why", str(folder / "lossy"), "--chain", "react", "--frame", frame]) == 1
        assert f"react, frame {frame}: was dropped at {where}" in capsys.readouterr().out


def test_outputs_that_are_too_old_and_aborted_frames_fail_a_run_and_are_named() -> None:
    chain = {"released": 50, "completed": 50, "missed": 0, "dropped": 0, "stale": 3}
    good = {"kind": "simulated", "chains": {"c": {**chain, "stale": 0}}}
    old = {"kind": "simulated", "chains": {"c": chain}}
    gone = {**good, "run": {"accounts": {"cam": {"aborted": 2}}}}
    assert str(observed(good)) == "✓ simulated: none late or dropped of 50 frames" and outcome_code(good) == 0
    assert (
        str(observed(old)) == ("✗ simulated: none late or dropped of 50 frames; 3 outputs with data that are too old")
        and outcome_code(old) == 1
    )
    assert str(observed(gone)).endswith("of 50 frames; 2 frames aborted") and outcome_code(gone) == 1
    assert compare({**good, "stages": {}}, {**old, "stages": {}}, 0.05).regressions == (
        "c: outputs with data that are too old: 0 -> 3",
    )
    nothing = {"kind": "simulated", "chains": {"c": dict.fromkeys(chain, 0)}}
    assert str(observed(nothing)) == "? simulated: no frame was released"


BOARD = "jetson-agx-orin-64gb"
LINES = {
    "platforms": ["platforms list", f"platforms show {BOARD} --mode 30W", f"platforms show {BOARD} --engine gpu"],
    "pipelines": ["pipelines list", "pipelines show perception-stack", "pipelines check pointpillars"],
    "plan": [f"plan pointpillars -p {BOARD} --mode MAXN --no-refine"],
    "advise": [f"advise pointpillars -p {BOARD} --mode MAXN"],
    "book": [f"book pointpillars -p {BOARD} --mode MAXN --loss gpu"],
    "analyze": ["analyze {root}/plan.json"],
    "simulate": ["simulate {root}/plan.json --duration 300ms", "simulate --policies"],
    "why": ["why {root}/good", "why {root}/slow --frame 1"],
    "compare": ["compare {root}/good {root}/slow", "compare {root}/plan.json {root}/other.json"],
    "lint": [],  # one line per diagnostic, for editors and grep
    "validate": ["validate {root}/pairs.csv --networks {root}/networks"],
    "report": ["report {root}/good -o {root}/x.md"],
    "guard": ["guard {root}/plan.json --duration 300ms -o {root}/guarded-{width}"],
    "doctor": ["doctor"],
    "plugins": ["plugins", "plugins models"],
    "profile": [],  # its table is that of `plan`, and making it takes a minute
    "fit": ["fit qcs8550 --engine npu"],
    "run": [],
    "verify": [],  # compiles and runs a network
    "compile": [],
    "calibrate": [],
    "demo": [],
    "sweep": ["sweep {root}/tiny.yaml -o {root}/swept-{width}"],
    "fleet": [],  # takes as long as it has vehicles
    "study": [
        "study policies {root}/plan.json --policies edf,fifo --seeds 2 --duration 300ms",
        f"study sharing pointpillars -p {BOARD} --seeds 1 --duration 1s --loads 1",
        "study planners --list",
    ],
    "weights": [],
    "completion": [],  # a script
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two plans and two results."""
    folder = tmp_path_factory.mktemp("w")
    plan = ["plan", "pointpillars", "-p", BOARD, "--mode", "MAXN", "--no-refine", "-q"]
    assert run([*plan, "-o", str(folder / "plan.json")]) == 0
    assert run([*plan, "--pin", "backbone=dla0", "-o", str(folder / "other.json")]) == 0
    (folder / "tiny.yaml").write_text(
        f"schema_version: '1'\nname: tiny\nparameters: {{platform: {BOARD}, mode: MAXN, pipeline: pointpillars}}\n"
        "simulate: {duration: 100 ms}\n"
    )
    pairs.folder(folder)
    (folder / "faults.yaml").write_text("slowdowns: [{engine: gpu, from: 0 s, until: 1 s, factor: 30}]\n")
    simulate = ["simulate", str(folder / "plan.json"), "--duration", "300ms", "-q", "-o"]
    assert run([*simulate, str(folder / "good")]) == 0
    assert run([*simulate, str(folder / "slow"), "--faults", str(folder / "faults.yaml")]) == 1
    return folder


def test_every_verb_is_here() -> None:
    assert set(LINES) == set(verbs())


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines])
@pytest.mark.sampled(5)
def test_tables_fit(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    capsys.readouterr()
    assert run([word.format(root=root, width=width) for word in line.split()]) in (0, 1)
    out = capsys.readouterr().out
    assert out
    assert "\x1b[" not in out
    # a path that is longer than the screen is left whole, to be copied
    wide = [text for text in out.splitlines() if cell_len(text) > width and " " in text and "/" not in text.split()[-1]]
    assert wide == []


@pytest.mark.parametrize("line", ["platforms list", "doctor"])
def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], line: str) -> None:
    capsys.readouterr()
    run([*line.split(), "-q"])
    assert capsys.readouterr().out == ""


NASTY = "a\x1b]0;title\x07\x1b[2Jb\x00\x9bc\u202ed\udcff\r"


def harmless(text: str) -> bool:
    return all(c.isprintable() or c in "\n\t" for c in text) and "\u202e" not in text


def test_control_characters_are_spelt_out() -> None:
    assert printable("a\x1b[2J\n\tb") == "a\\x1b[2J\n\tb" and one_line("a\n\tb\u2028") == "a\\n\\tb\\u2028"
    assert harmless(printable(NASTY)) and printable("äöü ✓ → µs") == "äöü ✓ → µs"


def test_nothing_of_a_name_is_obeyed_by_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    console(60).print(table(NASTY, ["x"], [[NASTY], ["[red]kept[/]"]]), Text(NASTY))
    echo(NASTY)
    echo(NASTY, err=True)
    captured = capsys.readouterr()
    assert harmless(captured.out) and harmless(captured.err)
    assert captured.out.count("\\x1b]0;title") == 4 and "[red]kept[/]" in captured.out


def test_an_error_about_a_hostile_name_is_harmless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"schema_version": "\\u001b[2Jx"}')
    assert run(["analyze", str(file)]) == 2
    assert harmless(capsys.readouterr().err)
    assert run(["analyze", str(tmp_path / "\udcff\x1b[2J.json")]) == 2
    assert harmless(capsys.readouterr().err)


def test_junit_stays_valid_whatever_the_names() -> None:
    plan = rich_plan()
    chains = tuple(replace(chain, name=chain.name + NASTY + "<&>") for chain in plan.chains)
    made = replace(plan, chains=chains, pipeline=NASTY)
    tree = ElementTree.fromstring(render(made, {"kind": NASTY, "chains": {}}).encode())
    (pipeline,) = {item.attrib["value"] for item in tree.iter("property") if item.attrib["name"] == "pipeline"}
    assert "\\x1b" in pipeline
    assert sum(case.attrib["name"].startswith("deadline of chain") for case in tree.iter("testcase")) == 2 * len(chains)
