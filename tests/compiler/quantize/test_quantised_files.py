"""Random networks that compute in integers: what the plan says, what is built, and what ONNX Runtime computes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from socsched.api.planning import plan  # noqa: E402
from socsched.api.verification import EXACT, _Reference  # noqa: E402
from socsched.compiler.builder import compile_stage, shipped_scales  # noqa: E402
from socsched.compiler.layouts import convert  # noqa: E402
from socsched.compiler.loading.stages import load  # noqa: E402
from socsched.compiler.toolchains.hand_over import hand_over, toolchain_of  # noqa: E402
from socsched.descriptor.catalog import get_pipeline, get_platform  # noqa: E402
from socsched.errors import CompileError, UsageError  # noqa: E402
from socsched.graph.operators import TensorType  # noqa: E402
from socsched.lint.check import ZERO_POINTS, lint_file  # noqa: E402
from socsched.models.precision import settled  # noqa: E402
from socsched.models.registry import get_model  # noqa: E402
from socsched.models.samples import draw  # noqa: E402
from tests.models.quantised_files import Style, dynamic, quantised  # noqa: E402


def style_of(seed: int) -> Style:
    random = np.random.default_rng(seed)
    signed, asymmetric, by_channel = (bool(random.integers(2)) for _ in range(3))
    return Style(("qdq", "qoperator")[seed % 2], signed, asymmetric, by_channel, bool(random.random() < 0.2))


def ours(path: Path, precision: str) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return the output here and in ONNX Runtime for drawn inputs, and remarks of the compiler."""
    stage = settled(get_pipeline(str(path))).stages[0]
    assert stage.precisions == (precision,)
    artifact = compile_stage(stage, get_platform("host").engines[0], precision, threads=1)
    assert artifact.precision == precision
    x = draw(get_model("onnx", stage.params), np.random.default_rng(0))["x"]
    compiled = load(artifact)
    given = convert(x, TensorType(x.shape, "fp32", "NCHW"), compiled.inputs[0]) if x.ndim == 4 else x
    (result,) = compiled(given)
    kind = compiled.outputs[0]
    if len(kind.shape) == 4:
        result = convert(result, kind, TensorType(kind.shape, "fp32", "NCHW"))
    (wanted,) = _Reference(path, ((), ())).session(EXACT).run(None, {"x": x})
    return np.asarray(result), wanted, artifact.notes


def assert_same_integers(path: Path, seed: int) -> None:
    quantised(path, seed, style_of(seed))
    result, wanted, _ = ours(path, "int8")
    model = onnx.load(str(path))
    name = model.graph.node[-1].input[1]
    step = float(onnx.numpy_helper.to_array(next(w for w in model.graph.initializer if w.name == name)))
    away = np.abs(result - wanted) / step
    layers = sum(node.op_type not in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node)
    assert away.max() <= min(layers, 3) + 0.01 and away.mean() <= 0.5, style_of(seed)  # a tie or two in each layer


@pytest.mark.parametrize("seed", range(4))
def test_integers_of_a_file(tmp_path: Path, seed: int) -> None:
    assert_same_integers(tmp_path / "net.onnx", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 100))
def test_integers_of_many_files(tmp_path: Path, seed: int) -> None:
    assert_same_integers(tmp_path / "net.onnx", seed)


@pytest.mark.parametrize("seed", range(2))
def test_integers_made_at_run_time(tmp_path: Path, seed: int) -> None:
    dynamic(tmp_path / "net.onnx", seed)
    result, wanted, _ = ours(tmp_path / "net.onnx", "fp32")
    np.testing.assert_allclose(result, wanted, atol=1e-5)
    stated = settled(get_pipeline(str(tmp_path / "net.onnx"))).stages[0].stated
    assert stated == "its file rounds to integers at run time, which is exact in fp32 only"


def test_lint_says_the_same_of_zero_points(tmp_path: Path) -> None:
    for seed in range(6):
        path = tmp_path / f"net{seed}.onnx"
        asymmetric = quantised(path, seed, style_of(seed))
        rules = [found.rule for found in lint_file(str(path), "jetson-agx-orin-64gb", engines=["dla0"])]
        assert (ZERO_POINTS in rules) == asymmetric


PLACES = [
    ("host", "cpu"),
    ("jetson-agx-orin-64gb", "cpu0"),
    ("jetson-agx-orin-64gb", "gpu"),
    ("jetson-agx-orin-64gb", "dla0"),
    ("qcs8550", "npu"),
]


@pytest.mark.parametrize(("board", "engine"), PLACES)
@pytest.mark.parametrize("seed", range(2))
def test_the_plan_says_what_is_built(tmp_path: Path, board: str, engine: str, seed: int) -> None:
    assert_plan_is_built(tmp_path / "net.onnx", board, engine, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("board", "engine"), PLACES)
@pytest.mark.parametrize("seed", range(2, 20))
def test_plans_say_what_is_built(tmp_path: Path, board: str, engine: str, seed: int) -> None:
    assert_plan_is_built(tmp_path / "net.onnx", board, engine, seed)


def assert_plan_is_built(path: Path, board: str, engine: str, seed: int) -> None:
    """A stage pinned to an engine is planned and built in int8, or refused by both."""
    asymmetric = quantised(path, seed, style_of(seed))
    pipeline, platform = settled(get_pipeline(str(path))), get_platform(board)
    place = platform.engine(engine)
    made = plan(str(path), board, pins=f"network={engine}", explain=False, refine=False, cuts=False)
    stage = pipeline.stages[0]
    scales = shipped_scales(get_model("onnx", stage.params))
    if made.tasks:
        task = next(task for task in made.tasks if task.name == "network")
        assert task.precision == "int8" and "its file states int8" in task.why
        assert place.zero_points or not asymmetric
        if toolchain_of(place, task.runtime):
            built = hand_over(stage, place, "int8", path.parent / "out", scales=scales, runtime=task.runtime)
            assert built["precision"] == "int8"
            return
        artifact = compile_stage(stage, place, "int8", threads=1)
        left = re.search(r"(\d+) of \d+ operators in fp32", task.why)
        assert artifact.precision == "int8"
        assert bool(left) == any("computed in fp32" in note for note in artifact.notes)
        return
    assert made.verdict == "infeasible"
    with pytest.raises((CompileError, UsageError)):
        if toolchain_of(place, ""):
            hand_over(stage, place, "int8", path.parent / "out", scales=scales)
        else:
            compile_stage(stage, place, "int8", threads=1)
