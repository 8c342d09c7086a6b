"""The cache under concurrent builders, kills, full disks and damaged files: one whole entry or none."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from socsched import files
from socsched.cli.root import run
from socsched.compiler import builder
from socsched.compiler.artifact import META, find
from socsched.compiler.builder import compile_stage
from socsched.compiler.loading.stages import load
from socsched.compiler.passes import link
from socsched.compiler.target import Build, Compilation, Target
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Engine
from socsched.errors import EXIT_MACHINE, MachineError, UsageError
from socsched.graph.operators import TensorType

Make = Callable[..., Engine]
PFN = Stage("pfn", "pfn", "pointpillars.pfn")
PREAMBLE = """
import sys
from dataclasses import replace
from socsched.compiler import builder
from socsched.compiler.builder import compile_stage
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Stage
ENGINE = replace(get_platform('raspberry-pi-5').engine('a76'), target={'kind': 'llvm', 'host': True})
PFN = Stage('pfn', 'pfn', 'pointpillars.pfn')
"""


def program(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def entries(cache: Path) -> list[Path]:
    return [path for path in (cache / "artifacts").iterdir() if not path.name.startswith(".")]


def leftovers(cache: Path) -> list[Path]:
    return list(cache.rglob(f"{files.PREFIX}*"))


def pillars() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    voxels = generator.normal(size=(7, 32, 4)).astype(np.float32)
    return [voxels, np.full(7, 32, np.int32), np.zeros((7, 2), np.int32)]


@pytest.mark.slow
def test_builders_at_the_same_time(fresh_cache: Path, make_engine: Make) -> None:
    """Four processes build one artefact: one entry, and what each of them got gives the same result."""
    text = """
from socsched.compiler.loading.stages import load
import hashlib, numpy as np
stage = load(compile_stage(PFN, ENGINE))
generator = np.random.default_rng(0)
voxels = generator.normal(size=(7, 32, 4)).astype(np.float32)
result = stage(voxels, np.full(7, 32, np.int32), np.zeros((7, 2), np.int32))[0]
print(stage.artifact.key, hashlib.sha256(result.tobytes()).hexdigest())
"""
    running = [program(text) for _ in range(4)]
    reported = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0] * 4
    assert len(reported) == 1
    (entry,) = entries(fresh_cache)
    assert find(entry) is not None and not leftovers(fresh_cache)
    mine = load(compile_stage(PFN, make_engine()))(*pillars())[0]
    assert reported.pop().split()[1] == hashlib.sha256(mine.tobytes()).hexdigest()


@pytest.mark.parametrize("sign", ["work", "stage.so", META], ids=["compiling", "linked", "described"])
def test_a_build_that_is_killed(fresh_cache: Path, make_engine: Make, sign: str) -> None:
    """SIGKILL as soon as a certain file of the unfinished entry is there; the next build is as if nothing had been."""
    process = program("compile_stage(PFN, ENGINE)")
    while process.poll() is None and not any(folder.glob(f"entry/{sign}") for folder in leftovers(fresh_cache)):
        time.sleep(0.0005)
    process.kill()
    process.communicate()
    assert all(find(entry) is not None for entry in entries(fresh_cache))
    artifact = compile_stage(PFN, make_engine())
    assert find(artifact.folder) is not None and load(artifact)(*pillars())[0].shape == (7, 64)


FAKE = """
import os, signal, shutil, sys
from pathlib import Path
from socsched.compiler.artifact import find
from dataclasses import replace
from socsched.compiler import builder
from socsched.compiler.target import Compilation
from socsched.graph.operators import TensorType

def fake(asked, target):  # as many files as a real one, without the seconds
    folder = asked.folder
    (folder / 'work').mkdir()
    for name in ('work/lib0.o', 'stage.so'):
        (folder / name).write_bytes(b'x' * 100)
    shutil.rmtree(folder / 'work')
    one = TensorType((1,), 'fp32')
    return Compilation(asked, {}, None, None, inputs=(one,) * 3, outputs=(one,), files=('stage.so',))

builder._compiled = fake
builder.apart = lambda work, data: work()  # one process, which is killed
sys.modules['socsched.compiler.environment'] = os  # without TVM
CACHE = os.environ['SOCSCHED_CACHE']

