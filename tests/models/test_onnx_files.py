"""ONNX files from elsewhere: weights in files next to the model, constants that take no time, names, plain exports."""

from __future__ import annotations

import lzma
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_files import FILES, Builder

from socsched.errors import InputError
from socsched.models.onnx_file import skim
from socsched.models.onnx_graph import MOST_FOLDED
from socsched.models.onnx_import import _load, _stamp, load, model


def small(folder: Path, external: bool = True) -> Path:
    """Write a network whose weights lie in net.onnx.data."""
    b = Builder()
    b.save(folder / "net.onnx", [1, 3, 8, 8], [b.conv("image", 3, 64, norm=False)])
    if external:
        model = onnx.load(folder / "net.onnx")
        onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.onnx.data", size_threshold=0)
    return folder / "net.onnx"


def relocated(file: Path, location: str, **entries: str) -> Path:
    """Let the model look for its first tensor elsewhere."""
    model = onnx.load(file, load_external_data=False)
    tensor = model.graph.initializer[0]
    del tensor.external_data[:]
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    onnx.save(model, file)
    return file


def test_weights_next_to_the_model_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    inside = load(small(tmp_path / "inside", external=False))
    file = small(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for path in (file, Path("../net.onnx")):
        network, weights = load(path)
        assert network.layers == inside[0].layers
        assert all(np.array_equal(weights[name], inside[1][name]) for name in inside[1])


def test_weights_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(100_000))
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to("loop")
    (folder / "sub").symlink_to(tmp_path)
    for location in ("../secret", str(tmp_path / "secret"), "link", "loop", "sub/secret", "", "a\0b", ".", "a\\b"):
        with pytest.raises(InputError, match=r"net\.onnx: (tensor|its weights)"):
            load(relocated(small(folder), location))


@pytest.mark.parametrize(
    "entries", [{"offset": "-4"}, {"offset": "90000"}, {"length": "4"}, {"length": "-1"}, {"offset": "x"}]
)
def test_weights_that_are_not_there_are_refused(entries: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"net\.onnx: tensor 'c0'"):
        load(relocated(small(tmp_path), "net.onnx.data", **entries))


def test_the_missing_file_of_weights_is_named(tmp_path: Path) -> None:
    file = small(tmp_path)
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(InputError, match=r"net\.onnx\.data, cannot be read: No such file"):
        load(file)


def test_the_same_bytes_named_many_times_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx.data").write_bytes(bytes(2**20))
    tensors = []
    for index in range(200):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[2**18])
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="net.onnx.data")
        tensors.append(tensor)
    _save(tmp_path / "net.onnx", [helper.make_node("Relu", ["image"], ["y"])], tensors)
    with pytest.raises(InputError, match="named many times"):
        load(tmp_path / "net.onnx")


def _save(path: Path, nodes: list[Any], tensors: list[Any], shape: tuple[int, ...] = (1, 3, 8, 8)) -> Path:
    source = helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)
    sink = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    made = helper.make_graph(nodes, "g", [source], [sink], tensors)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def _tensor(name: str, values: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(values, dtype), name)


def _loop() -> list[Any]:
    values = [helper.make_tensor_value_info(n, t, []) for n, t in (("i", 7), ("c", 9), ("x", 1))]
    results = [helper.make_tensor_value_info(n, t, []) for n, t in (("c2", 9), ("x2", 1))]
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Identity", ["x"], ["x2"])], "b", values, results
    )
    return [helper.make_node("Loop", ["n", "true", "zero"], ["made"], body=body)]


GREEDY = {
    "ConstantOfShape": [helper.make_node("ConstantOfShape", ["huge"], ["made"])],
    "Tile": [helper.make_node("Tile", ["zero4", "huge"], ["made"])],
    "Expand": [helper.make_node("Expand", ["zero", "huge"], ["made"])],
    "Range": [helper.make_node("Range", ["zero", "far", "one"], ["made"])],
    "Gather": [helper.make_node("Gather", ["wide", "many"], ["made"], axis=0)],
    "Add": [helper.make_node("Add", ["column", "row"], ["made"])],
    "Einsum": [helper.make_node("Einsum", ["column", "row"], ["made"], equation="ij,kl->i")],
    "Loop": _loop(),
    "RegexFullMatch": [helper.make_node("RegexFullMatch", ["text"], ["made"], pattern="(a+)+$")],
}
TENSORS = [
    _tensor("huge", [1, 3, 30_000, 30_000]), _tensor("zero", 0, np.float32), _tensor("one", 1, np.float32),
    _tensor("far", 1e9, np.float32), _tensor("zero4", np.zeros((1, 1, 1, 1)), np.float32), _tensor("n", 2**40),
    _tensor("true", True, np.bool_), _tensor("wide", np.zeros((1, 40_000)), np.float32),
    _tensor("many", np.zeros(40_000)),
    _tensor("column", np.zeros((10_000, 1)), np.float32), _tensor("row", np.zeros((1, 10_000)), np.float32),
]  # fmt: skip


@pytest.mark.parametrize("op", GREEDY)
def test_constants_take_neither_time_nor_memory(op: str, tmp_path: Path) -> None:
    """Loops hung, a few hundred bytes took 4 GiB."""
    used = {name for node in GREEDY[op] for name in node.input}
    tensors = [tensor for tensor in TENSORS if tensor.name in used]
    if op == "RegexFullMatch":
        tensors = [helper.make_tensor("text", TensorProto.STRING, [1], [b"a" * 40 + b"!"])]
    file = _save(tmp_path / "net.onnx", [*GREEDY[op], helper.make_node("Add", ["image", "made"], ["y"])], tensors)
    before = time.process_time()
    with pytest.raises(InputError):
        load(file)
    assert time.process_time() - before < 5


