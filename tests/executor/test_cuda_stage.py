"""CUDA stages on the native executor, with a stand-in for the driver: what it is asked for, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import KITTI, Recorded

from socsched.compiler.artifact import Artifact
from socsched.compiler.builder import compile_stage
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.executor import gpu_stages
from socsched.executor.programs import build_program
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime.options import Options
from socsched.trace.trace import Trace
from tests.executor.gpu_standin import build_driver, emulated_program, kernels_of, noted
from tests.runtime.run_plans import executed, roomy

pytestmark = [pytest.mark.needs("nvcc"), pytest.mark.usefixtures("executor")]
NATIVE = Options(executor="native", hang_ns=600 * 10**9)  # emulated kernels take seconds
ARCH = "sm_87"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("gpu"))


@pytest.fixture
def log(driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the stand-in notes its calls."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "driver.log"))
    return tmp_path / "driver.log"


@pytest.fixture(scope="module")
def planned(detector: Recorded) -> tuple[Plan, Pipeline]:
    pipe = detector.pipeline()
    made = make_plan(pipe, roomy(), work=stage_work)
    patient = tuple(replace(task, queue=1000) for task in made.tasks)  # frames wait as long as a loaded machine takes
    return replace(made, tasks=patient), pipe


def moved(made: Plan, names: Sequence[str]) -> tuple[Plan, Platform]:
    """Return the plan with stages on a GPU, and a platform that has it."""
    here = roomy()
    engine = replace(here.engines[0], id="gpu", kind="gpu", units=1, target={"kind": "cuda", "arch": ARCH})
    engine = replace(engine, operators=replace(engine.operators, host_code=False))
    slot = replace(made.engines[0], id="gpu", kind="gpu", lanes=1)
    tasks = (replace(t, engine="gpu", lanes=(0,)) if t.name in names else t for t in made.tasks)
    return (
        replace(made, tasks=tuple(tasks), engines=(*made.engines, slot)),
        replace(here, engines=(*here.engines, engine)),
    )


def run(made: Plan, platform: Platform, pipe: Pipeline, given: Recorded, **changes: Any) -> Trace:
    scans = sorted(given.scans[:3], key=lambda scan: scan.stat().st_size)  # memory of a frame serves a larger one too
    return executed(made, pipe, platform=platform, scans=scans, weights=given.weights, frames=3, **changes)


def compute(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make programs whose kernels run on the processor."""

    def emulated(artifacts: Sequence[Artifact], arch: str, room: int = 0, arriving: Any = None) -> Path:
        assert not arriving  # scans
        return emulated_program(artifacts, arch, room, folder)

    monkeypatch.setattr(gpu_stages, "stored_program", emulated)


def boxes(trace: Trace) -> list[Any]:
    return [trace.details[frame]["detections"] for frame in range(3)]


# The full network's convolutions take the emulator minutes a frame: those of the smallest one have the same rules.
ON_GPU = [
    *(("tiny", names) for names in [("scatter",), ("pfn", "scatter"), ("scatter", "head"), ("scatter", "backbone")]),
    *(("kitti", names) for names in [("scatter",), ("pfn", "scatter")]),
]


@pytest.mark.parametrize(
    ("detector", "names"),
    [
        pytest.param(*case, marks=[KITTI] * (case[0] == "kitti") + [pytest.mark.slow] * (len(case[1]) > 1))
        for case in ON_GPU
    ],
    indirect=["detector"],
)
def test_networks_on_a_gpu_find_what_those_on_the_cpu_find(
    names: tuple[str, ...],
    planned: tuple[Plan, Pipeline],
    detector: Recorded,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, pipe = planned
    theirs = boxes(run(made, roomy(), pipe, detector))
    compute(monkeypatch, tmp_path)
    mine = boxes(run(*moved(made, names), pipe, detector))
    assert [len(frame) for frame in mine] == [len(frame) for frame in theirs] and theirs[0]
    for one, other in zip(mine, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a["label"] == b["label"]
            assert np.allclose(a["box"], b["box"], atol=1e-3) and abs(a["score"] - b["score"]) < 1e-4
    calls = noted(log)
    assert any(call.startswith("copy across") for call in calls) == ("pfn" in names)
    one_frame = names == ("scatter", "backbone")  # whose data are all of the frame
    assert calls.count("cuGraphLaunch") >= 3 * (1 if one_frame else len(names))
    assert one_frame == any(call == "fill 1 with 1" for call in calls)


def compiled_for(arch: str, precision: str, names: Sequence[str], network: str = "pointpillars-s") -> list[Artifact]:
    """Return stages of a detector for a GPU."""
    pipe = get_pipeline(network)
    known = next(one for one in get_platform("jetson-agx-orin-64gb").engines if one.kind == "gpu")
    target = {**known.target, "arch": arch}
    engine = replace(known, id="gpu", target=target, operators=OperatorRules(), runtimes=(), division=None)
    return [compile_stage(pipe.stage(name), engine, precision) for name in names]


CASES = [("sm_90", "fp16", ("voxelise", "pfn", "scatter", "backbone", "head", "decode")), ("sm_87", "int8", ("head",))]


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "precision", "names"), CASES)
def test_launch_lists_fit_the_kernels_that_were_compiled(arch: str, precision: str, names: tuple[str, ...]) -> None:
    """Every launch has the operands its kernel declares, and only the memory that the program has."""
    network = "pointpillars" if arch == "sm_90" else "pointpillars-s"  # whose products have measured tiles
    artifacts = compiled_for(arch, precision, names, network)
    made = build_program(artifacts, arch, 20000)
    sources = [kernels_of((artifact.folder / "stage.cu").read_text()) for artifact in artifacts]
    sizes = {space: made.document[space] for space in ("memory", "constants", "results")}
    assert len(made.constants) == sizes["constants"] > 0
    for launch in made.document["launches"]:
        kinds = ["value" if "value" in argument else "pointer" for argument in launch["arguments"]]
        declared = sources[launch["code"]].get(launch["kernel"])  # functions declare theirs by macros
        assert kinds == declared or (declared is None and artifacts[launch["code"]].stage in ("voxelise", "decode"))
        for argument in launch["arguments"]:
            assert "value" in argument or argument["offset"] < sizes[argument["in"]]


def test_stages_that_do_not_fit_together_are_refused() -> None:
    head = compiled_for(ARCH, "fp32", ["head"])
    with pytest.raises(UsageError, match="their largest number is needed"):
        build_program(compiled_for(ARCH, "fp32", ["scatter"]), ARCH)
    without = replace(head[0], files=("stage.cubin",), notes=("runs with TVM's runtime only: a loop",))
    with pytest.raises(UsageError, match="TVM's runtime only: a loop"):
        build_program([without], ARCH)
