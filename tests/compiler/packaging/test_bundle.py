"""Bundles: the output of `socsched compile` needs only TVM's runtime and computes the same results as a run."""

from __future__ import annotations

import ast
import json
import os
import platform as machine
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from chains import chain

from socsched.cli.root import run
from socsched.compiler.builder import compile_stage
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.packaging.bundle import sources
from socsched.compiler.packaging.deploy import BundleRequest, compile_bundle
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.quantize.scales import FILE, Scales, read_scales
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline, Sensor, Stage
from socsched.descriptor.platform import Engine, Platform
from socsched.errors import EXIT_MACHINE, EXIT_USAGE, MachineError, UsageError
from socsched.graph.operators import TensorType
from socsched.graph.partition import Part
from socsched.models.pointpillars.network import pfn_network
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights
from tests.onnx_sessions import exact_session

Make = Callable[..., Engine]

ON_A_BOARD = """
import runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {'pydantic', 'yaml', 'click', 'rich', 'onnx', 'matplotlib', 'PIL', 'perfetto'}:
            raise ImportError(f'{name} is not on the board')
sys.meta_path.insert(0, Absent())
sys.argv = ['start.sh', *sys.argv[1:]]
try:
    runpy.run_module('socsched.compiler.packaging.bundle_runner', run_name='__main__')
finally:
    libraries = {line.split('/')[-1].strip() for line in open('/proc/self/maps') if 'libtvm' in line}
    import socsched
    print(sorted(libraries), socsched.__file__, 'tvm.relax' in sys.modules, file=sys.stderr)
"""


@pytest.fixture
def pipeline() -> Pipeline:
    """Return PointPillars' stages up to the canvas, and one that is known by its time only."""
    stages = (
        Stage("voxelise", "voxelise", "pointpillars.voxelise", after=("lidar",)),
        Stage("pfn", "pfn", "pointpillars.pfn", after=("voxelise",)),
        Stage("scatter", "scatter", "pointpillars.scatter", after=("pfn",)),
        Stage("plan", "plan", None, after=("scatter",)),
    )
    return Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())


@pytest.fixture
def board(make_engine: Make) -> Platform:
    """Return a platform of this machine's processor."""
    host = get_platform("host")
    return Platform("here", "here", "", (make_engine(),), host.dram, (), {})


def scan(path: Path) -> Path:
    points = np.random.default_rng(1).uniform((1, -20, -2, 0), (60, 20, 1, 1), (2000, 4)).astype(np.float32)
    path.write_bytes(points.tobytes())
    return path


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle as its start script does, with only what a board has, in a process that reports what it loaded."""
    given = {**os.environ, "TVM_USE_RUNTIME_LIB": "1", "PYTHONPATH": str(folder / "lib"), **environment}
    command = [sys.executable, "-c", ON_A_BOARD, str(folder), *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True, cwd=folder)


def ordinary(points: np.ndarray[Any, Any], weights: Mapping[str, Any], make_engine: Make) -> np.ndarray[Any, Any]:
    voxelise = get_model("pointpillars.voxelise")
    assert voxelise.function is not None
    given = dict(zip((port.name for port in voxelise.outputs), voxelise.function(points), strict=True))
    stages = [Stage(n, n, f"pointpillars.{n}") for n in ("pfn", "scatter")]
    artifacts = [compile_stage(stage, make_engine(), weights=weights) for stage in stages]
    return chain(artifacts, given)["canvas"]


def test_it_runs_without_the_compiler(pipeline: Pipeline, board: Platform, make_engine: Make, tmp_path: Path) -> None:
    weights = draw_weights(pfn_network(), 7)
    built = tmp_path / "built"
    manifest = compile_bundle(pipeline, board, BundleRequest(), built, weights)
    folder = tmp_path / "copied to the board"  # nothing points back
    shutil.move(built, folder)
    file = scan(tmp_path / "frame.bin")
    done = start(folder, "--input", str(file), "-o", str(tmp_path / "out.npz"), "--json")
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.strip().splitlines()[-1]
    assert "libtvm_runtime.so" in loaded and "libtvm_compiler.so" not in loaded and loaded.endswith("False")
    assert str(folder / "lib" / "socsched") in loaded
    report = json.loads(done.stdout)
    assert report["stages"] == ["voxelise", "pfn", "scatter"] and report["timed"] == ["plan"]
    assert set(report["frames"][0]["times_ns"]) == {"voxelise", "pfn", "scatter"}
    found = np.load(tmp_path / "out.npz")
    points = np.frombuffer(file.read_bytes(), np.float32).reshape(-1, 4)
    expected = ordinary(points, weights, make_engine)
    assert found.files == ["scatter.canvas"]
    assert np.array_equal(found["scatter.canvas"], expected) and np.count_nonzero(expected) > 1000
    assert manifest["weights"]["file"] == "weights.npz"
    assert np.array_equal(np.load(folder / "weights.npz")["pfn.weight"], weights["pfn.weight"])


@pytest.fixture
def site_without_compiler(tmp_path: Path) -> Path:
    """Return a folder of packages as on a board: numpy and TVM without its compiler's library."""
    packages, site = Path(tvm_ffi.__file__).parents[1], tmp_path / "site"
    site.mkdir()
    needed = ("numpy", "numpy.libs", "tvm_ffi", "typing_extensions.py", "ml_dtypes", "psutil")
    for source in (*(packages / name for name in needed), *packages.glob("apache_tvm*.dist-info")):
        if source.exists():
            (site / source.name).symlink_to(source)
    ignored = shutil.ignore_patterns("*_compiler.so", "src", "include", "3rdparty", "__pycache__")
    shutil.copytree(packages / "tvm", site / "tvm", ignore=ignored)
    return site


