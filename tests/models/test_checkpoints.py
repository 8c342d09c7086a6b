"""Checkpoints of other projects: the same weights survive a round trip through each layout."""

from __future__ import annotations

import pickle
import struct
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_files import save

from socsched.cli.root import run
from socsched.errors import InputError, UsageError
from socsched.models.pointpillars import checkpoints
from socsched.models.pointpillars.boxes import PER_CELL, anchors_at, decode_boxes
from socsched.models.pointpillars.decode import Settings, detect
from socsched.models.pointpillars.small import networks
from socsched.models.torch_file import load, read_checkpoint
from socsched.models.weights import load_weights

EPS = 1e-3


def direct(seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights of the small network under this project's names."""
    rng = np.random.default_rng(seed)
    shapes = {name: shape for network in networks() for name, shape in network.params.items()}
    return {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}


def unfold(weight: np.ndarray, bias: np.ndarray, rng: np.random.Generator, axis: int) -> dict[str, np.ndarray]:
    """Return a layer without bias and a batch norm that together do what weight and bias do."""
    n = weight.shape[axis]
    gain, mean, var = rng.uniform(0.5, 2, n), rng.normal(0, 1, n), rng.uniform(0.1, 3, n)
    scale = gain / np.sqrt(var + EPS)
    along = [1] * weight.ndim
    along[axis] = n
    norm = {"weight": gain, "bias": bias + mean * scale, "running_mean": mean, "running_var": var}
    return {"": weight / scale.reshape(along), **norm}


HEADS = {
    "zhulf0804": ("head.conv_cls", "head.conv_reg", "head.conv_dir_cls"),
    "mmdet3d-0.x": ("bbox_head.conv_cls", "bbox_head.conv_reg", "bbox_head.conv_dir_cls"),
    "mmdet3d-1.x": ("bbox_head.conv_cls", "bbox_head.conv_reg", "bbox_head.conv_dir_cls"),
    "openpcdet": ("dense_head.conv_cls", "dense_head.conv_box", "dense_head.conv_dir_cls"),
}


def theirs(ours: dict[str, np.ndarray], layout: str) -> dict[str, np.ndarray]:
    """Return a state dict of a project whose network computes what `ours` does (for pillars with empty slots too)."""
    rng = np.random.default_rng(1)
    out: dict[str, np.ndarray] = {}

    def put(layer: str, norm: str, weight: np.ndarray, bias: np.ndarray, axis: int = 0) -> None:
        made = unfold(weight, bias, rng, axis)
        out[f"{layer}.weight"] = made.pop("")
        out.update({f"{norm}.{part}": array for part, array in made.items()})
        out[f"{norm}.num_batches_tracked"] = np.array(7)

    weight = ours["pfn.weight"].copy()
    if layout == "openpcdet":
        put("vfe.pfn_layers.0.linear", "vfe.pfn_layers.0.norm", np.c_[weight, np.zeros(len(weight))], ours["pfn.bias"])
    elif layout == "zhulf0804":
        put("pillar_encoder.conv", "pillar_encoder.bn", weight[:, :, None], ours["pfn.bias"])
    else:
        put("voxel_encoder.pfn_layers.0.linear", "voxel_encoder.pfn_layers.0.norm", weight, ours["pfn.bias"])
    blocks, ups = {
        "zhulf0804": ("backbone.multi_blocks", "neck.decoder_blocks"),
        "openpcdet": ("backbone_2d.blocks", "backbone_2d.deblocks"),
    }.get(layout, ("backbone.blocks", "neck.deblocks"))
    for name in ours:
        kind, *place = name.split(".")
        if kind == "blocks" and place[-1] == "weight":
            at = 3 * int(place[1]) + (layout == "openpcdet")
            bias = ours[name.replace("weight", "bias")]
            put(f"{blocks}.{place[0]}.{at}", f"{blocks}.{place[0]}.{at + 1}", ours[name], bias)
        if kind == "de" and place[-1] == "weight":
            put(f"{ups}.{place[0]}.0", f"{ups}.{place[0]}.1", ours[name], ours[f"de.{place[0]}.bias"], axis=1)
    for name, layer in zip(("cls", "reg", "dir"), HEADS[layout], strict=True):
        for part in ("weight", "bias"):
            out[f"{layer}.{part}"] = head(ours[f"{name}.{part}"], name, part, layout)
    return out


def head(array: np.ndarray, name: str, part: str, layout: str) -> np.ndarray:
    """Return a head in a project's order, written from its definition rather than by undoing the import."""
    if layout in ("zhulf0804", "mmdet3d-0.x"):
        return array
    order = ("Car", "Pedestrian", "Cyclist") if layout == "openpcdet" else ("Pedestrian", "Cyclist", "Car")
    mine = ("Pedestrian", "Cyclist", "Car")
    width = {"cls": 3, "reg": 7, "dir": 2}[name]
    rows = array.reshape(PER_CELL, width, *array.shape[1:])
    made = []
    for kind in order:
        for rotation in (0, 1):  # along +x, along +y; here along y (ry 0), along x (ry 1.57)
            row = rows[2 * mine.index(kind) + 1 - rotation].copy()
            if name == "cls":
                row = row[[mine.index(other) for other in order]]
            elif name == "reg":
                row = row[[0, 1, 2, 4, 3, 5, 6]]
                # heading = -ry - pi/2, modulo half turns: its residual is minus ours, less what 1.57 lacks of pi/2
                row[6] = -row[6] + ((np.pi / 2 - 1.57) if part == "bias" else 0)
            elif layout == "mmdet3d-1.x":
                row = row[[1, 0]]
            made.append(row)
    return np.concatenate(made)


@pytest.mark.parametrize("layout", checkpoints.LAYOUTS)
def test_every_layout_preserves_the_weights(layout: str) -> None:
    ours = direct()
    if layout != "openpcdet":
        ours["pfn.weight"][:, :2] = 0  # these projects' networks do not see x and y themselves
    state = theirs(ours, layout)
    if layout != "openpcdet":  # what their x and y columns hold are offsets from the pillar's centre
        name = "pillar_encoder.conv.weight" if layout == "zhulf0804" else "voxel_encoder.pfn_layers.0.linear.weight"
        share = 0.3 * state[name][:, 7:9]
        state[name][:, 0:2], state[name][:, 7:9] = share, state[name][:, 7:9] - share
    found = checkpoints.convert(state, layout)
    assert found.model == "pointpillars-s" and found.unplaced == ()
    for name, array in ours.items():
        np.testing.assert_allclose(found.weights[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
    assert (found.decode != {}) == (layout == "openpcdet")


def test_openpcdets_boxes_equal_those_of_its_own_decoding() -> None:
    """A differential test of anchors, angles and directions against the definitions of the other project."""
    rng = np.random.default_rng(3)
    rows, columns = 248, 216
    ours = {"cls": rng.normal(-6, 1, (18, rows, columns)), "reg": rng.normal(0, 0.2, (42, rows, columns))}
    ours["dir"] = rng.normal(0, 1, (12, rows, columns))
    maps = [ours[name].astype(np.float32) for name in ("cls", "reg", "dir")]
    # theirs, as maps: the same permutation that applies to the heads' rows applies to their results
    other = {name: head(ours[name], name, "bias", "openpcdet") for name in ours}
    settings = Settings(score=0.1, iou=0.999, candidates=60, max_boxes=60, turn=np.pi / 4, edges=True)
    found = detect(*maps, settings)
    xs, ys = np.linspace(0, 69.12, columns), np.linspace(-39.68, 39.68, rows)
    sizes = {0: (3.9, 1.6, 1.56, -1.78), 1: (0.8, 0.6, 1.73, -0.6), 2: (1.76, 0.6, 1.73, -0.6)}
    logits = other["cls"].reshape(6, 3, rows, columns)
    best = logits.max(1)
    kind, row, column = np.unravel_index(np.argsort(-best, axis=None)[:40], best.shape)
    for k, r, c in zip(kind, row, column, strict=True):
        length, width, height, bottom = sizes[k // 2]
        d = other["reg"].reshape(6, 7, rows, columns)[k, :, r, c]
        diagonal = np.hypot(length, width)
        x, y = d[0] * diagonal + xs[c], d[1] * diagonal + ys[r]
        dx, dy, dz = np.exp(d[3]) * length, np.exp(d[4]) * width, np.exp(d[5]) * height
        z = d[2] * height + bottom + height / 2
        angle = d[6] + (0, 1.57)[k % 2]
        bins = other["dir"].reshape(6, 2, rows, columns)[k, :, r, c]
        inner = (angle - 0.785398) % np.pi
        heading = inner + 0.785398 + np.pi * (bins[1] > bins[0])
        label = {0: 2, 1: 0, 2: 1}[int(logits[k, :, r, c].argmax())]
        near = np.flatnonzero((np.abs(found.boxes[:, :2] - (x, y)).max(1) < 1e-3) & (found.labels == label))
        assert len(near) >= 1
        gap = [abs((-heading - np.pi / 2 - found.boxes[i, 6] + np.pi) % (2 * np.pi) - np.pi) for i in near]
        i = near[int(np.argmin(gap))]
        assert min(gap) < 1e-3
        np.testing.assert_allclose(found.boxes[i, 3:6], (dy, dx, dz), rtol=1e-4)
        assert found.boxes[i, 2] + found.boxes[i, 5] / 2 == pytest.approx(z, abs=1e-3)


def test_height_above_the_pillars_centre_goes_into_z_and_bias() -> None:
    ours = direct()
    state = theirs(ours, "openpcdet")
    extra = np.linspace(-1, 1, 32)
    linear = state["vfe.pfn_layers.0.linear.weight"]
    linear[:, 9], linear[:, 2] = extra, linear[:, 2] - extra
    found = checkpoints.convert(state, "openpcdet")
    np.testing.assert_allclose(found.weights["pfn.weight"], ours["pfn.weight"], rtol=1e-5, atol=1e-6)
    norm = "vfe.pfn_layers.0.norm"
    scale = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"] + EPS)
    # (z + 1) extra = z extra + extra
    np.testing.assert_allclose(found.weights["pfn.bias"], ours["pfn.bias"] + extra * scale, rtol=1e-5, atol=1e-5)
    assert any("empty slots" in remark for remark in found.remarks)


def test_missing_and_unused_tensors_are_named() -> None:
    state = theirs(direct(), "openpcdet")
    del state["backbone_2d.blocks.1.4.weight"]
    state["roi_head.shared_fc.weight"] = np.zeros(3)
    with pytest.raises(InputError, match=r"blocks\.1\.1\.weight \[64, 64, 3, 3\] is missing"):
        checkpoints.convert(state, "openpcdet")
    state = {**theirs(direct(), "openpcdet"), "roi_head.shared_fc.weight": np.zeros(3)}
    assert checkpoints.convert(state, "openpcdet").unplaced == ("roi_head.shared_fc.weight",)
    with pytest.raises(UsageError, match="unknown layout"):
        checkpoints.guess({"encoder.layer.0": np.zeros(1)}, {})


@pytest.mark.parametrize(
    ("names", "meta", "layout"),
    [
        (["pillar_encoder.conv.weight"], {}, "zhulf0804"),
        (["voxel_encoder.pfn_layers.0.linear.weight"], {"mmdet3d_version": "0.17.1"}, "mmdet3d-0.x"),
        (["voxel_encoder.pfn_layers.0.linear.weight"], {"mmdet3d_version": "1.1.0"}, "mmdet3d-1.x"),
        (["vfe.pfn_layers.0.linear.weight"], {}, "openpcdet"),
    ],
)
def test_the_layout_is_seen_from_names_and_version(names: list[str], meta: dict[str, str], layout: str) -> None:
    assert checkpoints.guess({name: np.zeros(1) for name in names}, meta) == layout


@pytest.mark.parametrize("key", [None, "state_dict", "model_state"])
def test_a_checkpoint_file_becomes_weights(key: str | None, tmp_path: Path) -> None:
    ours = direct()
    state = OrderedDict(theirs(ours, "openpcdet"))
    file = save(tmp_path / "a.pth", {key: state, "epoch": 80} if key else state)
    target = tmp_path / "w.npz"
    assert run(["weights", "import", str(file), "-o", str(target), "-q"]) == 0
    weights = load_weights(target, networks())
    for name, array in ours.items():
        np.testing.assert_allclose(weights[name], array, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.needs("PyTorch")
def test_pytorch_reads_what_the_tests_write_and_writes_what_is_read(tmp_path: Path) -> None:
    import torch

    state = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "n": np.array(5)}
    read = torch.load(save(tmp_path / "a.pth", state), weights_only=True)
    assert read["a"].tolist() == state["a"].tolist()
    tensor = torch.arange(12.0).reshape(3, 4)
    torch.save(
        {"state_dict": {"a": tensor.T, "p": torch.nn.Parameter(tensor[1:]), "h": tensor.half()}}, tmp_path / "b.pth"
    )
    found = load(tmp_path / "b.pth")["state_dict"]
    np.testing.assert_array_equal(found["a"], tensor.T.numpy())
    np.testing.assert_array_equal(found["p"], tensor[1:].numpy())
    np.testing.assert_array_equal(found["h"], tensor.numpy())


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("reader", [load, read_checkpoint])
def test_a_checkpoint_that_would_run_something_is_refused_and_does_not(reader: Any, tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    payloads = [
        pickle.dumps({"state_dict": _Evil(trap)}),
        b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.",
        b"cbuiltins\neval\n(S'open(\"" + str(trap).encode() + b'", "w")\'\ntR.',
        b"ccollections\nOrderedDict\n)Rccopyreg\n_reconstructor\n0.",
    ]
    for number, payload in enumerate(payloads):
        with zipfile.ZipFile(tmp_path / f"{number}.pth", "w") as archive:
            archive.writestr("archive/data.pkl", payload)
            archive.writestr("archive/version", "3\n")
        with pytest.raises(InputError, match=r"not loaded|refuses it"):
            reader(tmp_path / f"{number}.pth")
    assert not trap.exists()


def test_damaged_and_lying_checkpoints_are_errors_not_crashes(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(InputError, match="not a zip checkpoint"):
        load(tmp_path / "a.pth")
    good = save(tmp_path / "b.pth", {"w": np.zeros((2, 3), np.float32)}).read_bytes()
    lying = good.replace(b"K\x02K\x03\x86", b"K\x20K\x03\x86")  # a shape of 32 x 3 over six numbers
    assert lying != good
    with zipfile.ZipFile(tmp_path / "b.pth") as archive:
        pkl = archive.read("archive/data.pkl").replace(b"K\x02K\x03\x86", b"K\x20K\x03\x86")
        rest = {name: archive.read(name) for name in archive.namelist() if not name.endswith("data.pkl")}
    with zipfile.ZipFile(tmp_path / "c.pth", "w") as archive:
        archive.writestr("archive/data.pkl", pkl)
        for name, data in rest.items():
            archive.writestr(name, data)
    with pytest.raises(InputError, match="beyond its storage"):
        load(tmp_path / "c.pth")
    with zipfile.ZipFile(tmp_path / "d.pth", "w") as archive:
        archive.writestr("archive/data.pkl", struct.pack("<I", 7) * 9)
    with pytest.raises(InputError, match="damaged"):
        load(tmp_path / "d.pth")


def test_an_onnx_export_is_read_by_order_and_shape(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="writes ONNX files")
    from onnx import TensorProto, helper, numpy_helper

    ours = direct(2)
    ours["pfn.weight"][:, :2] = 0
    state = {name: array.astype(np.float32) for name, array in theirs(ours, "zhulf0804").items()}
    nodes, constants, previous = [], [], "x"

    def constant(array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array, f"onnx::{len(constants)}"))
        return constants[-1].name

    for name in [n for network in networks() for n in network.params if n.endswith("weight")]:
        layer, norm = checkpoints._source(name, "zhulf0804")
        op = "ConvTranspose" if name.startswith("de.") else "Conv"
        given = [previous, constant(state[f"{layer}.weight"])]
        if f"{layer}.bias" in state:
            given.append(constant(state[f"{layer}.bias"]))
        nodes.append(helper.make_node(op, given, [f"{name}.out"]))
        if norm:
            parts = [constant(state[f"{norm}.{part}"]) for part in ("weight", "bias", "running_mean", "running_var")]
            nodes.append(helper.make_node("BatchNormalization", [f"{name}.out", *parts], [f"{name}.bn"], epsilon=EPS))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    graph = helper.make_graph(
        nodes, "g", [value], [helper.make_tensor_value_info("cls.weight.out", 1, None)], constants
    )
    onnx.save(helper.make_model(graph), tmp_path / "a.onnx")
    found = checkpoints.from_onnx(str(tmp_path / "a.onnx"), "zhulf0804")
    assert found.unplaced == ()
    for name, array in ours.items():
        np.testing.assert_allclose(found.weights[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


def test_anchors_from_edge_to_edge() -> None:
    last = 248 * 216 * PER_CELL - 1
    low, high = anchors_at(np.array([0, last]), edges=True)
    np.testing.assert_allclose([*low[:2], *high[:2]], [0, -39.68, 69.12, 39.68], rtol=1e-6)
    assert decode_boxes(low[None], np.zeros((1, 7), np.float32))[0].tolist() == pytest.approx(low.tolist())