def damaged():
    folder = compile_stage(PFN, ENGINE).folder
    (folder / 'stage.so').write_bytes(b'short')
"""
KILLED_EVERYWHERE = """
CHANGES = ('open', 'os.rename', 'os.mkdir', 'os.remove', 'os.rmdir', 'shutil.rmtree', 'tempfile.mkdtemp', 'fcntl.flock')

def killing(at):
    seen = 0
    def hook(event, args):
        nonlocal seen
        if event in CHANGES and (event == 'fcntl.flock' or CACHE in str(args[0]) or type(args[0]) is int):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
    return hook

for prepare in (lambda: None, damaged):
    at, kills = 0, 0
    while True:
        at += 1
        shutil.rmtree(CACHE, ignore_errors=True)
        prepare()
        child = os.fork()
        if not child:
            sys.addaudithook(killing(at))
            compile_stage(PFN, ENGINE)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        there = [p for p in (Path(CACHE) / 'artifacts').glob('*') if not p.name.startswith('.')]
        assert len(there) <= 1, there
        artifact = compile_stage(PFN, ENGINE)
        assert find(artifact.folder) is not None, at
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
    print(kills)
"""


def test_killed_before_every_change_on_disk(fresh_cache: Path) -> None:
    """Every operation that changes the cache, in turn the last one of a process: building, and repairing an entry."""
    process = program(FAKE + KILLED_EVERYWHERE)
    reported, errors = process.communicate()
    assert process.returncode == 0, errors
    assert all(int(kills) > 15 for kills in reported.split()) and len(reported.split()) == 2


CROWD = """
for round in range(30):
    if round % 2:
        damaged()
    else:
        shutil.rmtree(CACHE, ignore_errors=True)
    children = []
    for _ in range(6):
        child = os.fork()
        if not child:
            try:
                compile_stage(PFN, ENGINE)
            except BaseException as error:
                print(type(error).__name__, error, flush=True)
                os._exit(1)
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    entries = [p for p in (Path(CACHE) / 'artifacts').iterdir() if not p.name.startswith('.')]
    assert len(entries) == 1 and find(entries[0]) is not None, (round, entries)
    assert not list(Path(CACHE).rglob('.socsched-new-*'))
    assert not failed, round
"""


def test_many_build_and_repair_at_once(fresh_cache: Path) -> None:
    """Six processes, thirty times, on an empty cache and on one whose entry is damaged."""
    process = program(FAKE + CROWD)
    reported, errors = process.communicate()
    assert process.returncode == 0, reported + errors


def test_what_the_killed_leave_is_swept_after_a_while(
    fresh_cache: Path, make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, fresh = (fresh_cache / "artifacts" / f"{files.PREFIX}{name}" for name in ("old", "fresh"))
    for folder in (old, fresh):
        (folder / "entry").mkdir(parents=True)
        (folder / "entry" / "stage.so").write_bytes(b"half")
    past = time.time() - files.STALE_S - 60
    for path in (old, old / "entry", old / "entry" / "stage.so"):
        os.utime(path, (past, past))
    compile_stage(PFN, make_engine())
    assert not old.exists() and fresh.exists()


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the compiler by something that writes a file."""

    def compiled(asked: Build, target: Target) -> Compilation:
        (asked.folder / "stage.so").write_bytes(b"code")
        one = TensorType((1,), "fp32")
        return Compilation(asked, {}, None, None, inputs=(one,) * 3, outputs=(one,), files=("stage.so",))

    monkeypatch.setattr(builder, "_compiled", compiled)


