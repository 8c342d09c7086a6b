"""Output files: complete or absent, never overwriting an input, all from one simulation or run."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from socsched import files
from socsched.api import folders
from socsched.cli.root import run
from socsched.errors import EXIT_MACHINE, EXIT_OK, EXIT_USAGE, InputError, SocschedError
from socsched.files import put_in_place, replacing, write_file
from socsched.trace.trace import Trace
from tests.journals import write_journal

PIPELINE, BOARD = "pointpillars-s", "jetson-orin-nx-16gb"
QUICK = ["-p", BOARD, "-m", "MAXN", "-q"]
ROOT = os.geteuid() == 0


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan, and two results of it: one and another second of it."""
    folder = tmp_path_factory.mktemp("made")
    assert run(["plan", PIPELINE, *QUICK, "--no-cuts", "--no-refine", "-o", str(folder / "plan.json")]) == EXIT_OK
    for name, policy, length in (("one", "edf", "1s"), ("other", "fp", "2s")):
        arguments = ["simulate", str(folder / "plan.json"), "-q", "--policy", policy, "--duration", length]
        assert run([*arguments, "-o", str(folder / name)]) == EXIT_OK
    return folder


@pytest.fixture
def out(made: Path, tmp_path: Path) -> Path:
    """Return a copy of the first result."""
    return Path(shutil.copytree(made / "one", tmp_path / "out"))


def which(folder: Path, made: Path) -> str:
    """Return which of the two results a folder holds, plan and trace."""
    plan, trace, _ = folders.load(folder)
    text = (folder / folders.PLAN).read_bytes()
    (name,) = (name for name in ("one", "other") if (made / name / folders.PLAN).read_bytes() == text)
    _, expected, _ = folders.load(made / name)
    assert trace.jobs == expected.jobs and trace.duration_ns == expected.duration_ns and plan.tasks
    return name


class CutOff(BaseException):
    """The process ends here."""


def left_aside(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(files.PREFIX)]


def test_a_file_is_replaced_whole_and_keeps_its_permissions_and_its_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("file")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640
    write_file(tmp_path / "script", "x", 0o755)
    assert stat.S_IMODE((tmp_path / "script").stat().st_mode) == 0o755


