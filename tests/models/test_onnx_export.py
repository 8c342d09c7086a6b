"""Networks from files through our layers and out again: the oracle sees no difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx_files import FILES  # noqa: E402

from socsched.compiler.toolchains.onnx_model import to_onnx  # noqa: E402
from socsched.graph.expand import layer_types  # noqa: E402
from socsched.models.onnx_import import load  # noqa: E402


@pytest.mark.parametrize("name", FILES)
def test_every_layer_kind_has_its_operator(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOCSCHED_CACHE", str(tmp_path / "cache"))
    path = FILES[name](tmp_path / f"{name}.onnx")
    network, weights = load(path)
    made = to_onnx(network, weights, layer_types(network))
    onnx.checker.check_model(made, full_check=True)
    source = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (image,) = source.get_inputs()
    shape = [size if isinstance(size, int) else 1 for size in image.shape]
    array = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    expected = source.run(None, {image.name: array})
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {next(iter(network.inputs)): array})
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert np.abs(ours - theirs).max() <= 1e-4 * max(np.abs(theirs).max(), 1e-3)
