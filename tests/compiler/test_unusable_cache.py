"""A cache that is unusable or writable by others: only time is lost, no verdict changes, no such file is loaded."""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from socsched import cache
from socsched.cli.root import run
from socsched.compiler.native import compilers
from socsched.compiler.store import library
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.study import load_study
from socsched.errors import EXIT_MACHINE, EXIT_OK, MachineError
from socsched.planning.io import load as load_plan
from socsched.planning.search import make_plan
from socsched.sim import build
from socsched.study.inputs import gather
from socsched.study.sweep import configurations
from socsched.study.work import Job, open_inputs, perform

PIPELINE, BOARD = "pointpillars-s", "jetson-orin-nx-16gb"
PLAN = ["plan", PIPELINE, "-p", BOARD, "-m", "MAXN", "--no-cuts", "--no-refine"]
SOURCE = "int answer(void) { return %d; }\n"
ROOT = os.geteuid() == 0
needs_compiler = pytest.mark.skipif(compilers.c_compiler() is None, reason="no C compiler")


def planned(file: Path) -> list[tuple[str, str, str, int]]:
    return [(task.name, task.engine, task.precision, task.cost_ns) for task in load_plan(file).tasks]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str, int]]:
    """Return the plan as an ordinary cache gives it."""
    file = tmp_path_factory.mktemp("expected") / "plan.json"
    assert run([*PLAN, "-q", "-o", str(file)]) == EXIT_OK
    return planned(file)


def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "file" / "cache"))


def no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOCSCHED_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)