def test_it_runs_where_there_is_no_compiler(
    pipeline: Pipeline, board: Platform, site_without_compiler: Path, tmp_path: Path
) -> None:
    """Not only is the compiler's library not loaded: it is not there."""
    folder = tmp_path / "b"
    compile_bundle(pipeline, board, BundleRequest(), folder)
    path = f"{folder / 'lib'}:{site_without_compiler}"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "TVM_USE_RUNTIME_LIB": "1"}
    command = [sys.executable, "-S", "-c", ON_A_BOARD, str(folder), "--input", str(scan(tmp_path / "frame.bin"))]
    done = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["frames"][0]["times_ns"]) == ["voxelise", "pfn", "scatter"]
    assert not list(site_without_compiler.rglob("libtvm_compiler*")) and "libtvm_compiler" not in done.stderr


@pytest.mark.needs("OpenCL")
def test_a_mobile_gpu_s_stages_run_too(pipeline: Pipeline, board: Platform, make_engine: Make, tmp_path: Path) -> None:
    """One stage planned on an OpenCL device, the rest on the processor; the result is the processor's."""
    mali = make_engine({"kind": "opencl"}, ("fp32",), id="gpu")
    mobile = replace(board, engines=(*board.engines, mali))
    placement = {"pfn": ("gpu", "fp32"), "scatter": ("cpu", "fp32")}
    weights = draw_weights(pfn_network(), 7)
    manifest = compile_bundle(pipeline, mobile, BundleRequest(placement), tmp_path / "b", weights)
    assert [(a["stage"], a["target"]) for a in manifest["artifacts"]] == [("pfn", "opencl"), ("scatter", "llvm")]
    file, out = scan(tmp_path / "frame.bin"), tmp_path / "out.npz"
    done = start(tmp_path / "b", "--input", str(file), "-o", str(out))
    assert done.returncode == 0, done.stderr
    expected = ordinary(np.frombuffer(file.read_bytes(), np.float32).reshape(-1, 4), weights, make_engine)
    assert np.abs(np.load(out)["scatter.canvas"] - expected).max() <= 1e-4 * np.abs(expected).max()


