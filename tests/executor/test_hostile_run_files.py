"""The native executor on settings, launch lists and tensors that are not what it wrote, and on a full disk."""

from __future__ import annotations

import copy
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from socsched.executor.settings import RunSettings, document_of
from socsched.planning.io import to_document
from tests.runtime.run_plans import MS, plan, task
from tools.verify.fuzz import native

MEMORY = 2 * 2**30


def run(executor: Path, files: native.Files, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the executor on files, with less memory than the hostile ones ask for."""
    native.write(files, folder)
    (folder / "out").mkdir(exist_ok=True)
    return subprocess.run(
        [executor, "run.json", *(arguments or ("-o", "out"))], cwd=folder, capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )  # fmt: skip


def stages(files: native.Files) -> dict[str, Any]:
    found: dict[str, Any] = files["run.json"]["stages"]
    return found


def lidar(files: native.Files) -> dict[str, Any]:
    found: dict[str, Any] = files["run.json"]["inputs"]["lidar"]
    return found


def test_sound_files_are_checked_and_their_kernels_called(executor: Path, tmp_path: Path) -> None:
    files = copy.deepcopy(native.seeds()[-1])
    stages(files).update({name: {"kind": "spin", "time_ns": 1000} for name in ("pfn", "form", "net", "boxes")})
    assert run(executor, files, tmp_path).returncode == 0


def shape(stage: str, side: str, port: int, *sizes: int, **form: str) -> Callable[[native.Files], Any]:
    return lambda files: stages(files)[stage][side][port].update(shape=list(sizes), **form)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (shape("vox", "outputs", 0, 8, -1, -1, 16), "outputs[0].shape: expected a fixed size"),
        (shape("vox", "outputs", 0, 8, -1, -1, 16, layout="NCHW16c"), "outputs[0].shape: expected a fixed size"),
        (shape("boxes", "outputs", 0, 5, -1, -1, 7), "outputs[0].shape: expected a fixed size"),
        (shape("boxes", "outputs", 0, 5, 7, 1), "records: expected false"),
        (shape("net", "outputs", 0, 1, 18, -1, 2), "outputs[0].shape: expected a fixed size"),
        (shape("vox", "outputs", 0, 2**31, 4, 4), "expected at most 2^31 elements"),
        (shape("vox", "outputs", 0, 2**16, 2**16, 2**16, 2**16), "expected at most 2^31 elements"),
        (shape("vox", "outputs", 0, 1, 1, 2**15, 2**15, layout="NCHW9999c+9999"), "expected at most 4 GiB"),
        (shape("image", "inputs", 0, 2, 3, 8, 8), "inputs of its params' size"),
        (lambda files: stages(files)["net"]["code_inputs"][0].update(shape=[1, 1, 1, 1]), "the size of this input"),
        (lambda files: stages(files)["net"]["code_outputs"][0].update(shape=[1, 19, 2, 2]), "the size of this output"),
        (lambda files: stages(files)["net"].update(code_inputs=[]), "code_inputs: expected a form for each"),
        (lambda files: files["net.json"].update(memory=2**36), "more than 4 GiB"),
        (lambda files: files["net.json"].update(constants=2**36), "shorter than its launch list"),
        (lambda files: files["net.json"]["outputs"][0].update(offset=1), "expected a multiple"),
        (lambda files: files["pfn.json"]["symbols"][0].update(most=2**31), "expected"),
        (lambda files: lidar(files)["warm"].update(shapes=[[2**28, 4]]), "shorter than its frames"),
        (lambda files: lidar(files).update(file="/dev/zero"), "expected a file"),
        (lambda files: files["run.json"].update(limp_home=["plan.json"] * 1000), "at most 64"),
    ],
)  # fmt: skip
def test_sizes_are_checked_before_memory_is_taken(
    change: Callable[[native.Files], Any], says: str, executor: Path, tmp_path: Path
) -> None:
    files = copy.deepcopy(native.seeds()[-1])
    files["net.json"]["code"] = files["pfn.json"]["code"] = "/lib/x86_64-linux-gnu/libm.so.6"
    change(files)
    done = run(executor, files, tmp_path)
    assert done.returncode in (2, 3) and (says in done.stderr or "has no kernel" in done.stderr), done
    assert done.returncode == 2 or "has no kernel" in done.stderr
    assert not list((tmp_path / "out").iterdir()), "nothing half written"


def test_memory_of_all_slots_together_is_checked(executor: Path, tmp_path: Path) -> None:
    files = copy.deepcopy(native.seeds()[-1])
    stages(files)["vox"]["outputs"] = [native.tensor("int8", 2**30 - 64)] * 3
    done = run(executor, files, tmp_path)
    assert done.returncode == 2 and "more than 4 GiB" in done.stderr


def long_chain(count: int) -> native.Files:
    """Return a chain of tasks, of which each needs the sensor's data and those of the task before it."""
    pairs = list(pairwise(["s", *(f"t{number}" for number in range(count))]))
    made = plan(*(task(name, before, queue=1) for before, name in pairs), sensors={"s": 10 * MS})
    needs = {name: {"s", before} for before, name in pairs}
    settings = RunSettings(made, 20 * MS, needs=needs)
    return {"run.json": document_of(settings, ["plan.json"]), "plan.json": to_document(made)}


def test_a_chain_of_thousands_starts_at_once(executor: Path, tmp_path: Path) -> None:
    began = os.times()
    done = run(executor, long_chain(3000), tmp_path, "-o", "out", "--virtual")
    spent = os.times().children_user - began.children_user + os.times().children_system - began.children_system
    assert done.returncode == 0 and spent < 2, (done, spent)


def test_a_run_without_end_on_the_virtual_clock_is_refused(executor: Path, tmp_path: Path) -> None:
    files = long_chain(1)
    files["plan.json"]["sensors"][0]["period_ns"] = 1
    began = time.monotonic()
    done = run(executor, files, tmp_path, "-o", "out", "--virtual", "--horizon-ns", str(10**9))
    assert done.returncode == 2 and "5 million frames" in done.stderr
    files = long_chain(1)
    files["run.json"]["times"] = {"t0": [2**53]}
    done = run(executor, files, tmp_path, "-o", "out", "--virtual")
    assert done.returncode == 2 and "expected shorter times" in done.stderr and time.monotonic() - began < 20


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("how", [(), ("--virtual",)])
def test_a_full_disk_is_an_error_of_the_machine(how: tuple[str, ...], executor: Path, tmp_path: Path) -> None:
    files = long_chain(2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/journal.jsonl").symlink_to("/dev/full")
    done = run(executor, files, tmp_path, "-o", "out", *how)
    assert done.returncode == 3 and "journal.jsonl: cannot be written: No space left" in done.stderr
    assert "No space left" in json.loads((tmp_path / "out/executed.json").read_text())["journal_error"]
    (tmp_path / "out/journal.jsonl").unlink()
    (tmp_path / "out/executed.json").unlink()
    (tmp_path / "out/executed.json.new").symlink_to("/dev/full")
    done = run(executor, files, tmp_path, "-o", "out", *how)
    assert done.returncode == 3 and "executed.json: cannot be written: No space left" in done.stderr
    assert not (tmp_path / "out/executed.json.new").is_symlink(), "nothing is left over"


@pytest.mark.slow
def test_mutated_files_under_sanitizers(executor: Path, tmp_path: Path) -> None:
    tally = native.run(native.build(tmp_path), 2, range(1000))
    assert tally.findings == {}
    assert sum(tally.counts.values()) == 1000 and min(tally.counts[code] for code in ("0", "2")) > 100
