"""GPUs of this machine as engines: what the driver says, drivers that lie, hang or crash, and plans that use them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.descriptor import host, host_gpus
from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.host_gpus import Gpu, engines, find, probe
from socsched.models.work import stage_work
from socsched.planning.search import make_plan
from tests.executor.gpu_standin import build_driver

BIG = Gpu(
    index=0,
    name="Big",
    memory=80 << 30,
    sms=132,
    clock_khz=1_980_000,
    l2_bytes=50 << 20,
    integrated=0,
    major=9,
    minor=0,
    bus_bits=5120,
    memory_khz=2_619_000,
    shared_bytes=227 << 10,
    copied=2.9e12,
    uploaded=25e9,
    downloaded=20e9,
    launch_ns=1300,
    submit_ns=8000,
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the stand-in for the driver."""
    if not shutil.which("g++"):
        pytest.skip("no gcc")
    return build_driver(tmp_path_factory.mktemp("driver"))


def machine(folder: Path) -> Path:
    """Return a root folder with the device of a GPU."""
    (folder / "dev").mkdir(parents=True)
    (folder / "dev" / "nvidia0").touch()
    return folder


def broken(folder: Path, body: str) -> Path:
    """Return a folder with a driver whose cuInit is `body`."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    source = folder / "broken.c"
    source.write_text(f"#include <stdlib.h>\n#include <unistd.h>\nint cuInit(unsigned f) {{ {body} return 0; }}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(folder / "libcuda.so.1")], check=True)
    return folder


def test_gpus_are_found_and_measured_through_the_driver_alone(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("STANDIN_GPUS", "2")
    gpus = find(machine(tmp_path), cache=False)
    assert [(gpu.index, gpu.name, gpu.sms, gpu.capability) for gpu in gpus] == [
        (0, "Stand-in GPU", 8, 87),
        (1, "Stand-in GPU", 8, 87),
    ]
    assert gpus[0].copied > 0 and gpus[0].uploaded > 0 and gpus[0].launch_ns == 0 and gpus[0].problem
    one, two = engines(gpus)
    assert (one.id, two.id, one.target["arch"], two.target["device"]) == ("gpu0", "gpu1", "sm_87", 1)
    assert "device" not in one.target and one.link is not None and one.link.bandwidth.kind == "measured"


def test_a_machine_without_a_gpu_asks_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_gpus, "probe", lambda seconds: pytest.fail("asked"))
    assert find(tmp_path, cache=False) == ()


@pytest.mark.parametrize("body", ["abort();", "sleep(60);", "return 999;", "_exit(0);"])
def test_a_broken_driver_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(broken(tmp_path, body)))
    start = time.monotonic()
    assert find(machine(tmp_path / "root"), cache=False, seconds=2.0) == ()
    assert time.monotonic() - start < 30
    assert probe(2.0)[1]


def test_hidden_gpus_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$CUDA_VISIBLE_DEVICES is empty: starting the driver takes seconds."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(broken(tmp_path, "return 100;")))
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
    root = machine(tmp_path / "root")
    assert find(root) == () and probe(2.0) == ([], "")
    monkeypatch.setattr(host_gpus, "probe", lambda seconds: pytest.fail("asked"))
    assert find(root) == ()


def test_a_file_that_is_no_library_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert find(machine(tmp_path / "root"), cache=False) == ()


@pytest.mark.parametrize("answer", ["null", "{}", "[{}]", '[{"index": 0}]', '["x"]', "3"])
def test_answers_of_another_form_mean_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(host_gpus, "probe", lambda seconds: (json.loads(answer), ""))
    assert find(machine(tmp_path), cache=False) == ()


def test_rates_follow_from_architecture_sms_and_clock() -> None:
    (gpu,) = engines([BIG])
    peak = {name: one.ops_per_cycle.value * gpu.units * gpu.clock_hz.value for name, one in gpu.precisions.items()}
    assert peak["fp16"] == pytest.approx(669e12, rel=0.01) and peak["int8"] == 2 * peak["fp16"]
    assert peak["fp32"] == pytest.approx(66.9e12, rel=0.01)  # the data sheet's 67 TFLOPS
    assert gpu.bandwidth.value == 2.9e12 and gpu.link is not None and gpu.link.bandwidth.value == 20e9
    (old,) = engines([replace(BIG, major=7, minor=0)])
    assert "int8" not in old.precisions and old.precisions["fp16"].layout == "NCHW"
    (near,) = engines([replace(BIG, integrated=1)])
    assert near.link is None


def test_green_contexts_divide_gpus_in_the_groups_that_they_have() -> None:
    """132 SMs of an H100 make 15 groups of 8; older GPUs have groups of 4, and those before Ampere none."""
    (gpu,) = engines([BIG])
    assert gpu.division is not None and gpu.division.count(gpu.units) == 15 and gpu.division.counts(132)[-1] == 14
    (older,) = engines([replace(BIG, major=8, minor=6, sms=82)])
    assert older.division is not None and older.division.group == 4 and 2 <= older.division.count(82) <= 82 // 4
    (oldest,) = engines([replace(BIG, major=7, minor=0)])
    (small,) = engines([replace(BIG, sms=16)])
    assert oldest.division is None and small.division is None


def test_gpus_join_the_machine_as_engines() -> None:
    plain = host.detect()
    platform = host_gpus.added(replace(plain, engines=plain.engines[:1]), [BIG])
    assert [engine.id for engine in platform.engines] == ["cpu", "gpu"]
    assert platform.modes[0].engines["gpu"].units == 132
    assert host_gpus.added(plain, []) is plain


def test_only_what_others_read_crosses_the_link() -> None:
    """A detector on one GPU pays for its points and boxes and for one submission, not for what lies between."""
    plain = host.detect()
    platform = host_gpus.added(replace(plain, engines=plain.engines[:1]), [BIG])
    pipe = get_pipeline("pointpillars-s")
    made = make_plan(pipe, platform, work=stage_work)
    gpu, tasks = platform.engine("gpu"), {task.name: task for task in made.tasks}
    assert {task.engine for task in tasks.values()} == {"gpu"} and gpu.keeps
    added = {name: task.segments[-1].time_ns for name, task in tasks.items() if task.segments[-1].name == "hand-over"}
    points = 16 * 20800 / 20e9 * 1e9 + 10_000
    assert added["voxelise"] == pytest.approx(points + gpu.submit_ns.value, rel=0.01)
    assert set(added) == {"voxelise", "decode"} and added["decode"] < 11_000
    assert tasks["pfn"].error > 1, "its end is seen up to a look later"