@pytest.mark.parametrize("where", ["os.fsync", "os.replace"])
def test_a_full_disk_leaves_the_old_file(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("old")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(where, full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_file(tmp_path / "file", "new")
    assert caught.value.filename == str(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old" and not left_aside(tmp_path)


def test_an_error_while_a_file_is_made_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert (tmp_path / "file").read_text() == "old" and not left_aside(tmp_path)


def test_leftovers_of_a_killed_process_are_removed_after_an_hour(tmp_path: Path) -> None:
    old, fresh = (tmp_path / f"{files.PREFIX}{name}" for name in ("old", "fresh"))
    for path in (old, fresh):
        path.write_text("half")
    os.utime(old, (time.time() - files.STALE_S - 60,) * 2)
    write_file(tmp_path / "file", "whole")
    assert not old.exists() and fresh.exists()


def test_a_plan_that_does_not_fit_leaves_the_old_one(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(shutil.copy(made / "plan.json", tmp_path))
    before = file.read_bytes()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert run(["plan", PIPELINE, *QUICK, "--no-cuts", "--no-refine", "-o", str(file)]) == EXIT_MACHINE
    assert file.read_bytes() == before and "No space left" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["null", "pipe"])
@pytest.mark.parametrize("form", [[], ["--export", "btf"], ["--export", "linux"]], ids=["plan", "btf", "linux"])
def test_special_files_are_written_directly(form: list[str], name: str, made: Path, tmp_path: Path) -> None:
    """As root, a device would be replaced by a file, or get other permissions."""
    if name == "null":
        if not ROOT:
            pytest.skip("making a device needs root")
        place = tmp_path / "null"
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        place = tmp_path / "pipe"
        os.mkfifo(place)
    place.chmod(0o622)
    before = place.lstat()
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    source = [str(made / "plan.json"), *form] if form else [PIPELINE, *QUICK, "--no-cuts", "--no-refine"]
    assert run(["plan", *source, "-q", "-o", str(place)]) == EXIT_OK
    after = place.lstat()
    os.close(reader)
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "{plan}", "-o", "{plan}"],
        ["report", "{link}", "-o", "{plan}"],
        ["plan", "{plan}", "--export", "amalthea", "-o", "{plan}"],
        ["plan", PIPELINE, "-p", BOARD, "--profile", "{plan}", "-o", "{plan}"],
        ["report", "{out}", "-o", "{out}/plan.json"],
        ["report", "{out}", "-o", "{out}/result.json"],
        ["simulate", "{out}/plan.json", "--policy", "fp", "-o", "{out}"],
    ],
    ids=["report", "by a link", "export", "profile", "plan of results", "result of results", "another policy"],
)
def test_an_output_is_never_an_input(
    arguments: list[str], made: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Path(shutil.copy(made / "plan.json", tmp_path))
    (tmp_path / "link.json").symlink_to("plan.json")
    names = {"plan": plan, "link": tmp_path / "link.json", "out": out}
    before = {path: path.read_bytes() for path in (plan, *out.iterdir())}
    assert run([text.format_map(names) for text in arguments]) == EXIT_USAGE
    assert {path: path.read_bytes() for path in before} == before
    assert "choose another" in capsys.readouterr().err


def test_a_simulation_of_the_folder_s_own_plan_is_no_conflict(out: Path) -> None:
    before = (out / "plan.json").read_bytes()
    assert run(["simulate", str(out / "plan.json"), "-q", "--duration", "1s", "-o", str(out)]) == EXIT_OK
    assert (out / "plan.json").read_bytes() == before
    assert run(["why", str(out), "-q"]) == EXIT_OK


@pytest.mark.parametrize("name", [folders.PLAN, folders.TRACE, folders.MADE])
@pytest.mark.parametrize("verb", [["why"], ["report"], ["compare"]], ids=lambda verb: verb[0])
def test_mixed_results_are_refused(
    verb: list[str], name: str, made: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(made / "other" / name, out)
    if verb == ["compare"]:
        shutil.copy(made / "other" / folders.RESULT, out)
    arguments = [*verb, *([str(made / "one")] if verb == ["compare"] else []), str(out)]
    if (verb, name) == (["compare"], folders.TRACE):
        shutil.copy(made / "one" / folders.MADE, out)  # compare reads plan and result, not the trace
    assert run(arguments) == EXIT_USAGE
    reported = capsys.readouterr().err
    assert "not from the simulation or run recorded in made.json" in reported and "run again with -o" in reported


def test_results_of_an_older_version_are_read_as_before(out: Path) -> None:
    (out / folders.MADE).write_text(json.dumps({"command": "socsched simulate"}))
    assert run(["why", str(out), "-q"]) == EXIT_OK


@pytest.mark.parametrize("text", ["{", "[]", '{"files": 3}', "[" * 100_000])
def test_a_damaged_made_json_is_no_fault_of_ours(text: str, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out / folders.MADE).write_text(text)
    assert run(["why", str(out)]) == EXIT_USAGE
    assert "made.json" in capsys.readouterr().err


def test_a_new_result_removes_everything_made_from_the_previous_one(made: Path, out: Path) -> None:
    for name in (folders.FRAMES, folders.NOTES, folders.PICTURE, folders.JOURNAL):
        (out / name).write_text("old")
    (out / "mine.txt").write_text("stays")
    plan, trace, figures = folders.load(made / "other")
    folders.save(out, plan, trace, figures)
    assert {path.name for path in out.iterdir()} == {path.name for path in (made / "other").iterdir()} | {"mine.txt"}
    folders.load(out)


def test_a_full_disk_leaves_the_old_results(made: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    plan, trace, figures = folders.load(made / "other")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SocschedError, match="No space left"):
        folders.save(out, plan, trace, figures)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_cut_off_after_any_change_on_disk_results_are_old_new_or_refused(
    made: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rename and removal in turn the last one; the page, which is made of the rest, is left out."""
    plan, trace, figures = folders.load(made / "other")
    seen: set[str] = set()
    last = count = 0

    def counting(real: Any) -> Any:
        def call(*args: object, **options: object) -> Any:
            nonlocal count
            count += 1
            if count > last:
                raise CutOff
            return real(*args, **options)

        return call

    for last in range(30):
        folder = Path(shutil.copytree(made / "one", tmp_path / f"{last}"))
        count = 0
        with monkeypatch.context() as patch:
            for name in ("os.replace", "os.rename", "pathlib.Path.unlink"):
                target, _, attribute = name.rpartition(".")
                patch.setattr(name, counting(getattr(os if target == "os" else Path, attribute)))
            with suppress(CutOff):
                folders.save(folder, plan, trace, figures, page=False)
                seen.add("whole")
        try:
            seen.add(which(folder, made))
        except InputError:
            seen.add("refused")
        if "whole" in seen:
            break
    assert seen == {"whole", "refused", "one", "other"}


def test_the_journal_of_another_run_is_refused(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run was killed; the next one into the same folder was, too, between its plan and its journal."""
    shutil.copy(made / "one" / folders.PLAN, tmp_path)
    write_journal(tmp_path / folders.JOURNAL, Trace("measured", 0, 0, releases={"lidar": [0, 100_000_000]}))
    assert folders.load(tmp_path)[1].releases["lidar"] == [0, 100_000_000]
    shutil.copy(made / "other" / folders.PLAN, tmp_path)
    assert run(["why", str(tmp_path)]) == EXIT_USAGE
    assert "not the journal of the run" in capsys.readouterr().err


def test_an_old_bundle_is_never_half_a_new_one(tmp_path: Path) -> None:
    """Every rename of an update in turn the last one; the program is replaced as a whole, the manifest first."""
    names = ("manifest.json", "lib/a.py", "lib/b.py", "stage/code.so", "start.sh")

    def write(folder: Path, text: str) -> Path:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return folder

    real, count = os.replace, 0

    def replace(*args: object) -> None:
        nonlocal count
        count += 1
        if count > last:
            raise KeyboardInterrupt
        real(*args)  # type: ignore[arg-type]

    for last in range(8):
        bundle = write(tmp_path / f"{last}", "old")
        (bundle / "lib" / "gone.py").write_text("old")
        made = write(bundle / f"{files.PREFIX}x", "new")
        count = 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "replace", replace)
            with suppress(KeyboardInterrupt):
                put_in_place(made, bundle, "manifest.json", whole="lib")
        found = {name: (bundle / name).read_text() for name in names}
        assert found["lib/a.py"] == found["lib/b.py"]
        assert (bundle / "lib" / "gone.py").exists() == (found["lib/a.py"] == "old")
        if "new" in found.values():
            assert found["manifest.json"] == "new", "what names the digests of the others says so first"
    assert set(found.values()) == {"new"}


KILLED = {
    "simulate": ["simulate", "{plan}", "--policy", "fp", "--duration", "2s", "-o", "{folder}"],
    "plan": ["plan", PIPELINE, "-p", BOARD, "-m", "15W", "--no-cuts", "--no-refine", "-o", "{folder}/plan.json"],
    "compile": ["compile", PIPELINE, "-p", "host", "--stage", "pfn", "-o", "{folder}"],
}


def killed(verb: str, made: Path, old: Path, folder: Path, after_s: float) -> bool:
    """Run a verb that writes into a copy of `old`, killed after a while; whether it was still at work."""
    shutil.copytree(old, folder)
    arguments = [text.format(plan=made / "plan.json", folder=folder) for text in KILLED[verb]]
    process = subprocess.Popen(
        [sys.executable, "-m", "socsched", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def check(verb: str, folder: Path, made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the folder is of one generation, or refused with a reason."""
    if verb == "plan":
        assert run(["simulate", str(folder / "plan.json"), "-q", "--duration", "1s"]) == EXIT_OK
    elif verb == "simulate":
        assert run(["why", str(folder), "-q"]) in (EXIT_OK, EXIT_USAGE)
        assert "fault in socsched" not in capsys.readouterr().err
        try:
            which(folder, made)
        except InputError as error:
            assert "made.json" in str(error)
    else:
        done = subprocess.run(["sh", str(folder / "start.sh")], env={**os.environ, "PYTHON": sys.executable},
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0 or (done.returncode in (2, 3) and "Traceback" not in done.stderr), done.stderr


def kills(count: int, seed: int, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Kill each verb so many times at random; return how many were at work."""
    draw, hit = random.Random(seed), 0
    bundle = tmp_path / "bundle"
    assert run(["compile", PIPELINE, "-p", "host", "--stage", "pfn", "-q", "-o", str(bundle)]) == EXIT_OK
    old = {"plan": made / "one", "simulate": made / "one", "compile": bundle}
    for verb in KILLED:
        started = time.monotonic()
        assert not killed(verb, made, old[verb], tmp_path / verb, 600)
        took = time.monotonic() - started
        for number in range(count):
            folder = tmp_path / f"{verb}{number}"
            hit += killed(verb, made, old[verb], folder, took * draw.uniform(0.4, 1.0))
            check(verb, folder, made, capsys)
            shutil.rmtree(folder)
    return hit


@pytest.mark.slow
def test_killed_at_random_times(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kills(2, 1, made, tmp_path, capsys) >= 1


@pytest.mark.slow
def test_killed_two_hundred_times(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kills(67, 2, made, tmp_path, capsys) >= 100
