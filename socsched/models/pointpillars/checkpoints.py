"""Weights of other projects' PointPillars, converted to this project's names, folded batch norms and conventions.

Differences other than names (from the code of zhulf0804/PointPillars, open-mmlab/mmdetection3d and OpenPCDet):
    features    mmdetection3d (its `legacy` default) and zhulf0804 put the offsets from the pillar's centre in place of
                x and y; OpenPCDet and mmdetection3d of ten features add z from the pillar's centre.
    classes     OpenPCDet: Car, Pedestrian, Cyclist; here and in the others Pedestrian, Cyclist, Car.
    boxes       l, w, h and headings counter-clockwise from +x in OpenPCDet and mmdetection3d from 1.0; w, l, h and
                -heading - pi/2 here.  So sizes swap, angles change sign, the anchor of rotation 0 is the other one.
    directions  mmdetection3d 1.x: the half turn behind -pi/2; OpenPCDet: behind pi/4, a param of `decode`.
    anchors     OpenPCDet spreads them from edge to edge of the range (align_center False): also for `decode`.
All encode z by the centres of box and anchor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from socsched.errors import InputError, MachineError, UsageError, extra
from socsched.graph.network import Network
from socsched.models.onnx_file import OnnxFile
from socsched.models.pointpillars import network as full
from socsched.models.pointpillars import small
from socsched.models.weights import Weights, check_weights

Arrays = Mapping[str, npt.NDArray[Any]]
LAYOUTS = ("zhulf0804", "mmdet3d-0.x", "mmdet3d-1.x", "openpcdet")
MIDDLE = -1.0
"""Height of the pillars' centre, metres."""
TURNED = pi / 2 - 1.57
"""Difference between a quarter turn and the second anchor's 1.57."""


@dataclass(slots=True)
class Imported:
    """Weights under this project's names, the model they fit, params for `decode`, unplaced tensors, and remarks on
    what was folded."""

    weights: Weights
    model: str
    decode: dict[str, Any]
    unplaced: tuple[str, ...]
    remarks: list[str] = field(default_factory=list)


def models() -> dict[str, tuple[Network, ...]]:
    """Return the networks of every model that weights can be imported for."""
    return {"pointpillars": full.FULL.networks(), "pointpillars-s": small.networks()}


def guess(names: Arrays, meta: Mapping[str, Any]) -> str:
    """Return the layout inferred from a checkpoint's names; UsageError if none matches."""
    if any(name.startswith("pillar_encoder.") for name in names):
        return "zhulf0804"
    if any(name.startswith("voxel_encoder.") for name in names):
        version = str(meta.get("mmdet3d_version", "1"))
        return "mmdet3d-0.x" if version.startswith("0.") else "mmdet3d-1.x"
    if any(name.startswith(("vfe.", "backbone_2d.")) for name in names):
        return "openpcdet"
    raise UsageError(f"unknown layout with names like {', '.join(list(names)[:3])}", f"layouts: {', '.join(LAYOUTS)}")


def convert(tensors: Arrays, layout: str) -> Imported:
    """Return the weights of a checkpoint in `layout`; InputError names every parameter that is missing."""
    if layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", f"layouts: {', '.join(LAYOUTS)}")
    plain = {name.removeprefix("module."): np.asarray(array, np.float64) for name, array in tensors.items()}
    pfn = f"{_prefixes(layout)[0]}.weight"
    model = "pointpillars-s" if pfn in plain and len(plain[pfn]) == small.CHANNELS else "pointpillars"
    networks = models()[model]
    raw, used = _placed(plain, layout, [name for network in networks for name in network.params])
    return _finished(raw, layout, model, tuple(sorted(set(plain) - used)))


def _finished(raw: Weights, layout: str, model: str, unplaced: tuple[str, ...]) -> Imported:
    """Return weights under this project's names, converted from the conventions of a layout."""
    networks = models()[model]
    remarks: list[str] = []
    if "pfn.weight" in raw:
        _features(raw, layout, remarks)
    if layout in ("mmdet3d-1.x", "openpcdet"):
        _anchors(raw, layout)
    for network in networks:
        check_weights(network, raw, f"checkpoint ({layout})")
    decode = {"turn": round(pi / 4, 6), "anchors": "edges"} if layout == "openpcdet" else {}
    names = {name for network in networks for name in network.params}
    return Imported({n: raw[n].astype(np.float32) for n in raw if n in names}, model, decode, unplaced, remarks)


def _prefixes(layout: str) -> tuple[str, str, str, str]:
    """Return the name prefixes of pillar feature net, blocks, upsampling and heads."""
    if layout == "zhulf0804":
        return "pillar_encoder.conv", "backbone.multi_blocks", "neck.decoder_blocks", "head"
    if layout == "openpcdet":
        return "vfe.pfn_layers.0.linear", "backbone_2d.blocks", "backbone_2d.deblocks", "dense_head"
    return "voxel_encoder.pfn_layers.0.linear", "backbone.blocks", "neck.deblocks", "bbox_head"


