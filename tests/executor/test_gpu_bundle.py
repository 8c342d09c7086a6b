"""Bundles of plans with GPU stages as native applications: code of several toolkits, conversions, what is computed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from platform import machine
from typing import Any

import pytest
import tiny_pillars

from socsched.api.deployment import compile as compile_plan
from socsched.api.planning import plan as make_plan
from socsched.compiler.targets.cuda.convert import SOURCE, conversion
from socsched.compiler.targets.cuda.toolkits import Toolkit
from socsched.errors import UsageError
from socsched.executor import application, gpu_stages
from socsched.executor.build import find_executor
from socsched.executor.programs import Program, copy_programs, store, stored_program
from socsched.graph.operators import TensorType
from socsched.planning.plan import Transition
from socsched.runtime.backends import Setting
from tests.executor.gpu_standin import build_driver, noted
from tests.executor.test_cuda_stage import compiled_for
from tests.executor.test_networks import setting_in, write_run
from tests.runtime.run_plans import MS, plan, task

pytestmark = pytest.mark.needs("nvcc")
STAGES = ("voxelise", "pfn", "scatter", "backbone", "head", "decode")
_PROCESSOR = """
struct Index {{ int x, y; }};
static Index threadIdx, blockIdx, blockDim;
#define __device__
#define __global__
#define __shared__ static
static void __syncthreads() {{}}
typedef float __half;
{source}
#define EACH(call) \\
  blockDim = {{width, height}}; \\
  for (int j = 0; j < y; j++) for (int i = 0; i < x; i++) for (int t = 0; t < width; t++) {{ \\
    blockIdx = {{i, j}}; threadIdx = {{t, 0}}; call; }} \\
  return 0;
extern "C" int launch_lay_ff(int x, int y, int z, int width, int height, void** g) {{
  EACH(lay_ff((float*)g[0], (float*)g[1], (long)g[2], (long)g[3], (long)g[4], (long)g[5])) }}
extern "C" int launch_cast_ff(int x, int y, int z, int width, int height, void** g) {{
  EACH(cast_ff((float*)g[0], (float*)g[1], (long)g[2])) }}
extern "C" int launch_copy(int x, int y, int z, int width, int height, void** g) {{
  EACH(copy((char*)g[0], (char*)g[1], (long)g[2])) }}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_executor() is None:
        pytest.skip("no C++ compiler")
    return build_driver(tmp_path_factory.mktemp("gpu"))