def test_foldable_nodes_are_counted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", [f"v{i}", "one"], [f"v{i + 1}"]) for i in range(MOST_FOLDED + 1)]
    nodes.append(helper.make_node("Add", ["image", f"v{MOST_FOLDED + 1}"], ["y"]))
    file = _save(tmp_path / "net.onnx", nodes, [_tensor("v0", 1, np.float32), _tensor("one", 1, np.float32)])
    with pytest.raises(InputError, match="too many values"):
        load(file)


def test_layers_keep_the_names_of_the_file_in_plain_letters(tmp_path: Path) -> None:
    names = ["/model.0/conv/Conv", "/model.0/conv/Conv", "a;$(touch x)\n", "", "main", "input0", "7up", "x" * 500]
    names += ["a_b", "a.b"]
    nodes, last = [], "image"
    for index, name in enumerate(names):
        output = "y" if index == len(names) - 1 else f"v{index}"
        nodes.append(helper.make_node("Relu", [last], [output], name=name))
        last = output
    network, _ = load(_save(tmp_path / "net.onnx", nodes, []))
    assert [layer.name for layer in network.layers] == [
        "model.0.conv.Conv", "model.0.conv.Conv_2", "a_touch_x", "Relu_number_3", "n_main", "n_input0", "n_7up",
        "x" * 60, "a_b", "a.b_2",
    ]  # fmt: skip


PADDING = [
    (op, mode, size) for op in ("Conv", "MaxPool", "AveragePool") for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    for size in (8, 9)
] + [("ConvTranspose", mode, 8) for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")]  # fmt: skip


@pytest.mark.parametrize(("op", "mode", "size"), PADDING)
def test_automatic_padding_gives_the_size_onnx_infers(op: str, mode: str, size: int, tmp_path: Path) -> None:
    weight = ["w"] if op.startswith("Conv") else []
    attrs = {} if weight else {"kernel_shape": [3, 3]}
    node = helper.make_node(op, ["image", *weight], ["y"], auto_pad=mode, strides=[2, 2], **attrs)
    tensors = [_tensor("w", np.zeros((3, 3, 3, 3)), np.float32)] if weight else []
    file = _save(tmp_path / "net.onnx", [node], tensors, (1, 3, size, size))
    output = onnx.shape_inference.infer_shapes(onnx.load(file)).graph.output[0]
    inferred = output.type.tensor_type.shape.dim[2].dim_value
    (layer,) = load(file)[0].layers
    padding = layer.attrs["padding"]
    top, _, bottom, _ = (padding,) * 4 if isinstance(padding, int) else padding
    made = (size - 1) * 2 + 3 - top - bottom if op == "ConvTranspose" else (size + top + bottom - 3) // 2 + 1
    assert made == inferred


def test_same_without_a_side_is_upper_and_nonsense_is_refused(tmp_path: Path) -> None:
    """It became padding 0 without a word."""

    def made(mode: str) -> Any:
        node = helper.make_node("MaxPool", ["image"], ["y"], auto_pad=mode, strides=[2, 2], kernel_shape=[3, 3])
        return load(_save(tmp_path / f"{mode}.onnx", [node], []))[0].layers

    assert made("SAME") == made("SAME_UPPER")
    with pytest.raises(InputError, match="padding AROUND is not known"):
        made("AROUND")


def test_scalars_may_have_one_dimension(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Clip", ["image", "low", "high"], ["a"]),
        helper.make_node("Pad", ["a", "pads", "low"], ["y"]),
    ]
    tensors = [_tensor("low", [0], np.float32), _tensor("high", [6], np.float32), _tensor("pads", [0, 0, 1, 1] * 2)]
    clip, pad = load(_save(tmp_path / "net.onnx", nodes, tensors))[0].layers
    assert (clip.attrs["low"], clip.attrs["high"], pad.attrs["value"]) == (0.0, 6.0, 0.0)


def test_chains_of_shapes_fold(tmp_path: Path) -> None:
    """What exporters write for view(x.size(0), -1) and interpolate(scale_factor=2)."""
    nodes = [
        helper.make_node("Shape", ["image"], ["s"]),
        helper.make_node("Slice", ["s", "two", "four"], ["hw"]),
        helper.make_node("Cast", ["hw"], ["hwf"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["hwf", "twof"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["floored"]),
        helper.make_node("Cast", ["floored"], ["size"], to=TensorProto.INT64),
        helper.make_node("Slice", ["s", "zero", "two"], ["nc"]),
        helper.make_node("Concat", ["nc", "size"], ["sizes"], axis=0),
        helper.make_node("Resize", ["image", "", "", "sizes"], ["big"], mode="nearest"),
        helper.make_node("Shape", ["big"], ["bs"]),
        helper.make_node("Gather", ["bs", "first"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "zero"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["big", "flat"], ["y"]),
    ]
    tensors = [
        _tensor("two", [2]), _tensor("four", [4]), _tensor("zero", [0]), _tensor("first", 0), _tensor("rest", [-1]),
        _tensor("twof", 2.0, np.float32),
    ]  # fmt: skip
    resize, reshape = load(_save(tmp_path / "net.onnx", nodes, tensors))[0].layers
    assert resize.attrs["size"] == (16, 16) and reshape.attrs["shape"] == (1, 3 * 16 * 16)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_folder_or_a_pipe_in_place_of_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for location in ("folder", "pipe"):
        with pytest.raises(InputError, match="leads out of"):
            load(relocated(small(tmp_path), location))


# Without the values of their weights: the same network, in less memory.


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
    unpacked = model({"file": str(packed)}).weights
    assert unpacked is not None and all(np.array_equal(unpacked()[n], array) for n, array in found.weights().items())


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
