"""Operators that no layer computes: read, refused or taken alike by rules and hand-overs; a sample of node tests."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_files import Builder  # noqa: E402

from socsched.compiler.builder import require_layers  # noqa: E402
from socsched.compiler.toolchains.hand_over import has_toolchain, prepare  # noqa: E402
from socsched.cost.model import offered  # noqa: E402
from socsched.descriptor.catalog import get_platform  # noqa: E402
from socsched.descriptor.pipeline import Stage  # noqa: E402
from socsched.descriptor.platform import OWN  # noqa: E402
from socsched.errors import OpenShape, SocschedError, UsageError  # noqa: E402
from socsched.graph.rules import check_operators  # noqa: E402
from socsched.models.onnx_import import model  # noqa: E402
from socsched.models.work import stage_work  # noqa: E402
from tools.verify.onnx_nodes import cases, judge  # noqa: E402

BOARDS = ("jetson-agx-orin-64gb", "qcs8550", "rk3588")
SHAPE = [1, 4, 8, 8]


def random_network(seed: int, path: Path) -> Path:
    """Write a network of a few operators, with and without layers, that keep the shape of an image."""
    random, b = Random(seed), Builder(seed)
    values = ["image"]
    for _ in range(random.randint(2, 6)):
        x, y = random.choice(values), random.choice(values)
        values.append(
            random.choice(
                [
                    lambda x, y: b.op("Relu", x),
                    lambda x, y: b.op("Add", x, y),
                    lambda x, y: b.conv(x, 4, 4),
                    lambda x, y: b.op("Where", b.op("Greater", x, y), x, b.constant(np.zeros((), np.float32))),
                    lambda x, y: b.op("Hardmax", x),
                    lambda x, y: b.op("CumSum", x, b.constant(np.array(2))),
                    lambda x, y: b.op("Selu", x),
                    lambda x, y: b.op("Mul", x, b.op("Cast", b.op("Not", b.op("IsNaN", y)), to=1)),
                    lambda x, y: b.op("MatMul", b.constant(b.normal(8, 8)), x),
                    lambda x, y: b.op("Pad", x, b.constant(np.array([0, 0, 0, 0, 0, 0, 0, 0])), mode="reflect"),
                ]
            )(x, y)
        )
    outputs = [values[-1]] if values[-1] != "image" else [b.op("Relu", "image")]
    if random.random() < 0.3:
        outputs.append(b.op("NonZero", values[-1]))
    return b.save(path, SHAPE, outputs)


@pytest.mark.parametrize("seed", range(8))
def test_rules_and_hand_overs_agree_on_random_networks(tmp_path: Path, seed: int) -> None:
    """What `lint` and `plan` accept is what `compile` writes, and what they refuse is refused there."""
    stage = Stage("net", "net", model="onnx", params={"file": str(random_network(seed, tmp_path / "net.onnx"))})
    network = model(stage.params).network
    assert network is not None
    for board in BOARDS:
        for engine in get_platform(board).engines:
            precision = next((p for p in ("fp16", "fp32") if p in engine.precisions), "")
            if not precision or engine.target.get("kind") == "simulated":
                continue
            work = stage_work(stage, precision)
            refused, names = check_operators(work, engine), [runtime.name for runtime in offered(engine, work)]
            where = f"{board} {engine.id}: {refused}"
            kept = any(layer.op == "onnx" for layer in network().layers)
            if refused and has_toolchain(engine):
                with pytest.raises(UsageError):
                    prepare(stage, engine, precision)
            for name in () if refused else names:
                if has_toolchain(engine, name):
                    assert prepare(stage, engine, precision, runtime=name).onnx.graph.node, where
                else:
                    assert not kept, where
                    require_layers(network(), engine)
            if kept and (OWN in names or not engine.runtimes) and not has_toolchain(engine):
                assert refused, where
                with pytest.raises(UsageError, match="cannot be compiled for"):
                    require_layers(network(), engine)


def test_a_sample_of_the_node_tests_passes() -> None:
    """All of them: python -m tools.verify.onnx_nodes."""
    chosen = [case for number, case in enumerate(cases("test_[a-g]*")) if number % 40 == 7]
    failures = [judge(*case[:5], own=False) for case in chosen]
    assert len(chosen) > 8 and sum(not one.failure for one in failures) >= 0.75 * len(chosen), failures


def test_sizes_by_name_are_planned_at_their_bound(tmp_path: Path) -> None:
    b = Builder()
    file = str(b.save(tmp_path / "open.onnx", ["N", 3, "H", 16], [b.conv("image", 3, 8)]))
    (port,) = model({"file": file, "dims": {"N": "1..4", "H": 8}}).inputs
    assert port.type.shape == (4, 3, 8, 16)
    with pytest.raises(OpenShape):
        model({"file": file, "dims": {"N": 4}})
    for wrong in ({"Q": 4}, {"N": "4..1"}, {"N": "many"}, 7):
        with pytest.raises(SocschedError):
            model({"file": file, "dims": wrong})
