"""Files read without the values of their weights: the same network, in less memory."""

from __future__ import annotations

import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")

from onnx_files import FILES, Builder

from socsched.errors import InputError
from socsched.models.onnx_file import skim
from socsched.models.onnx_import import _load, _stamp, model


@pytest.mark.parametrize("name", FILES)
def test_the_network_is_the_same(name: str, tmp_path: Path) -> None:
    path = FILES[name](tmp_path / f"{name}.onnx")
    whole, shapes = (_load(path, _stamp(path), (), values) for values in (True, False))
    assert shapes.network == whole.network
    assert (shapes.inputs, shapes.outputs) == (whole.inputs, whole.outputs)
    assert shapes.weights == {}


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_large_weights_are_left_out_and_small_ones_kept(kind: type, tmp_path: Path) -> None:
    path = big(tmp_path / "big.onnx", kind)
    kept, left_out, size = skim(path, 2**31)
    assert size == path.stat().st_size
    assert sum(left_out.values()) + len(kept) <= size + 10
    assert len(left_out) == 2
    assert len(kept) < 9000


def big(path: Path, kind: type = np.float32) -> Path:
    """Write a network with two weights of 16 million elements, and a bias."""
    b = Builder(1)
    x = "image"
    for _ in range(2):
        weight = b.constant(np.zeros((512, 512, 4, 4), kind))
        x = b.op("Conv", x, weight, b.constant(np.ones(512, kind)), pads=[1, 1, 2, 2])
    return b.save(path, [1, 512, 8, 8], [x])


def test_memory_does_not_grow_with_weights(tmp_path: Path) -> None:
    plain = big(tmp_path / "big.onnx")
    packed = tmp_path / "big.onnx.xz"
    packed.write_bytes(lzma.compress(plain.read_bytes(), preset=0))
    for path in (plain, packed):
        tracemalloc.start()
        found = model({"file": str(path)})
        assert found.network is not None and len(found.network().layers) == 2
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * 2**20


def test_weights_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    found = model({"file": str(big(tmp_path / "big.onnx"))})
    assert found.network is not None and found.weights is not None
    assert {name: array.shape for name, array in found.weights().items()} == dict(found.network().params)
    packed = tmp_path / "big.onnx.xz"
    packed.write_bytes(lzma.compress((tmp_path / "big.onnx").read_bytes(), preset=0))
    with pytest.raises(InputError, match="weights are not read from compressed files"):
        model({"file": str(packed)}).weights()  # type: ignore[misc]


def test_a_model_of_many_fields_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "many.onnx"
    path.write_bytes(FILES["trunk"](path).read_bytes() + b"\x08\x09" * 600_000)
    with pytest.raises(ValueError, match="more than 500000 fields"):
        skim(path, 2**31)
    assert model({"file": str(path)}).network is not None
    packed = tmp_path / "many.onnx.xz"
    packed.write_bytes(lzma.compress(path.read_bytes()))
    with pytest.raises(InputError, match="more than 500000 fields"):
        model({"file": str(packed)})


def test_damage_at_any_place_reads_as_in_a_whole_file(tmp_path: Path) -> None:
    whole = big(tmp_path / "big.onnx").read_bytes()
    path = tmp_path / "cut.onnx"
    for end in (0, 1, 5, 20, 40, 100, 5000, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:end])
        said = []
        for values in (True, False):
            try:
                said.append(str(_load(path, _stamp(path), (), values).network))
            except InputError as error:
                said.append(f"error: {error}")
        assert said[0] == said[1]
        assert said[0].startswith("error") or not end
