"""Weights from files and from seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recorded import Recorded

from socsched.errors import InputError
from socsched.models.pointpillars.network import backbone_network, head_network
from socsched.models.registry import get_model
from socsched.models.weights import draw_weights, load_weights


def test_trained_weights_fit_the_networks(recorded: Recorded) -> None:
    networks = [get_model(f"{recorded.network}.{name}").network() for name in ("pfn", "backbone", "head")]
    weights = load_weights(recorded.weights, networks)
    assert {name for network in networks for name in network.params} == set(weights)
    assert sum(array.size for array in weights.values()) == recorded.parameters
    assert all(array.dtype == np.float32 for array in weights.values())


def test_every_fault_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, **{"cls.weight": np.zeros((18, 384)), "cls.bias": np.zeros(18), "reg.bias": np.zeros(41)})
    with pytest.raises(InputError) as caught:
        load_weights(path, [head_network()])
    text = str(caught.value)
    assert "cls.weight is [18, 384], expected [18, 384, 1, 1]" in text
    assert "reg.weight [42, 384, 1, 1] is missing" in text and "reg.bias is [41], expected [42]" in text
    assert "cls.bias" not in text


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut off"])
def test_unreadable_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable weights file"):
        load_weights(path)
    with pytest.raises(InputError, match="the weights file cannot be read"):
        load_weights(tmp_path / "absent.npz")
    np.save(tmp_path / "plain.npy", np.zeros(3))
    with pytest.raises(InputError, match="not a readable weights file"):
        load_weights(tmp_path / "plain.npy")


def test_numbers_must_be_finite(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{"good": np.zeros(2), "bad": np.array([1.0, np.nan])})
    with pytest.raises(InputError, match="not finite: bad"):
        load_weights(tmp_path / "w.npz")


def test_seeded_weights() -> None:
    network = head_network()
    first, again, other = (draw_weights(network, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in network.params)
    assert not np.array_equal(first["cls.weight"], other["cls.weight"])
    assert 1 / (1 + np.exp(-first["cls.bias"])) == pytest.approx(0.01)
    assert first["reg.weight"].std() == pytest.approx(np.sqrt(2 / 384), rel=0.05)
    deconv = draw_weights(backbone_network(), 0)["de.2.weight"]
    assert deconv.std() == pytest.approx(np.sqrt(2 / 256), rel=0.05)
