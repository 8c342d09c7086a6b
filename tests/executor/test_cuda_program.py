"""Launch lists on the native executor with a stand-in for the driver: memory, rows, graphs, code, failures."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from ctypes.util import find_library
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.executor.build import SOURCES, cxx_compiler
from socsched.executor.settings import EXECUTED, RunSettings, write_settings
from tests.executor.gpu_standin import build_driver, noted
from tests.executor.one_stage import INPUT, OUTPUTS, detections, run, tensor
from tests.runtime.run_plans import MS, plan, task
from tools.verify.vendor_headers import CUDA, check

HERE = Path(__file__).parent
HEADER = Path("/usr/local/cuda/include/cuda.h")
ROOM = 6


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a program that divides kernels as the executor does."""
    if not (compiler := cxx_compiler()):
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("sizes") / "check"
    source = str(HERE / "graph_sizes_check.cpp")
    subprocess.run([compiler, "-std=c++17", "-O1", f"-I{SOURCES}", source, "-o", made], check=True)
    return made


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the driver and the kernels."""
    if not shutil.which("g++") or not shutil.which("gcc"):
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("gpu")
    build_driver(folder)
    command = ["gcc", "-O1", "-shared", "-fPIC", str(HERE / "standins" / "kernels.c")]
    subprocess.run([*command, "-o", str(folder / "kernels.so")], check=True)
    (folder / "code.txt").write_text(f"{folder / 'kernels.so'}\ndetect 7\nfail 0\n")
    (folder / "other.txt").write_text("another toolkit\n")
    return folder


def place(space: str, offset: int) -> dict[str, Any]:
    return {"in": space, "offset": offset}


def program(folder: Path, gpu: Path, name: str = "program.json", **changes: Any) -> str:
    """Write the launch list of a stage with room for ROOM rows of seven floats."""
    (folder / "weights.bin").write_bytes(np.array([0, 1], np.float32).tobytes())
    values = [
        place("memory", 0),
        place("results", 0),
        place("results", 256),
        place("results", 512),
        place("memory", 256),
        place("constants", 4),
        {"value": ROOM},
    ]
    launch = {"kernel": "detect", "code": 0, "grid": [1, 1, 1], "block": [32, 1, 1], "shared": 0, "arguments": values}
    entry = {
        **place("memory", 0),
        "bytes": 28 * ROOM,
        "row_bytes": 28,
        "fill": 0,
        "count": place("memory", 256),
        "filled": False,
    }
    document = {
        "format": "socsched-launches",
        "version": 1,
        "arch": "sm_87",
        "code": [str(gpu / "code.txt")],
        "weights": "weights.bin",
        "memory": 260,
        "constants": 8,
        "results": 1024,
        "inputs": [entry],
        "outputs": [{"offset": 0, "bytes": 28 * ROOM}, {"offset": 256, "bytes": 24}, {"offset": 512, "bytes": 24}],
        "launches": [launch],
    }
    (folder / name).write_text(json.dumps({**document, **changes}, indent=1))
    return name


def stage(*programs: str, **changes: Any) -> dict[str, Any]:
    """Return a stage whose labels mark the rows in use."""
    outputs = [
        {**tensor(entry["name"], entry["dtype"], ROOM, *entry["shape"][1:]), "on_host": True} for entry in OUTPUTS
    ]
    return {
        "kind": "cuda",
        "programs": list(programs),
        "inputs": [{"from": "s", "port": 0, **tensor("x", "fp32", -1, 7)}],
        "outputs": outputs,
        "marks": {"output": 2, "least": 0},
        **changes,
    }


def start(executor: Path, folder: Path, gpu: Path, given: Mapping[str, Any], **env: str) -> Any:
    log = str(folder / "driver.log")
    return run(executor, folder, given, INPUT, (0,), None, LD_LIBRARY_PATH=str(gpu / "driver"), STANDIN_LOG=log, **env)


@pytest.mark.parametrize(("longest", "pieces"), [(None, 1), (10**12, 1), (1, 3)])
def test_a_launch_list_runs_as_graphs(
    executor: Path, gpu: Path, longest: int | None, pieces: int, tmp_path: Path
) -> None:
    """All kernels are one graph, or as many as bounds ask for by the time that each took before the run."""
    name = program(tmp_path, gpu)
    document = json.loads((tmp_path / name).read_text())
    document["launches"] *= 3
    (tmp_path / name).write_text(json.dumps(document))
    done = start(executor, tmp_path, gpu, stage(name, **({"longest_ns": longest} if longest else {})))
    assert (done.returncode, done.stderr) == (0, "")
    assert ("has a kernel of" in (tmp_path / EXECUTED).read_text()) == (longest == 1)
    first, second = detections(tmp_path)
    assert np.array_equal(np.float32(first["boxes"]), INPUT + 1) and first["labels"] == [1, 1, 2, 3]
    assert {**first, "frame": 1} == second
    calls = noted(tmp_path / "driver.log")
    jobs = 2 + 3  # frames, and those of the warm-up
    timed = 5 if longest else 0
    assert calls.count("cuGraphLaunch") == pieces * jobs + timed
    assert sum(call.startswith("fill") for call in calls) == bool(longest)  # the inputs of what is timed
    assert calls.count("copy in 4") == jobs + timed  # by the graph
    assert calls.count(f"copy out {512 + 24}") == jobs + timed
    assert calls.count("stream of priority -2") == 1  # of firm stages
    graphs = [call for call in calls if call.startswith("graph of")]
    assert (len(graphs) - bool(timed)) % pieces == 0 and f"graph of {3 // pieces + 1 + (pieces == 1)} nodes" in graphs


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 4), st.lists(st.integers(0, 300), max_size=20)), min_size=1)
)
@settings(max_examples=200, deadline=None)
def test_graphs_take_no_longer_than_bounds_count(sizes: Path, rows: list[tuple[int, int, list[int]]]) -> None:
    """Whatever the kernels take: only one that is too long itself exceeds the bound, and then nothing is with it."""
    lines = "".join(f"{limit} {queued} {' '.join(map(str, times))}\n" for limit, queued, times in rows)
    done = subprocess.run([sizes], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
    for (limit, most, times), line in zip(rows, done, strict=True):
        queued, longest, *ends = map(int, line.split())
        graphs = [times[a:b] for a, b in pairwise([0, *ends])]
        assert [time for graph in graphs for time in graph] == times and all(graphs) and 1 <= queued <= most
        sums = [sum(graph) for graph in graphs]
        together = [sum(sums[i : i + queued]) for i in range(len(sums))]
        assert longest == max(together, default=0)
        assert longest <= limit or (queued == 1 and all(len(g) == 1 for g in graphs if sum(g) > limit))
        assert all(a + b[0] > limit // queued for a, b in zip(sums, graphs[1:], strict=False)), "as few as may be"


@pytest.mark.parametrize("loaded", [True, False])
def test_networks_take_turns_in_a_slot(executor: Path, gpu: Path, tmp_path: Path, loaded: bool) -> None:
    """Each finds its own weights, loaded before or, where no load brought them, copied by its job; a notice tells."""
    stages: dict[str, dict[str, Any]] = {}
    for number, name in enumerate("ab"):
        (tmp_path / name).mkdir()
        file = program(tmp_path / name, gpu)
        (tmp_path / name / "weights.bin").write_bytes(np.array([0, number + 1], np.float32).tobytes())
        turn = {"slot": {"number": 3, "bytes": 8}}
        stages[name] = {**stage(f"{name}/{file}", **turn), "records": True}
        stages[f"load:{name}"] = {"kind": "load", "loads": name, "inputs": [], "outputs": [], **turn}
    (tmp_path / "frames.bin").write_bytes(INPUT.tobytes() * 3)
    entry = {"shapes": [list(INPUT.shape)]}
    port = {"dtype": "fp32", "layout": "", "shape": list(INPUT.shape)}
    frames = {"file": "frames.bin", "ports": [port], "frames": [entry, entry], "warm": entry}
    tasks = [task("load:a", "s"), task("a", "s", "load:a"), task("load:b", "s", "a"), task("b", "s", "load:b")]
    if not loaded:
        tasks = [task("a", "s"), task("b", "s", "a")]
    made = plan(*tasks, sensors={"s": 20 * MS})
    used = {one.name: stages[one.name] for one in tasks}
    settings = RunSettings(made, 40 * MS, {"a": {"s"}, "b": {"s"}}, used, inputs={"s": frames})
    command = [str(executor), str(write_settings(settings, tmp_path)), "-o", str(tmp_path)]
    log = tmp_path / "driver.log"
    env = {**os.environ, "LD_LIBRARY_PATH": str(gpu / "driver"), "STANDIN_LOG": str(log)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    boxes = [(one["frame"], np.float32(one["boxes"])) for one in detections(tmp_path)]
    assert len(boxes) == 4
    assert all(
        any(f == frame and np.array_equal(box, INPUT + add) for f, box in boxes) for frame in (0, 1) for add in (1, 2)
    )
    assert noted(log).count("copy in 8") == 2 * (2 + 3)  # frames, and those of the warm-up: one for each job
    notices = json.loads((tmp_path / EXECUTED).read_text())["notices"]
    assert [("copied their weights themselves" in one) for one in notices] == ([] if loaded else [True, True])


def test_code_for_the_gpu_is_chosen_when_it_is_loaded(executor: Path, gpu: Path, tmp_path: Path) -> None:
    other = program(tmp_path, gpu, "newer.json", code=[str(gpu / "other.txt")])
    names = [program(tmp_path, gpu, f"{arch}.json", arch=arch) for arch in ("sm_72", "sm_90a", "sm_80")]
    for capability in ("87", "80", "90"):
        done = start(executor, tmp_path, gpu, stage(other, *names), STANDIN_SM=capability)
        assert (done.returncode, done.stderr) == (0, ""), capability
    done = start(executor, tmp_path, gpu, stage(other, *names), STANDIN_SM="75", STANDIN_VERSION="11040")
    assert done.returncode == 0  # sm_72 runs on every newer one of its major number
    done = start(executor, tmp_path, gpu, stage(other, names[1]), STANDIN_SM="86", STANDIN_VERSION="11040")
    assert done.returncode == 3
    assert "no code for this GPU, sm_86 under CUDA 11.4" in done.stderr and "sm_90a.json (for sm_90a)" in done.stderr
    done = start(executor, tmp_path, gpu, stage(other))
    assert done.returncode == 3 and "(209)" in done.stderr and "newer.json" in done.stderr


def test_a_stage_runs_on_the_gpu_that_it_names(executor: Path, gpu: Path, tmp_path: Path) -> None:
    given = stage(program(tmp_path, gpu), device=1)
    done = start(executor, tmp_path, gpu, given, STANDIN_GPUS="2")
    assert (done.returncode, done.stderr) == (0, "") and "device 1" in noted(tmp_path / "driver.log")
    done = start(executor, tmp_path, gpu, given)
    assert done.returncode == 3 and "looking for another GPU failed" in done.stderr


@pytest.mark.skipif(not HEADER.exists(), reason="the stand-in has green contexts where CUDA's header is")
def test_a_stage_has_the_groups_of_multiprocessors_of_its_lanes(executor: Path, gpu: Path, tmp_path: Path) -> None:
    given = stage(program(tmp_path, gpu), groups=4)
    for lanes, context in (((0,), " 0x4"), ((1, 2), " 1x4 2x4"), ((3,), " 3x4")):
        log = tmp_path / "driver.log"
        log.unlink(missing_ok=True)
        done = run(executor, tmp_path, given, LD_LIBRARY_PATH=str(gpu / "driver"), STANDIN_LOG=str(log), lanes=lanes)
        assert (done.returncode, done.stderr) == (0, "")
        calls = noted(log)
        assert f"green context of{context}" in calls and f"stream of priority -2 on{context}" in calls
        assert "stream of priority -2" not in calls


@pytest.mark.skipif(not HEADER.exists(), reason="the stand-in has green contexts where CUDA's header is")
@pytest.mark.parametrize("least, words", [("0", "asking for the SMs failed"), ("8", "divides into 2 groups of 8 SMs")])
def test_without_shares_a_stage_has_the_whole_gpu_and_says_so(
    executor: Path, gpu: Path, least: str, words: str, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    given = stage(program(tmp_path, gpu), groups=4)
    done = run(
        executor, tmp_path, given, LD_LIBRARY_PATH=str(gpu / "driver"), STANDIN_LOG=str(log), STANDIN_LEAST=least
    )
    assert done.returncode == 0 and "stream of priority -2" in noted(log)
    (notice,) = json.loads((tmp_path / "executed.json").read_text())["notices"]
    assert "runs on the whole GPU instead of its share" in notice and words in notice


@pytest.mark.parametrize("shared", [True, False])
def test_a_job_waits_for_more_critical_ones_of_other_processes_that_live(shared: bool, tmp_path: Path) -> None:
    """Without a file that they share, each process counts its own jobs."""
    binary = str(tmp_path / "peers")
    command = [cxx_compiler() or "c++", "-std=c++17", f"-I{SOURCES}", str(HERE / "peers.cpp"), "-o", binary]
    if subprocess.run(command, check=False).returncode:
        pytest.skip("no C++ compiler")
    folder = tmp_path / "shm"
    if shared:
        folder.mkdir()
    done = subprocess.run([binary, str(folder)], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == ("0 1 0 0 1 0\n" if shared else "0 0 0 0 1 0\n")


def test_code_of_the_drivers_own_version_is_tried_first(executor: Path, gpu: Path, tmp_path: Path) -> None:
    shutil.copyfile(gpu / "code.txt", tmp_path / "older.txt")
    newer = program(tmp_path, gpu, "newer.json", toolkit=13000)
    older = program(tmp_path, gpu, "older.json", toolkit=12090, code=["older.txt"])
    for version, wanted in (("12020", older), ("13000", newer), ("14000", newer)):
        other = newer if wanted == older else older
        shutil.copyfile(tmp_path / other, tmp_path / "kept")
        (tmp_path / other).write_text(json.dumps({**json.loads((tmp_path / other).read_text()), "code": ["none"]}))
        done = start(executor, tmp_path, gpu, stage(newer, older), STANDIN_VERSION=version)
        assert (done.returncode, done.stderr) == (0, ""), version
        shutil.copyfile(tmp_path / "kept", tmp_path / other)


@pytest.mark.skipif(find_library("cuda") is not None, reason="there is a driver")
def test_without_a_driver_that_is_stated(executor: Path, gpu: Path, tmp_path: Path) -> None:
    done = run(executor, tmp_path, stage(program(tmp_path, gpu)), LD_LIBRARY_PATH=str(tmp_path))
    assert done.returncode == 3
    assert "libcuda.so.1 cannot be loaded" in done.stderr


def test_a_lost_device_ends_in_the_accounting(executor: Path, gpu: Path, tmp_path: Path) -> None:
    done = start(executor, tmp_path, gpu, stage(program(tmp_path, gpu)), STANDIN_FAILS_AFTER="4")
    assert done.returncode == 3
    executed = json.loads((tmp_path / "executed.json").read_text())
    assert "CUDA: running the kernels failed" in executed["failure"] or "launching the kernels" in executed["failure"]
    account = executed["accounts"]["s"]
    assert account["released"] == account["completed"] + account["dropped"] + account["aborted"]


HOSTILE: Mapping[str, tuple[dict[str, Any], str]] = {
    "format": ({"format": "other"}, "format: expected one of socsched-launches"),
    "outside": ({"memory": 100}, "inputs[0].bytes: expected a whole number from 0 to 100"),
    "count": ({"memory": 200}, "inputs[0].count.offset: expected a whole number from 0 to 200"),
    "result": ({"results": 100}, "outputs[0].bytes: expected a whole number from 0 to 100"),
    "kernel": ({"launches": [{"kernel": "nothing", "code": 0, "grid": [1] * 3, "block": [1] * 3, "shared": 0,
                              "arguments": []}]}, "finding nothing"),
    "module": ({"launches": [{"kernel": "fail", "code": 1, "grid": [1] * 3, "block": [1] * 3, "shared": 0,
                              "arguments": []}]}, "launches[0].code: expected a whole number from 0 to 0"),
    "grid": ({"launches": [{"kernel": "fail", "code": 0, "grid": [0] * 3, "block": [1] * 3, "shared": 0,
                            "arguments": []}]}, "launches[0].grid[0]: expected a whole number from 1"),
    "weights": ({"constants": 9}, "weights.bin: is shorter than its launch list says"),
    "code": ({"code": ["missing.cubin"]}, "missing.cubin: cannot be read"),
    "ports": ({"inputs": []}, "its launch list has other inputs or outputs"),
    "space": ({"inputs": [{"in": "elsewhere", "offset": 0}]}, "inputs[0].in: expected one of memory"),
    "crash": ({"launches": [{"kernel": "fail", "code": 0, "grid": [1] * 3, "block": [1] * 3, "shared": 0,
                             "arguments": []}]}, "CUDA: launching the kernels failed"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_launch_lists_are_refused(executor: Path, gpu: Path, case: str, tmp_path: Path) -> None:
    changes, message = HOSTILE[case]
    done = start(executor, tmp_path, gpu, stage(program(tmp_path, gpu, **changes)))
    assert done.returncode in (2, 3) and message in done.stderr, done.stderr


@pytest.mark.needs("nvcc")
@pytest.mark.parametrize("changed", ["", "CU_STREAM_NON_BLOCKING        = 0x1", "cuStreamQuery(CUstream"])
def test_declarations_equal_those_of_cudas_header(changed: str, tmp_path: Path) -> None:
    include = Path(shutil.which("nvcc") or "").resolve().parent.parent / "include"
    text = (include if (include / "cuda.h").is_file() else CUDA).joinpath("cuda.h").read_text()
    other = changed.replace("= 0x1", "= 0x2").replace("CUstream", "int")
    (tmp_path / "cuda.h").write_text(text.replace(changed, other))
    assert bool(changed) == bool(check(tmp_path, "cuda.h"))
