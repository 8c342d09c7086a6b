"""Networks against ONNX Runtime through `verify`: equal ones, ones with a wrong layer, bundles, and what is missing."""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from socsched.api.deployment import compile_plan
from socsched.api.options import CompileOptions
from socsched.api.planning import plan
from socsched.api.verification import verify
from socsched.cli.root import run
from socsched.descriptor.pipeline_file import onnx_pipeline
from socsched.errors import InputError, UsageError
from socsched.models import onnx_import
from socsched.models.onnx_operators import HANDLERS, Translation
from tests.models.onnx_files import Builder, resnet


def gated(path: Path) -> Path:
    """Return a network with a gate in the middle."""
    b = Builder(3)
    x = b.op("Relu", b.conv("image", 3, 16))
    x = b.op("Mul", x, b.op("Sigmoid", b.conv(x, 16, 16)))
    y = b.op("Relu", b.conv(x, 16, 16))
    return b.save(path, [1, 3, 16, 24], [b.conv(y, 16, 8, norm=False), b.conv(x, 16, 8, norm=False)])


def test_a_network_that_is_right(tmp_path: Path) -> None:
    found = verify(resnet(tmp_path / "net.onnx"))
    assert found.equal and found.first is None and [output.shape for output in found.outputs] == [(1, 10)]
    assert 0 < found.outputs[0].error < 1e-4
    assert found.ours_ns > 0 and found.theirs_ns > 0 and found.threads >= 1 and found.precision == "fp32"


def test_the_first_node_that_differs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(t: Translation, node: Any) -> None:
        t.emit(node, "tanh", [t.source(node.inputs[0])])

    monkeypatch.setitem(HANDLERS, "Sigmoid", wrong)
    onnx_import._outcome.cache_clear()
    said: list[str] = []
    found = verify(gated(tmp_path / "net.onnx"), note=said.append)
    onnx_import._outcome.cache_clear()
    assert not found.equal and all(not output.equal for output in found.outputs)
    assert found.first is not None and (found.first.op, found.first.node) == ("Sigmoid", "Sigmoid_5")
    assert found.first.error > found.first.tolerance and found.checked > 3 and said


def test_what_onnx_runtime_computes_otherwise_each_time_is_no_difference(tmp_path: Path) -> None:
    """A sine of millions turns with the last place of its argument; what comes before is compared as ever."""
    b = Builder(4)
    x = b.op("Mul", b.conv("image", 3, 16), b.constant(np.float32(3e6)))
    found = verify(b.save(tmp_path / "net.onnx", [1, 3, 16, 24], [b.op("Sin", x)]))
    (output,) = found.outputs
    assert found.equal and not output.near and output.spread > 0.1
    assert found.first is None and found.checked > 1


def test_own_inputs(tmp_path: Path) -> None:
    network = gated(tmp_path / "net.onnx")
    image = np.random.default_rng(1).standard_normal((1, 3, 16, 24)).astype(np.float32)
    np.savez(tmp_path / "in.npz", image=image)
    np.savez(tmp_path / "other.npz", picture=image)
    assert verify(network, inputs=tmp_path / "in.npz").equal
    with pytest.raises(InputError, match="no array has the name of an input"):
        verify(network, inputs=tmp_path / "other.npz")
    with pytest.raises(UsageError, match=r"expected an \.npz"):
        verify(network, inputs=network)


def test_a_bundle(tmp_path: Path) -> None:
    network, bundle = gated(tmp_path / "net.onnx"), tmp_path / "bundle"
    pipeline = onnx_pipeline(network)
    compile_plan(plan(pipeline, "host", runtimes="tvm"), pipeline, bundle, CompileOptions())
    found = verify(network, bundle)
    assert found.equal and len(found.outputs) == 2 and found.place == str(bundle) and found.ours_ns > 0
    with pytest.raises(UsageError, match="no stage of the bundle is the network"):
        verify(resnet(tmp_path / "other.onnx"), bundle)
    code = next(bundle.glob("network/*/constants.bin"))
    code.write_bytes(code.read_bytes() + b"more")
    with pytest.raises(InputError, match=r"constants\.bin"):
        verify(network, bundle)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    network = gated(tmp_path / "net.onnx")
    assert run(["verify", str(network)]) == 0
    assert "equal to ONNX Runtime" in capsys.readouterr().out
    assert run(["verify", str(network), "--json", "--precision", "fp32"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is True
    assert run(["verify", str(tmp_path / "absent.onnx")]) == 2
    assert run(["verify", str(network), "-p", str(tmp_path)]) == 2
    real = builtins.__import__

    def absent(name: str, *args: Any, **more: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name, name=name)
        return real(name, *args, **more)

    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.setattr(builtins, "__import__", absent)
    assert run(["verify", str(network)]) == 3
    assert "to/socsched[verify]" in capsys.readouterr().err


def test_frames_below_a_bound_are_filled_up_and_outputs_cut(tmp_path: Path) -> None:
    b = Builder(4)
    network = b.save(tmp_path / "net.onnx", ["N", 3, 16, "W"], [b.op("Relu", b.conv("image", 3, 8))])
    image = np.random.default_rng(1).standard_normal((3, 3, 16, 24)).astype(np.float32)
    np.savez(tmp_path / "in.npz", image=image)
    found = verify(network, inputs=tmp_path / "in.npz", dims=("N=1..4", "W=24"))
    assert found.equal and [output.shape for output in found.outputs] == [(3, 8, 16, 24)]
    np.savez(tmp_path / "more.npz", image=np.zeros((5, 3, 16, 24), np.float32))
    with pytest.raises(InputError, match=r"\[5, 3, 16, 24\], expected float32 \[4, 3, 16, 24\]"):
        verify(network, inputs=tmp_path / "more.npz", dims=("N=1..4", "W=24"))


def test_bytes_and_truth_values_come_in_as_they_are(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    b = Builder(5)
    x = b.op("Mul", b.op("Cast", "pixels", to=1), b.op("Cast", "seen", to=1))
    out = b.op("CumSum", x, b.constant(np.array(1)))
    inputs = [
        helper.make_tensor_value_info("pixels", TensorProto.UINT8, [2, 6]),
        helper.make_tensor_value_info("seen", TensorProto.BOOL, [2, 6]),
    ]
    outputs = [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]
    graph = helper.make_graph(b.nodes, "net", inputs, outputs, b.weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "net.onnx")
    assert verify(tmp_path / "net.onnx").equal


def test_bytes_as_a_camera_gives_them(tmp_path: Path) -> None:
    """Rows first: as many as a block of channels has, which they are not."""
    import onnx

    b = Builder()
    x = b.op("Sub", b.op("Cast", "image", to=1), b.constant(np.full(3, 120, np.float32)))
    y = b.op("Relu", b.conv(b.op("Transpose", x, perm=[0, 3, 1, 2]), 3, 16, norm=False))
    model = onnx.load(b.save(tmp_path / "net.onnx", [1, 32, 24, 3], [y]))
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    onnx.save(model, tmp_path / "net.onnx")
    assert verify(tmp_path / "net.onnx").equal