def _source(name: str, layout: str) -> tuple[str, str]:
    """Return the checkpoint layer that holds a parameter's weight, and its batch norm ("" for none)."""
    pfn, blocks, ups, heads = _prefixes(layout)
    kind, *place = name.removesuffix(".weight").removesuffix(".bias").split(".")
    if kind == "pfn":
        return pfn, "pillar_encoder.bn" if layout == "zhulf0804" else f"{pfn.removesuffix('linear')}norm"
    if kind == "blocks":
        # convolution, norm, activation in turn; OpenPCDet pads in a separate layer first
        number = 3 * int(place[1]) + (layout == "openpcdet")
        return f"{blocks}.{place[0]}.{number}", f"{blocks}.{place[0]}.{number + 1}"
    if kind == "de":
        return f"{ups}.{place[0]}.0", f"{ups}.{place[0]}.1"
    if kind == "reg" and layout == "openpcdet":
        return f"{heads}.conv_box", ""
    return f"{heads}.conv_{'dir_cls' if kind == 'dir' else kind}", ""


def _placed(plain: Arrays, layout: str, names: list[str]) -> tuple[Weights, set[str]]:
    """Return parameters under this project's names, batch norm folded, and which tensors went into them."""
    weights: Weights = {}
    used: set[str] = set()
    for name in names:
        layer, norm = _source(name, layout)
        if not name.endswith(".weight") or f"{layer}.weight" not in plain:
            continue
        weight = np.array(plain[f"{layer}.weight"])
        if name == "pfn.weight":
            weight = weight.reshape(len(weight), -1)
        bias = np.array(plain.get(f"{layer}.bias", np.zeros(weight.shape[1 if name.startswith("de.") else 0])))
        parts = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        if norm and all(part in plain for part in parts):
            gain, shift, mean, var = (plain[part] for part in parts)
            weight, bias = fold(weight, bias, (gain, shift, mean, var), transposed=name.startswith("de."))
            used |= {*parts, f"{norm}.num_batches_tracked"}
        used |= {f"{layer}.weight", f"{layer}.bias"}
        weights[name], weights[name.removesuffix("weight") + "bias"] = weight, bias
    return weights, used


def _features(raw: Weights, layout: str, remarks: list[str]) -> None:
    """Fold the pillar features of a layout into the nine of this project."""
    weight, bias = np.array(raw["pfn.weight"]), np.array(raw["pfn.bias"])
    if layout != "openpcdet":  # x and y are offsets from the pillar's centre already
        weight[:, 7:9] += weight[:, 0:2]
        weight[:, 0:2] = 0
        remarks.append("x and y of the pillar features were offsets from the pillar's centre: weights adjusted")
    if weight.shape[1] == 10:
        rise = weight[:, 9] + (weight[:, 2] if layout != "openpcdet" else 0)
        weight[:, 2] += weight[:, 9]
        weight, bias = weight[:, :9], bias - MIDDLE * rise
        changed = np.abs(np.maximum(bias, 0) - np.maximum(bias + MIDDLE * rise, 0))
        remarks.append(
            "height above the pillar's centre is folded into z and the bias, which affects empty slots too: "
            f"{np.count_nonzero(changed > 1e-3)} of {len(bias)} channels change, by {changed.max():.3g} at most"
        )
    raw["pfn.weight"], raw["pfn.bias"] = weight, bias


def _anchors(raw: Weights, layout: str) -> None:
    """Put anchors, classes, sizes, angles and directions of the heads into this project's order and sense."""
    classes = (1, 2, 0) if layout == "openpcdet" else (0, 1, 2)  # positions of Pedestrian, Cyclist, Car in the layout
    anchors = np.array([2 * label + rotation for label in classes for rotation in (1, 0)])
    for name, width in (("cls", 3), ("reg", 7), ("dir", 2)):
        for part in ("weight", "bias"):
            key = f"{name}.{part}"
            if key not in raw:
                continue
            array = np.array(raw[key])
            array = array.reshape(-1, width, *array.shape[1:])[anchors]
            if name == "cls":
                array = array[:, list(classes)]
            elif name == "reg":
                array = array[:, [0, 1, 2, 4, 3, 5, 6]]
                array[:, 6] *= -1
                if part == "bias":
                    array[:, 6] += TURNED
            elif layout == "mmdet3d-1.x":
                array = array[:, ::-1]
            raw[key] = array.reshape(-1, *array.shape[2:])


