"""The protocol of helpers: answers, refusals, and an end to everything that takes or says too much."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from socsched.compiler.toolchains import environments
from socsched.compiler.toolchains.environments import ENVIRONMENTS, Ended, Helper, Refused, environment
from socsched.errors import EXIT_MACHINE, MachineError, UsageError

SERVING = Path(environments.__file__).parent / "worker"
WORKER = f"""
import os, sys, time
sys.path.insert(0, {str(SERVING)!r})
from serving import own, serve

def echo(text): print("a vendor's chatter", flush=True); return {{"text": text}}
def refuse(): raise ValueError("no such operator\\nat all")
def name(file): return {{"file": own(file)}}
def sleep(): time.sleep(60)
def brood():
    import subprocess
    child = subprocess.Popen(["sleep", "60"])
    open("child", "w").write(str(child.pid))
    os.closerange(3, 64); time.sleep(60)
def crash(): import os; print("last words", flush=True); os.abort()
def flood(): return {{"text": "x" * (9 << 20)}}
def garbage():
    import os
    for fd in range(3, 10):
        try: os.write(fd, b"not json\\n")
        except OSError: pass
    time.sleep(60)
serve(globals(), lambda: {{"stand-in": "1"}})
"""


@dataclass(frozen=True)
class StandIn:
    """An environment whose helper is a script of this test, run by this Python."""

    worker: Path
    name: str = "standin"
    title: str = "Stand-in"
    command: str = "socsched doctor --install standin"

    def require(self) -> Path:
        return Path(sys.executable)


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    return StandIn(worker)


def test_it_answers_refuses_and_goes_on(standin: StandIn) -> None:
    with Helper(standin) as running:  # type: ignore[arg-type]
        assert running.versions == {"stand-in": "1"}
        assert running.ask("echo", text="a\n'b; rm -rf /'")["text"] == "a\n'b; rm -rf /'"
        with pytest.raises(Refused, match="Stand-in: no such operator at all"):
            running.ask("refuse")
        for path in ("../x", "/etc/passwd", "", ".."):
            with pytest.raises(Refused, match="not a file of the working folder"):
                running.ask("name", file=path)
        with pytest.raises(Refused, match="unheard"):
            running.ask("unheard")
        folder = running.folder
        assert "chatter" in (folder / "log").read_text()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("action", "seconds", "said"),
    [
        ("sleep", 0.3, "took longer than 0.3 s"),
        ("crash", 20, "ended with status -6: last words"),
        ("flood", 20, "answered more than 8 MiB"),
        ("garbage", 20, "no JSON object"),
    ],
)
def test_it_is_ended(standin: StandIn, action: str, seconds: float, said: str) -> None:
    begun = time.monotonic()
    with Helper(standin) as running:  # type: ignore[arg-type]
        with pytest.raises(Ended, match=said):
            running.ask(action, seconds)
        with pytest.raises(Ended):
            running.ask("echo", text="still there?")
    assert time.monotonic() - begun < 15


def test_it_is_ended_with_what_it_started_also_if_it_answers_no_more(standin: StandIn) -> None:
    begun = time.monotonic()
    with Helper(standin) as running:  # type: ignore[arg-type]
        with pytest.raises(Ended, match=r"closed its answers|took longer") as raised:
            running.ask("brood", 5)
        child = int((running.folder / "child").read_text())
    assert raised.value.exit_code == EXIT_MACHINE == 3 and time.monotonic() - begun < 15
    until = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text().split()[2]:
        assert time.monotonic() < until, "its child runs on"
        time.sleep(0.05)


def test_a_helper_that_does_not_start(standin: StandIn) -> None:
    standin.worker.write_text("import nothing_of_that_name")
    with pytest.raises(Ended, match="nothing_of_that_name"):
        Helper(standin)  # type: ignore[arg-type]


def test_environments_are_pinned_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(tmp_path))
    for name, known in ENVIRONMENTS.items():
        lines = known.requirements.read_text().splitlines()
        assert all(line.startswith("#") or line.count("==") == 1 for line in lines)
        assert known.version and known.worker.exists() and known.python() is None
        with pytest.raises(MachineError, match="is not installed") as raised:
            known.require()
        assert raised.value.hint == f"socsched doctor --install {name}"
    with pytest.raises(UsageError, match="no vendor's compiler"):
        environment("other")


def test_an_environment_that_others_may_write_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(tmp_path))
    (tmp_path / "rockchip" / "bin").mkdir(parents=True)
    (tmp_path / "rockchip" / "bin" / "python").symlink_to(sys.executable)
    assert ENVIRONMENTS["rockchip"].python() == tmp_path / "rockchip" / "bin" / "python"
    (tmp_path / "rockchip" / "bin").chmod(0o777)
    with pytest.raises(MachineError, match="other users may write"):
        ENVIRONMENTS["rockchip"].python()


def test_install_needs_a_fitting_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOCSCHED_VENDORS", str(tmp_path / "vendors"))
    monkeypatch.setattr(environments.sys, "version_info", (3, 99, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match=r"needs Python 3.11 or 3.12, none is on PATH"):
        environments.install(ENVIRONMENTS["rockchip"], lambda _: None)
    assert environments.LONGEST_ANSWER == 8 << 20 and not (tmp_path / "vendors").exists()