def failing(number: int) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def arrange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
        real = os.open

        def fail(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if flags & os.O_CREAT and str(tmp_path / "cache") in str(path):
                raise OSError(number, os.strerror(number), str(path))
            return real(path, flags, *rest, **options)

        monkeypatch.setattr(os, "open", fail)

    return arrange


@pytest.mark.parametrize(
    "arrange",
    [no_folder, no_home, failing(errno.ENOSPC), failing(errno.EROFS)],
    ids=["no folder", "no home", "full", "read-only"],
)
@pytest.mark.sampled(4)
def test_planning_needs_no_cache(
    arrange: Callable[[Path, pytest.MonkeyPatch], None],
    expected: list[tuple[str, str, str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arrange(tmp_path, monkeypatch)
    capsys.readouterr()
    assert run([*PLAN, "-o", str(tmp_path / "plan.json")]) == EXIT_OK
    assert "warning" not in capsys.readouterr().err
    assert planned(tmp_path / "plan.json") == expected


@pytest.mark.parametrize("error", [MachineError("no TVM here", "install it"), OSError(errno.EIO, "Input/output error")])
def test_what_the_machine_cannot_do_is_no_verdict(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("socsched.api.planning.stage_work", work)
    assert run([*PLAN]) == EXIT_MACHINE
    captured = capsys.readouterr()
    assert "infeasible" not in captured.out and ("no TVM here" in captured.err or "Input/output error" in captured.err)
    with pytest.raises((MachineError, OSError)):
        make_plan(get_pipeline(PIPELINE), get_platform(BOARD), "MAXN", work=work)


def test_a_sweep_keeps_no_row_of_what_the_machine_cannot_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        f'schema_version: "1"\nname: s\nparameters:\n  platform: [{BOARD}]\n  pipeline: [{PIPELINE}]\n'
    )
    study = load_study(str(tmp_path / "s.yaml"))
    point = next(iter(configurations(study)))

    def work(*args: object, **options: object) -> None:
        raise MachineError("the disk is full")

    monkeypatch.setattr("socsched.api.planning.stage_work", work)
    with pytest.raises(MachineError, match="the disk is full"):
        perform(open_inputs(gather(study), tmp_path / "inputs"), Job("k", (point,), 1), None)


def test_without_a_cache_long_simulations_are_interpreted_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    no_folder(tmp_path, monkeypatch)
    monkeypatch.delenv("SOCSCHED_KERNEL", raising=False)
    monkeypatch.setattr(build, "_loaded", {})
    monkeypatch.setattr(build, "_failed", {})
    assert build.load_kernel("auto", build.WORTH_COMPILING).__module__ == "socsched.sim.kernel.kernel"
    reported = capsys.readouterr().err
    assert reported.count("simulations run interpreted") == 1 and "cannot use this cache folder" in reported
    with pytest.raises(MachineError, match="cannot be compiled"):
        build.load_kernel("compiled")


def answering(number: int, made: list[int]) -> Callable[[Path], None]:
    def compile_it(folder: Path) -> None:
        made.append(number)
        (folder / "a.c").write_text(SOURCE % number)
        compilers.run([str(compilers.c_compiler()), "-shared", "-fPIC", "a.c", "-o", "a.so"], folder)

    return compile_it


@needs_compiler
@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
        lambda file: file.write_bytes(b""),
        lambda file: file.unlink(),
        lambda file: file.write_bytes(file.read_bytes() + b"x"),
        lambda file: file.chmod(0o777),
        lambda file: file.parent.chmod(0o777),
        lambda file: file.with_name("a.so.sha256").unlink(),
        lambda file: file.with_name("a.so.sha256").write_bytes(b"\xff"),
        lambda file: (file.rename(file.with_name("b.so")), file.symlink_to("b.so")),
        pytest.param(lambda file: os.chown(file, 1, 1), marks=pytest.mark.skipif(not ROOT, reason="needs root")),
        pytest.param(lambda file: os.chown(file.parent, 1, 1), marks=pytest.mark.skipif(not ROOT, reason="needs root")),
    ],
    ids=["truncated", "empty", "missing", "longer", "writable", "writable folder", "no digest", "digest no text",
         "link", "foreign", "foreign folder"],
)  # fmt: skip
def test_a_library_that_is_not_what_was_built_is_built_again(fresh_cache: Path, harm: Callable[[Path], object]) -> None:
    made: list[int] = []
    file = library("native", "key", "a.so", answering(1, made))
    assert library("native", "key", "a.so", answering(2, made)) == file and made == [1]
    assert [path.stat().st_mode & 0o777 for path in (fresh_cache, file.parent.parent, file.parent)] == [0o700] * 3
    harm(file)
    again = library("native", "key", "a.so", answering(3, made))
    assert made == [1, 3] and ctypes.CDLL(str(again)).answer() == 3
    assert again.lstat().st_uid == os.geteuid() and not again.lstat().st_mode & 0o022


@pytest.mark.skipif(not ROOT, reason="giving a folder away needs root")
@pytest.mark.parametrize("inside", ["", "native"])
def test_a_folder_of_another_user_is_refused(fresh_cache: Path, inside: str) -> None:
    (fresh_cache / inside).mkdir(parents=True)
    os.chown(fresh_cache / inside, 1, 1)
    made: list[int] = []
    with pytest.raises(MachineError, match=r"uid 1\)") as caught:
        library("native", "key", "a.so", answering(1, made))
    assert "SOCSCHED_CACHE" in caught.value.hint and not made


def test_a_shared_folder_gets_a_private_one_inside(fresh_cache: Path) -> None:
    fresh_cache.mkdir()
    fresh_cache.chmod(0o1777)
    folder = cache.cache_dir()
    assert folder.parent == fresh_cache and folder.stat().st_mode & 0o777 == 0o700
    fresh_cache.chmod(0o777)
    with pytest.raises(MachineError, match="any user may rename"):
        cache.cache_dir()


@needs_compiler
def test_the_host_loops_of_another_user_are_not_loaded(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is loaded from a world-writable folder: numpy does the work."""
    monkeypatch.delenv("SOCSCHED_KERNEL", raising=False)
    fresh_cache.mkdir()
    fresh_cache.chmod(0o777)
    (tmp_path / "a.c").write_text(SOURCE % 1)
    compilers.build_shared_object.cache_clear()
    assert compilers.build_shared_object(tmp_path / "a.c") is None
    fresh_cache.chmod(0o700)
    compilers.build_shared_object.cache_clear()
    found = compilers.build_shared_object(tmp_path / "a.c")
    assert found is not None and found.answer() == 1


@needs_compiler
def test_a_kernel_that_is_damaged_is_built_again_and_never_loaded(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = build._Variant(1, False)
    monkeypatch.setattr(build, "_build", lambda folder, _: answering(1, made)(folder))
    monkeypatch.setattr(build._Variant, "binary", "a.so")
    made: list[int] = []
    file = build._build_cached(variant)
    file.write_bytes(file.read_bytes()[:1000])
    assert build._build_cached(variant) == file and made == [1, 1] and ctypes.CDLL(str(file)).answer() == 1


WORKING = """
import os, signal, subprocess, sys, time
from pathlib import Path
from socsched.compiler.native import compilers

number = signal.Signals[sys.argv[2]]
signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have signals ignored
signal.signal(signal.SIGHUP, signal.SIG_DFL)

class Early(subprocess.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        while not Path("child").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

if sys.argv[3] == "starting":
    subprocess.Popen = Early
compilers.run([sys.argv[1]], Path("."))
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("when", ["starting", "working"])
def test_no_compiler_outlives_the_process_it_works_for(number: str, when: str, tmp_path: Path) -> None:
    """A compiler with a child process, as drivers have; the signal arrives before Popen returns, or later."""
    slow = tmp_path / "cc"
    slow.write_text("#!/bin/sh\nsleep 300 &\necho $! > made\nmv made child\nwait\n")
    slow.chmod(0o755)
    command = [sys.executable, "-c", WORKING, str(slow), number, when]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    child = appearing(tmp_path / "child")
    if when == "working":
        process.send_signal(signal.Signals[number])
    assert process.wait(60) != 0
    assert gone(child)


def appearing(file: Path) -> int:
    """Return the number in a file as soon as the file exists."""
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until, "it never started"
        time.sleep(0.01)
    return int(file.read_text())


def gone(pid: int) -> bool:
    """Return whether a process ends; a zombie counts as ended."""
    for _ in range(3000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