def from_onnx(path: str, layout: str) -> Imported:
    """Return the weights of an ONNX export, found by the order and the shapes of its layers, whatever their names.

    Pillar feature net and the rest may be in separate files: parameters a file lacks are named.  Raises InputError if a
    file cannot be read, MachineError without the package onnx.
    """
    layers = layers_of(path)
    model = (
        "pointpillars-s" if any(len(w) == small.CHANNELS for w, _, kind in layers if kind == "pfn") else "pointpillars"
    )
    names = [name for network in models()[model] for name in network.params if name.endswith(".weight")]
    shapes = {name: shape for network in models()[model] for name, shape in network.params.items()}
    raw: Weights = {}
    left = list(layers)
    for name in names:
        kind = "pfn" if name.startswith("pfn") else "deconv" if name.startswith("de.") else "conv"
        fits = [
            entry
            for entry in left
            if entry[2] == kind and (kind == "pfn" or tuple(entry[0].shape) == tuple(shapes[name]))
        ]  # fmt: skip
        if not fits:
            continue
        left.remove(fits[0])
        raw[name], raw[name.removesuffix("weight") + "bias"] = fits[0][0], fits[0][1]
    if not raw:
        raise InputError(f"{path}: no layer of PointPillars in it", "expected an export of the KITTI network")
    unplaced = tuple(f"{kind} {list(weight.shape)}" for weight, _, kind in left)
    return _finished(raw, layout, model, unplaced)


Entry = tuple[npt.NDArray[Any], npt.NDArray[Any], str]


def layers_of(path: str) -> list[Entry]:
    """Return (weight, bias, kind) of every layer with weights; kinds are pfn, conv and deconv.

    A product with a matrix of 9 or 10 rows, or a convolution of kernel 1 with that many inputs, belongs to the pillar
    feature net and is returned as [channels, features].
    """
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise MachineError(f"{path}: reading ONNX files needs the package onnx", extra("onnx")) from None
    file = OnnxFile(Path(path))
    graph = file.model.graph
    constants = {name: array.astype(np.float64) for name, array in file.constants.items()}
    for node in graph.node:
        if node.op_type == "Constant":
            value = next((a.t for a in node.attribute if a.name == "value"), None)
            if value is not None and value.data_type in (1, 10, 11):
                constants[node.output[0]] = file.array(value).astype(np.float64)
        elif node.op_type == "Transpose" and node.input[0] in constants and constants[node.input[0]].ndim == 2:
            constants[node.output[0]] = constants[node.input[0]].T
    return _walk(graph.node, constants)


def _walk(nodes: Any, constants: dict[str, npt.NDArray[Any]]) -> list[Entry]:
    layers: list[Entry] = []
    producers: dict[str, int] = {}
    for node in nodes:
        tensors = [constants[name] for name in node.input if name in constants]
        if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm") and tensors and tensors[0].ndim >= 2:
            weight, kind = tensors[0], "deconv" if node.op_type == "ConvTranspose" else "conv"
            if node.op_type in ("MatMul", "Gemm"):
                weight = weight if weight.shape[1] in (9, 10) else weight.T
            if weight.ndim <= 3 or (kind == "conv" and weight.shape[1] in (9, 10)):
                weight, kind = weight.reshape(len(weight), -1), "pfn"
            width = weight.shape[1] if kind == "deconv" else weight.shape[0]
            bias = tensors[1] if len(tensors) > 1 and tensors[1].shape == (width,) else np.zeros(width)
            producers[node.output[0]] = len(layers)
            layers.append((weight, bias, kind))
        elif node.op_type == "BatchNormalization" and node.input[0] in producers and len(tensors) == 4:
            number = producers[node.output[0]] = producers[node.input[0]]
            weight, bias, kind = layers[number]
            gain, shift, mean, var = tensors
            epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            # `fold` adds the epsilon of these projects; the node's own may differ
            norm = (gain, shift, mean, var + epsilon - 1e-3)
            layers[number] = (*fold(weight, bias, norm, transposed=kind == "deconv"), kind)
        elif node.op_type in ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Add") and node.input:
            source = next((name for name in node.input if name in producers), None)
            if source is None:
                continue
            producers[node.output[0]] = producers[source]
            weight, bias, kind = layers[producers[source]]
            if node.op_type == "Add" and tensors and tensors[0].size == len(bias):
                layers[producers[source]] = (weight, bias + tensors[0].reshape(-1), kind)
    return layers


EPS = 1e-3
"""Epsilon of every batch norm in these projects."""


def fold(
    weight: npt.NDArray[Any], bias: npt.NDArray[Any], norm: tuple[npt.NDArray[Any], ...], transposed: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return weight and bias with a following batch norm (gain, shift, mean, variance) folded in."""
    gain, shift, mean, var = norm
    scale = gain / np.sqrt(var + EPS)
    along = (1, -1) if transposed else (-1, 1)
    return weight * scale.reshape(along + (1,) * (weight.ndim - 2)), (bias - mean) * scale + shift