@pytest.mark.parametrize(
    "where",
    [
        "tempfile.mkdtemp",
        "pathlib.Path.mkdir",
        "pathlib.Path.write_bytes",
        "pathlib.Path.open",
        "os.fsync",
        "os.rename",
        "os.replace",
    ],
)
def test_a_full_disk_at_every_step(
    fresh_cache: Path, make_engine: Make, stub: None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_cache.mkdir()

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(where, full)
        with pytest.raises(MachineError, match=r"[Nn]o space left on device") as caught:
            compile_stage(PFN, make_engine())
    assert caught.value.exit_code == EXIT_MACHINE and "set SOCSCHED_CACHE" in caught.value.hint
    assert not (fresh_cache / "artifacts").exists() or not entries(fresh_cache)
    assert not leftovers(fresh_cache)
    assert find(compile_stage(PFN, make_engine()).folder) is not None


def test_too_little_space_is_reported_before_the_compiler_starts(
    fresh_cache: Path, make_engine: Make, stub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM would end the process."""
    monkeypatch.setattr(builder, "_space", lambda request: 1 << 60)
    with pytest.raises(MachineError, match=r"no space left on device .* MiB are needed"):
        compile_stage(PFN, make_engine())


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount file systems of a given size."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        folder = tmp_path / f"disk{size}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
        subprocess.run(command, check=True)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.needs("mounting")
def test_a_disk_that_really_is_full(
    tiny_disk: Callable[[str], Path], make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOCSCHED_CACHE", str(tiny_disk("512k") / "cache"))
    with pytest.raises(MachineError, match="no space left") as caught:
        compile_stage(PFN, make_engine())
    assert caught.value.exit_code == EXIT_MACHINE


def test_the_command_line_ends_with_3(
    fresh_cache: Path, stub: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", "pointpillars", "-p", "host", "--stage", "pfn", "-q", "-o", str(tmp_path / "out")]
    monkeypatch.setattr(builder, "_space", lambda request: 1 << 60)
    assert run(command) == EXIT_MACHINE
    reported = capsys.readouterr().err
    assert "no space left on device" in reported and "set SOCSCHED_CACHE" in reported
    monkeypatch.setattr(builder, "_space", lambda request: 0)
    assert run(command) == 0


@pytest.mark.needs("mounting")
@pytest.mark.slow
def test_the_linker_runs_out_of_space(
    tiny_disk: Callable[[str], Path], make_engine: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Just enough for the object files: GNU ld leaves a truncated library and reports success."""
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "roomy"))
    library = compile_stage(PFN, make_engine()).path.stat().st_size
    cache = tiny_disk(f"{2 * library // 4096 * 4}k") / "cache"
    monkeypatch.setenv("SOCSCHED_CACHE", str(cache))
    # In a process of its own: LLVM ends it when an object file does not fit.
    process = program("""
from socsched.errors import MachineError
builder._space = lambda request: 0
try:
    compile_stage(PFN, ENGINE)
except MachineError as error:
    print(error.exit_code, error)
""")
    reported, errors = process.communicate()
    assert reported.startswith(f"{EXIT_MACHINE} ") and "No space left on device" in reported, errors
    assert not entries(cache) and not leftovers(cache)


def test_a_truncated_library_is_no_library(make_engine: Make, tmp_path: Path) -> None:
    whole = compile_stage(PFN, make_engine()).path.read_bytes()
    (tmp_path / "whole.so").write_bytes(whole)
    link.require_whole(tmp_path / "whole.so")
    for size in (0, 10, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "short.so").write_bytes(whole[:size])
        if size != 10:  # too short to say what it is
            with pytest.raises(OSError, match="No space left"):
                link.require_whole(tmp_path / "short.so")


def test_a_share_of_an_engine(make_engine: Make) -> None:
    """A CPU's code serves any number of threads, a GPU's is built for its SMs."""
    whole, half = (compile_stage(PFN, make_engine(), share=share) for share in (0, 2))
    assert whole.key == half.key and (half.share, half.threads, whole.threads) == (2, 2, 0)
    first, second = (load(artifact)(*pillars())[0] for artifact in (whole, half))
    assert np.array_equal(first, second)
    with pytest.raises(UsageError, match="cpu has 4 cores, not 5"):
        compile_stage(PFN, make_engine(), share=5)
    with pytest.raises(UsageError, match="is occupied as a whole"):
        compile_stage(PFN, replace(make_engine(), shares="whole"), share=2)


def test_a_gpu_s_share_is_in_the_key(fresh_cache: Path, make_engine: Make, stub: None) -> None:
    engine = make_engine({"kind": "cuda", "arch": "sm_87"}, id="gpu")
    keys = [compile_stage(PFN, engine, share=share).key for share in (0, 2, 3)]
    assert len(set(keys)) == 3 and compile_stage(PFN, engine, share=2).share == 2