def test_code_is_made_by_every_toolkit_that_builds_for_the_architecture(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or ""
    program = stored_program(compiled_for("sm_87", "fp32", ["scatter"]), "sm_87", 100)
    makers = [Toolkit((13, 0), nvcc), Toolkit((12, 9), nvcc), Toolkit((11, 2), nvcc)]
    written = copy_programs(program, tmp_path, "scatter", makers)
    assert written == ["scatter/cuda-13.0.json", "scatter/cuda-12.9.json"]
    with pytest.raises(UsageError, match="no toolkit here builds for sm_87"):
        copy_programs(program, tmp_path, "scatter", makers[2:])


@pytest.mark.slow
def test_a_bundle_of_gpu_stages_is_an_application(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = shutil.which("nvcc") or ""
    makers = (Toolkit((13, 0), nvcc), Toolkit((12, 9), nvcc), Toolkit((11, 2), nvcc))
    monkeypatch.setattr(application, "board_toolkits", lambda arch: makers)
    monkeypatch.setattr(application, "_machines", lambda platform: (machine(),))  # the board's bundle, run here
    pins = [f"{name}=gpu" for name in STAGES]
    made = make_plan(tiny_pillars.PIPELINE, "jetson-agx-orin-64gb", pins=pins, runtimes=["gpu=tvm"])
    bundle = tmp_path / "bundle"
    weights = tiny_pillars.write_weights(tmp_path / "w.npz")
    compile_plan(made, bundle, pipeline=tiny_pillars.PIPELINE, weights=weights)
    stages = json.loads((bundle / "run.json").read_text())["stages"]
    for name in STAGES:
        home = f"native/programs/{name}"
        assert stages[name]["programs"] == [f"{home}/cuda-13.0.json", f"{home}/cuda-12.9.json"]
        newer, older = (json.loads((bundle / file).read_text()) for file in stages[name]["programs"])
        assert (newer["toolkit"], older["toolkit"], newer["arch"], older["arch"]) == (13000, 12090, "sm_87", "sm_87")
        assert newer["launches"] == older["launches"] and "sources" not in newer
        assert (bundle / home / newer["code"][0]).read_bytes()[:4] == b"\x7fELF"
    log = tmp_path / "driver.log"
    given = {**os.environ, "LD_LIBRARY_PATH": str(driver), "STANDIN_LOG": str(log), "STANDIN_SM": "87"}
    command = ["sh", str(bundle / "start.sh"), "--duration", "1", "-o", str(tmp_path / "results")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given, timeout=120)
    assert done.returncode == 0, done.stderr
    accounts = json.loads((tmp_path / "results" / "executed.json").read_text())["accounts"]
    ended = sum(account["completed"] for account in accounts.values())
    assert ended and noted(log).count("cuGraphLaunch") == ended + 3  # a frame is one graph; frames to warm up


def on_the_processor(program: Program, folder: Path) -> Path:
    """Return a conversion's program with its kernels compiled for the processor."""
    source, shared = folder / "convert.cc", folder / "convert.so"
    source.write_text(_PROCESSOR.format(source=re.sub("#include.*", "", SOURCE)))
    subprocess.run(["g++", "-O1", "-w", "-shared", "-fPIC", "-o", str(shared), str(source)], check=True)
    (folder / "kernels.txt").write_text(f"{shared}\nlay_ff 6\ncast_ff 3\ncopy 3\n")
    return store(replace(program, document={**program.document, "code": [str(folder / "kernels.txt")]}))


def with_conversions(setting: Setting) -> Setting:
    """Return a setting whose plan converts three hand-overs on a GPU."""
    plan, here = setting.plan, setting.platform
    moves = (
        Transition("voxelise", "pfn", 0, "", "", "fp32", "fp32", "gpu", "voxelise>pfn", 0),
        Transition("pfn", "scatter", 0, "", "", "fp32", "fp32", "gpu", "pfn>scatter", 0),
        Transition("backbone", "head", 0, "NCHW", "NCHW4c", "fp32", "fp32", "gpu", "backbone>head", 0),
    )
    tasks = list(plan.tasks)
    for move in moves:
        sink = next(i for i, task in enumerate(tasks) if task.name == move.sink)
        before: dict[str, Any] = {
            "name": move.task,
            "kind": "conversion",
            "engine": "gpu",
            "lanes": (0,),
            "cost_ns": MS,
        }
        converter = replace(tasks[sink], **before, after=(move.source,), reads=())
        after = tuple(move.task if name == move.source else name for name in tasks[sink].after)
        tasks[sink : sink + 1] = [converter, replace(tasks[sink], after=after)]
    target = {"kind": "cuda", "arch": "sm_87", "max_threads_per_block": 1024, "thread_warp_size": 32}
    engines = (*here.engines, replace(here.engines[0], id="gpu", kind="gpu", units=1, target=target))
    lanes = (*plan.engines, replace(plan.engines[0], id="gpu", kind="gpu", lanes=1))
    return replace(
        setting,
        plan=replace(plan, tasks=tuple(tasks), transitions=moves, engines=lanes),
        platform=replace(here, engines=engines),
    )


def test_conversions_planned_on_a_gpu_convert(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def emulated(program: Program) -> Path:
        return on_the_processor(program, tmp_path)

    monkeypatch.setattr(gpu_stages, "store", emulated)
    settings, references = write_run(with_conversions(setting_in("fp32", tmp_path)), tmp_path)
    stages: dict[str, Any] = json.loads(settings.read_text())["stages"]
    assert [one["on_host"] for one in stages["backbone>head"]["outputs"]] == [True]
    given = {**os.environ, "LD_LIBRARY_PATH": str(driver), "STANDIN_LOG": str(tmp_path / "driver.log")}
    executor = find_executor()
    command = [str(executor), str(settings), "--selftest", str(references)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=given)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.count(": passed") == 9 and "voxelise>pfn: passed" in done.stdout
    command = [str(executor), str(settings), "-o", str(tmp_path / "results")]
    (tmp_path / "results").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=given)
    assert done.returncode == 0, done.stderr
    accounts = json.loads((tmp_path / "results" / "executed.json").read_text())["accounts"]
    assert sum(account["completed"] for account in accounts.values())
    assert not any(account["aborted"] for account in accounts.values())


def test_frames_of_a_sensor_are_converted_on_the_gpu() -> None:
    # what a stage in half precision takes by pixels arrives in fp32 by channels: the host copies it as it is
    wanted, arriving = TensorType((1, 3, 4, 6), "fp16", "NHWC"), TensorType((1, 3, 4, 6), "fp32", "")
    made = conversion(arriving, wanted, 512, {"in": "memory", "offset": 0}, 1)
    assert [launch["kernel"] for launch in made] == ["lay_fh"]
    assert made[0]["arguments"] == [
        *({"in": "memory", "offset": offset} for offset in (512, 0)),
        *({"value": size} for size in (3, 24, 1, 0)),
    ]
    assert gpu_stages._is_converted(arriving, wanted)
    assert not gpu_stages._is_converted(TensorType((1, 3, 4, 6), "uint8", ""), wanted)
    assert not gpu_stages._is_converted(replace(wanted, layout="NHWC"), wanted)


def test_a_stage_without_rivals_is_one_graph() -> None:
    first, second, other = task("a", "s"), task("b", "a"), task("c", "s")
    rivals = gpu_stages._has_rivals
    assert not rivals(first, plan(first, sensors={"s": 10 * MS}))
    assert not any(rivals(one, plan(first, second, sensors={"s": 10 * MS})) for one in (first, second))
    assert all(rivals(one, plan(first, second, other, sensors={"s": 10 * MS})) for one in (first, second, other))
    assert not rivals(first, plan(first, second, sensors={"s": 10 * MS}, policy="fp"))
    assert rivals(first, plan(first, other, sensors={"s": 10 * MS}, policy="fp"))
    late = replace(second, deadline_ns=15 * MS)  # the next frame's first stage may be due before it
    assert rivals(late, plan(first, late, sensors={"s": 10 * MS}))