def test_the_start_script(pipeline: Pipeline, board: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "my bundle"
    manifest = compile_bundle(pipeline, board, BundleRequest(), folder)
    assert manifest["weights"] == {"seed": 0} and not (folder / "weights.npz").exists()
    assert subprocess.run(["sh", "-n", str(folder / "start.sh")]).returncode == 0
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": ""}
    environment.pop("TVM_USE_RUNTIME_LIB", None)
    file = scan(tmp_path / "frame.bin")
    command = [str(folder / "start.sh"), "--input", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("frame.bin: voxelise ") and "scatter " in done.stdout
    ready = subprocess.run(command[:1], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert "3 stages are ready: voxelise, pfn, scatter" in ready.stdout


@pytest.mark.slow
def test_frames_from_arrays(pipeline: Pipeline, board: Platform, tmp_path: Path) -> None:
    compile_bundle(pipeline, board, BundleRequest(), tmp_path / "b")
    np.savez(tmp_path / "frame.npz", points=np.ones((5, 4), np.float32))
    out = tmp_path / "out.npz"
    done = start(tmp_path / "b", "--input", str(tmp_path / "frame.npz"), "-o", str(out), "--all")
    assert done.returncode == 0, done.stderr
    assert {"voxelise.voxels", "pfn.features", "scatter.canvas"} <= set(np.load(out).files)
    np.savez(tmp_path / "other.npz", image=np.ones((5, 4), np.float32))
    wrong = start(tmp_path / "b", "--input", str(tmp_path / "other.npz"))
    assert wrong.returncode == EXIT_USAGE and "no array 'points'" in wrong.stderr and "there are: image" in wrong.stderr


def test_damaged_and_foreign_files_are_reported(pipeline: Pipeline, board: Platform, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    manifest = compile_bundle(pipeline, board, BundleRequest(), folder)
    library = folder / manifest["artifacts"][0]["files"][0]
    whole = library.read_bytes()
    library.write_bytes(whole[:-10])
    damaged = start(folder)
    assert damaged.returncode == EXIT_USAGE and "its digest differs" in damaged.stderr
    library.write_bytes(whole)
    assert start(folder).returncode == 0
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace(f'"machine": "{machine.machine()}"', '"machine": "riscv64"'))
    stranger = start(folder)
    assert stranger.returncode == EXIT_MACHINE
    assert "stage 'pfn': no code in this bundle runs here: cpu (llvm code for riscv64" in stranger.stderr
    (folder / "manifest.json").write_text("{")
    assert "cannot be read" in start(folder).stderr


def test_only_what_a_board_has_is_imported() -> None:
    """The program's sources need only the standard library, numpy and TVM."""
    files = sources(
        ["socsched.compiler.packaging.bundle_runner", "socsched.models.camera", "socsched.models.centerpoint.decode"]
    )
    names = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"socsched", "numpy", "tvm", "tvm_ffi"}
    assert not any(file.name in ("environment.py", "builder.py", "fusion.py", "lower.py") for file in files)


def test_a_board_with_a_dla(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The head for Orin: code for the CPU, a hand-over for the DLA, and a program that names stages it cannot run."""
    folder = tmp_path / "orin"
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--stage", "head", "-o", str(folder)]
    assert run([*command, "--engine", "dla1", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    (handover,) = manifest["handovers"]
    assert (handover["engine"], handover["precision"], handover["folder"]) == ("dla1", "fp16", "head/dla1-fp16")
    assert "DLA_CORE:-1" in (folder / "head" / "dla1-fp16" / "build.sh").read_text()
    assert run([*command, "--engine", "cpu0", "-q"]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [(a["engine"], a["machine"]) for a in manifest["artifacts"]] == [("cpu0", "aarch64")]
    assert [s["name"] for s in manifest["stages"]][:2] == ["voxelise", "pfn"]


def test_scales_let_int8_through(board: Platform, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stage that accepts int8 best is built in fp16 for a DLA as long as its scales are unknown."""
    stages = (Stage("head", "head", "pointpillars.head", after=("lidar",), precisions=("int8", "fp16")),)
    demo = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())
    orin = get_platform("jetson-agx-orin-64gb")
    scales = {"head": Scales(dict.fromkeys(("neck", "cls", "reg", "dir"), Scale(0.1, True)))}
    with_scales = compile_bundle(demo, orin, BundleRequest(engine="dla0", scales=scales), tmp_path / "int8")
    without = compile_bundle(demo, orin, BundleRequest(engine="dla0"), tmp_path / "fp16")
    assert [m["handovers"][0]["precision"] for m in (with_scales, without)] == ["int8", "fp16"]
    assert (tmp_path / "int8" / "head" / "dla0-int8" / "calibration.cache").is_file()
    (tmp_path / "scales.json").write_text("[]")
    command = ["compile", "pointpillars", "-p", "host", "--scales", str(tmp_path / "scales.json")]
    assert run(command) == EXIT_USAGE
    assert "not a file of scales" in capsys.readouterr().err


def test_int8_stages_as_onnx_files(tmp_path: Path) -> None:
    """ONNX Runtime computes from the bundle's file what the bundle's code computes."""
    pytest.importorskip("onnxruntime")
    stages = (Stage("head", "head", "pointpillars-s.head", after=("lidar",), precisions=("int8",)),)
    demo = Pipeline("demo", "demo", (Sensor("lidar", "lidar", 10**8),), stages, ())
    board = get_platform("host")
    engine = board.engines[0]
    manifest = compile_bundle(demo, board, BundleRequest({"head": (engine.id, "int8")}, qdq=True), tmp_path / "out")
    (entry,) = manifest["artifacts"]
    assert entry["qdq"] == f"head/{engine.id}-int8/quantised.onnx" and entry["qdq"] in manifest["files"]
    session = exact_session(tmp_path / "out" / entry["qdq"])
    (given,) = session.get_inputs()
    artifact = compile_stage(stages[0], engine, "int8")
    step = np.float32(read_scales(artifact.folder / FILE).values[given.name].step)
    array = np.random.default_rng(0).integers(0, 100, given.shape).astype(np.float32) * step  # no halves to round
    compiled = load(artifact)
    plain = TensorType(array.shape, "fp32", "NCHW")
    ours = compiled(convert(array, plain, compiled.inputs[0]))
    for wanted, made, layout in zip(session.run(None, {given.name: array}), ours, compiled.outputs, strict=True):
        found = convert(made, layout, TensorType(wanted.shape, "fp32", "NCHW"))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="--qdq: no stage is compiled in int8"):
        compile_bundle(
            demo, get_platform("jetson-agx-orin-64gb"), BundleRequest(engine="dla0", qdq=True), tmp_path / "dla"
        )


def test_a_part_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--engine", "dla0", "-o", str(tmp_path)]
    part = ":blocks.0.3.relu"
    assert run([*command, "--stage", "backbone", "--part", part, "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    assert manifest["handovers"][0]["part"] == part
    assert manifest["handovers"][0]["folder"] == "backbone/dla0-fp16-_blocks.0.3.relu"
    assert run([*command, "--part", part]) == EXIT_USAGE
    assert "--part needs the name of its stage" in capsys.readouterr().err
    assert run([*command, "--stage", "backbone", "--part", "nose:"]) == EXIT_USAGE
    assert "has no layer 'nose'" in capsys.readouterr().err


def test_fallbacks_are_reported_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "out"
    command = ["compile", "pointpillars", "-p", "jetson-agx-orin-64gb", "--engine", "dla0", "-o", str(folder)]
    assert run(command) == EXIT_USAGE
    reported = capsys.readouterr().err
    assert "stage pfn would not run entirely on dla0" in reported.replace("'", "")
    assert (
        "stage scatter would not run entirely" in reported.replace("'", "")
        and "ONNX operators by DLA release" in reported
    )
    assert not folder.exists()


def test_a_plan_s_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan for this machine, compile the plan, run the bundle: engines and shares are the plan's."""
    plan, folder = tmp_path / "plan.json", tmp_path / "bundle"
    assert run(["plan", "pointpillars", "-p", "host", "-o", str(plan), "-q"]) in (0, 1)
    tasks = {t["name"]: t for t in json.loads(plan.read_text())["tasks"]}
    assert run(["compile", str(plan), "-o", str(folder), "-q"]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert json.loads((folder / "plan.json").read_text())["tasks"] == list(tasks.values())
    for artifact in manifest["artifacts"]:
        task = tasks[artifact["stage"]]
        assert (artifact["engine"], artifact["precision"]) == (task["engine"], task["precision"])
        assert artifact["threads"] == len(task["lanes"])
    done = start(folder, "--input", str(scan(tmp_path / "frame.bin")), "--json")
    assert done.returncode == 0, done.stderr
    assert "libtvm_compiler.so" not in done.stderr
    assert {"pfn", "scatter", "backbone", "head"} <= set(json.loads(done.stdout)["stages"])
    assert run(["compile", str(plan), "-p", "jetson-tx2", "-o", str(folder)]) == EXIT_USAGE
    assert "is a plan for host" in capsys.readouterr().err
    assert run(["compile", "pointpillars", "-o", str(folder)]) == EXIT_USAGE


def test_a_full_disk(pipeline: Pipeline, board: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    compile_stage(Stage("pfn", "pfn", "pointpillars.pfn"), board.engines[0])
    monkeypatch.setattr("socsched.compiler.packaging.deploy.shutil.copyfile", full)
    with pytest.raises(MachineError, match="No space left on device") as caught:
        compile_bundle(pipeline, board, BundleRequest(), tmp_path / "out")
    assert caught.value.exit_code == EXIT_MACHINE


def test_a_part_needs_a_stage(pipeline: Pipeline, board: Platform, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--part needs the name of its stage"):
        compile_bundle(pipeline, board, BundleRequest(part=Part((), ("x",))), tmp_path)
