"""Networks as people export them, as PyTorch modules whose weights follow from a name, and their ONNX files.

Needs PyTorch and torchvision, beyond `NETWORKS` also timm, transformers and ultralytics.  The same module is a peer
(`torch.compile`) and, exported, our input: both machines make the same weights, so that none have to travel.  Weights
repeat a short random sequence, which keeps compressed constants small; batch norms scale all channels alike for the
same reason.

    python -m tools.bench.network_zoo FOLDER [--exporter legacy|dynamo] [NAME ... timm/NAME torchvision/NAME]
    python -m tools.bench.network_zoo --page FOLDER [NAME ...] those of docs/zoo.md
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import lzma
import zlib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.models as tv
from torch import nn
from torch.nn import functional

LARGE = 16384
"""Bytes from which on a weight is set to zero: shapes and indices are smaller."""
_PERIOD = 16381  # prime: no row of a weight starts where another does
IMAGE = (1, 3, 224, 224)


def module(name: str) -> nn.Module:
    """Return a network with its weights, in evaluation mode, batch norms folded; KeyError for another name."""
    made = _entry(name)[0]().eval()
    for parameter in made.parameters():
        parameter.requires_grad_(False)
    for key, tensor in made.state_dict().items():
        if tensor.is_floating_point() and tensor.numel():
            tensor.copy_(_values(key, tensor.shape))
    return _folded(made)


def _entry(name: str) -> tuple[Callable[[], nn.Module], list[tuple[Any, ...]]]:
    """Return how to make a network and its inputs; any image classifier by the name of its package and its own."""
    package, _, own = name.rpartition("/")
    makers = {"timm": _timm(own), "torchvision": lambda: tv.get_model(own)}
    return (makers[package], [IMAGE]) if package else (NETWORKS | OTHERS)[name]


def inputs(name: str) -> list[np.ndarray[Any, Any]]:
    """Return a network's inputs, the same on every machine; a shape that ends with a number's type is one of those."""
    generator = np.random.default_rng(5)
    arrays = []
    for shape in _entry(name)[1]:
        if isinstance(shape[-1], int):
            arrays.append(generator.normal(0, 1, shape).astype(np.float16).astype(np.float32))
        else:
            arrays.append(generator.integers(0, 2 if shape[-1] is np.bool_ else 100, shape[:-1]).astype(shape[-1]))
    return arrays


def export(name: str, path: Path, dynamo: bool = False) -> None:
    """Write a network as ONNX with the exporter that most files come from, opset 17, or with the newer one."""
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no ONNX form
    given = tuple(torch.tensor(array) for array in inputs(name))
    names = [f"input{index}" for index in range(len(given))]
    more = {} if dynamo else {"opset_version": 17}
    torch.onnx.export(module(name), given, str(path), dynamo=dynamo, input_names=names, external_data=False, **more)


def _values(key: str, shape: Any) -> torch.Tensor:
    last, count = key.rsplit(".", 1)[-1], int(np.prod(shape))
    if last == "running_var" or (last in ("weight", "gamma") and len(shape) == 1):
        return torch.ones(shape)
    generator = np.random.default_rng(zlib.crc32(key.encode()))
    if last in ("layer_scale", "gamma"):
        return torch.full(shape, 0.25)
    scale = 0.05 if len(shape) < 2 else min(0.5, (1.6 / max(int(np.prod(shape[1:])), 1)) ** 0.5)
    values = (np.round(generator.normal(0, 1, _PERIOD) * 16) / 16 * scale).astype(np.float16).astype(np.float32)
    return torch.tensor(np.resize(values, count).reshape(tuple(shape)))


def _folded(made: nn.Module) -> nn.Module:
    """Fold each batch norm into the convolution that stands before it among its module's children."""
    for parent in list(made.modules()):
        children = list(parent.named_children())
        for (name, first), (after, second) in pairwise(children):
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                setattr(parent, name, torch.nn.utils.fuse_conv_bn_eval(first, second))
                setattr(parent, after, nn.Identity())
    return made


class _Heads(nn.Module):
    """A torchvision detector without its boxes: features, then what its heads say of them."""

    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.backbone, self.head = whole.backbone, whole.head

    def forward(self, x):
        found = self.head(list(self.backbone(x).values()))
        return tuple(found.values())


class _Segmented(nn.Module):
    def __init__(self, whole: Any) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x):
        return self.whole(x)["out"]


class _Attention(nn.Module):
    """SegFormer's: keys and values from an image reduced by a strided convolution."""

    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.heads, self.q, self.kv, self.proj = heads, nn.Linear(width, width), nn.Linear(width, 2 * width), None
        self.proj = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, reduction, reduction) if reduction > 1 else None
        self.norm = nn.LayerNorm(width) if reduction > 1 else None

    def forward(self, x, height: int, width: int):
        batch, count, channels = x.shape
        q = self.q(x).reshape(batch, count, self.heads, channels // self.heads).transpose(1, 2)
        if self.reduce is not None:
            x = self.reduce(x.transpose(1, 2).reshape(batch, channels, height, width))
            x = self.norm(x.flatten(2).transpose(1, 2))
        k, v = self.kv(x).reshape(batch, -1, 2, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(batch, count, channels))


class _Mix(nn.Module):
    def __init__(self, width: int, heads: int, reduction: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), _Attention(width, heads, reduction)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.depthwise = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)

    def forward(self, x, height: int, width: int):
        x = x + self.attention(self.norm1(x), height, width)
        y = self.fc1(self.norm2(x))
        y = self.depthwise(y.transpose(1, 2).reshape(1, -1, height, width)).flatten(2).transpose(1, 2)
        return x + self.fc2(functional.gelu(y))


class Segformer(nn.Module):
    """Xie et al., "SegFormer", NeurIPS 2021: B0 with its all-MLP head, 150 classes."""

    def __init__(self) -> None:
        super().__init__()
        widths, heads, reductions = (32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1)
        self.patch, self.norm, self.blocks, self.last = (nn.ModuleList() for _ in range(4))
        for index, width in enumerate(widths):
            kernel, stride = (7, 4) if not index else (3, 2)
            self.patch.append(nn.Conv2d(3 if not index else widths[index - 1], width, kernel, stride, kernel // 2))
            self.norm.append(nn.LayerNorm(width))
            self.blocks.append(nn.ModuleList(_Mix(width, heads[index], reductions[index]) for _ in range(2)))
            self.last.append(nn.LayerNorm(width))
        self.linear = nn.ModuleList(nn.Linear(width, 256) for width in widths)
        self.fuse, self.bn, self.classes = (
            nn.Conv2d(1024, 256, 1, bias=False),
            nn.BatchNorm2d(256),
            nn.Conv2d(256, 150, 1),
        )

    def forward(self, x):
        found = []
        for patch, norm, blocks, last in zip(self.patch, self.norm, self.blocks, self.last, strict=True):
            x = patch(x)
            _, channels, height, width = x.shape
            x = norm(x.flatten(2).transpose(1, 2))
            for block in blocks:
                x = block(x, height, width)
            x = last(x).transpose(1, 2).reshape(1, channels, height, width)
            found.append(x)
        size, same = found[0].shape[2:], []
        for linear, y in zip(self.linear, found, strict=True):
            z = linear(y.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(1, -1, *y.shape[2:])
            same.append(functional.interpolate(z, size=size, mode="bilinear", align_corners=False))
        return self.classes(functional.relu(self.bn(self.fuse(torch.cat(same[::-1], 1)))))


class Detr(nn.Module):
    """Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020: ResNet-50, 100 queries."""

    def __init__(self) -> None:
        super().__init__()
        resnet = tv.resnet50()
        self.body = nn.Sequential(*list(resnet.children())[:-2])
        self.project = nn.Conv2d(2048, 256, 1)
        self.transformer = nn.Transformer(256, 8, 6, 6, 2048, batch_first=True)
        self.query, self.position = nn.Parameter(torch.zeros(100, 256)), nn.Parameter(torch.zeros(400, 256))
        self.classes, self.box = (
            nn.Linear(256, 92),
            nn.Sequential(
                nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4), nn.Sigmoid()
            ),
        )

    def forward(self, x):
        x = self.project(self.body(x)).flatten(2).transpose(1, 2) + self.position[None]
        y = self.transformer(x, self.query[None])
        return self.classes(y), self.box(y)


def _conv(given: int, made: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    layers = (nn.Conv2d(given, made, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(made), nn.SiLU())
    return nn.Sequential(*layers)


class _Split(nn.Module):
    def __init__(self, given: int, made: int, count: int, shortcut: bool = True) -> None:
        super().__init__()
        half = made // 2
        self.first, self.last, self.shortcut = _conv(given, made), _conv(half * (2 + count), made), shortcut
        self.blocks = nn.ModuleList(nn.Sequential(_conv(half, half, 3), _conv(half, half, 3)) for _ in range(count))

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A YOLOv8n-like detector (channels and repeats of its published table), boxes decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, 16, 3, 2), _conv(16, 32, 3, 2), _Split(32, 32, 1))
        self.p3, self.p4 = (
            nn.Sequential(_conv(32, 64, 3, 2), _Split(64, 64, 2)),
            nn.Sequential(_conv(64, 128, 3, 2), _Split(128, 128, 2)),
        )
        self.p5, self.squeeze = nn.Sequential(_conv(128, 256, 3, 2), _Split(256, 256, 1)), _conv(256, 128)
        self.spread = _conv(512, 256)
        self.up4, self.up3 = _Split(384, 128, 1, False), _Split(192, 64, 1, False)
        self.down3, self.down4 = _conv(64, 64, 3, 2), _conv(128, 128, 3, 2)
        self.mid, self.high = _Split(192, 128, 1, False), _Split(384, 256, 1, False)

        def head(given: int, width: int, made: int) -> nn.Module:
            return nn.Sequential(_conv(given, width, 3), _conv(width, width, 3), nn.Conv2d(width, made, 1))

        self.box, self.score = (
            nn.ModuleList(head(c, width, made) for c in (64, 128, 256)) for width, made in ((64, 64), (80, 80))
        )
        cells = [(x + 0.5, y + 0.5, 640 / n) for n in (80, 40, 20) for y in range(n) for x in range(n)]
        table = torch.tensor(cells).T[None].contiguous()
        self.cells, self.strides = table[:, :2], table[:, 2:]

    def _apply(self, change, *more):
        self.cells, self.strides = change(self.cells), change(self.strides)
        return super()._apply(change, *more)

    def forward(self, x):
        p3 = self.p3(self.stem(x))
        p4 = self.p4(p3)
        pools = [self.squeeze(self.p5(p4))]
        for _ in range(3):
            pools.append(functional.max_pool2d(pools[-1], 5, 1, 2))
        p5 = self.spread(torch.cat(pools, 1))
        m = self.up4(torch.cat((functional.interpolate(p5, scale_factor=2.0), p4), 1))
        low = self.up3(torch.cat((functional.interpolate(m, scale_factor=2.0), p3), 1))
        mid = self.mid(torch.cat((self.down3(low), m), 1))
        levels = low, mid, self.high(torch.cat((self.down4(mid), p5), 1))
        boxes, scores = (
            torch.cat([head(y).flatten(2) for head, y in zip(heads, levels, strict=True)], 2)
            for heads in (self.box, self.score)
        )
        shares = boxes.view(1, 4, 16, 8400).transpose(1, 2).softmax(1)
        weight = torch.arange(16, dtype=shares.dtype, device=shares.device).view(1, 16, 1, 1)
        near, far = functional.conv2d(shares, weight).view(1, 4, 8400).chunk(2, 1)
        one, other = self.cells - near, self.cells + far
        return torch.cat((torch.cat(((one + other) / 2, other - one), 1) * self.strides, scores.sigmoid()), 1)


class Predictor(nn.Module):
    """Tracks of 64 agents, 20 steps of 8 numbers, through a GRU and a head of 6 futures of 30 places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru, self.head = nn.Linear(8, 64), nn.GRU(64, 128, batch_first=True), nn.Linear(128, 360)

    def forward(self, x):
        y, _ = self.gru(functional.relu(self.embed(x)))
        return self.head(y[:, -1])


class Pillars(nn.Module):
    """CenterPoint's backbone, neck and heads (Yin et al., CVPR 2021; pillars of nuScenes, 512 x 512 cells halved).

    With `anchors` PointPillars' heads instead (Lang et al., CVPR 2019): classes, boxes and directions of six a cell.
    """

    def __init__(self, anchors: bool = False) -> None:
        super().__init__()

        def conv(given: int, made: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU())

        def block(given: int, made: int, count: int) -> nn.Module:
            return nn.Sequential(conv(given, made, 2), *(conv(made, made) for _ in range(count)))

        def up(given: int, scale: int) -> nn.Module:
            return nn.Sequential(nn.ConvTranspose2d(given, 128, scale, scale), nn.ReLU())

        self.blocks = nn.ModuleList((block(64, 64, 3), block(64, 128, 5), block(128, 256, 5)))
        self.up = nn.ModuleList((up(64, 1), up(128, 2), up(256, 4)))
        self.shared = nn.Identity() if anchors else conv(384, 64)
        self.heads = nn.ModuleList(
            nn.Conv2d(384, made, 1) if anchors else nn.Sequential(conv(64, 64), nn.Conv2d(64, made, 3, padding=1))
            for made in ((18, 42, 12) if anchors else (2, 1, 3, 2, 2, 10))
        )

    def forward(self, x):
        found = []
        for block, up in zip(self.blocks, self.up, strict=True):
            x = block(x)
            found.append(up(x))
        x = self.shared(torch.cat(found, 1))
        return tuple(head(x) for head in self.heads)


class Deformable(nn.Module):
    """Deformable attention (Zhu et al., ICLR 2021) over levels, as its reference in plain PyTorch has it."""

    def __init__(self, width: int, heads: int, points: int, sizes: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        each = heads * len(sizes) * points
        self.value, self.offset, self.weight = (
            nn.Linear(width, width),
            nn.Linear(width, 2 * each),
            nn.Linear(width, each),
        )
        self.heads, self.points, self.sizes = heads, points, sizes

    def forward(self, queries, places, memory):
        _, count, width = queries.shape
        heads, levels = self.heads, len(self.sizes)
        value = self.value(memory).view(1, -1, heads, width // heads)
        offsets = self.offset(queries).view(1, count, heads, levels, self.points, 2)
        weights = self.weight(queries).view(1, count, heads, levels * self.points).softmax(-1)
        grids = 2 * (places[:, :, None, None, None] + 0.1 * offsets) - 1
        parts, found = value.split([h * w for h, w in self.sizes], 1), []
        for level, (height, across) in enumerate(self.sizes):
            image = parts[level].flatten(2).transpose(1, 2).reshape(heads, width // heads, height, across)
            found.append(functional.grid_sample(image, grids[:, :, :, level].transpose(1, 2).flatten(0, 1)))
        weights = weights.transpose(1, 2).reshape(heads, 1, count, levels * self.points)
        return (torch.stack(found, -2).flatten(-2) * weights).sum(-1).view(1, width, count).transpose(1, 2)


class Splat(nn.Module):
    """Lift, splat (Philion & Fidler, ECCV 2020): features of six cameras at depths, summed in cells from above.

    Which places and depths are in a cell follows from calibration: a table, as deployed (BEVPoolv2, arXiv 2211.17111).
    """

    def __init__(self, depths: int = 59, width: int = 64, size: tuple[int, int] = (16, 44), cells: int = 128) -> None:
        super().__init__()
        self.lift, self.head = nn.Conv2d(256, depths + width, 1), _conv(width, width, 3)
        self.depths, self.cells, points = depths, cells, 6 * depths * size[0] * size[1]
        order = np.random.default_rng(3).permutation(points)[: cells * cells * 8].reshape(cells * cells, 8)
        self.register_buffer("table", torch.tensor(np.sort(order, 0)))  # the eight points of each cell

    def forward(self, x):
        x = self.lift(x)
        depth, features = x[:, : self.depths].softmax(1), x[:, self.depths :]
        lifted = depth.unsqueeze(2) * features.unsqueeze(1)
        rows = lifted.permute(0, 1, 3, 4, 2).reshape(-1, features.shape[1])
        seen = rows[self.table.flatten()].view(*self.table.shape, -1).sum(1)
        return self.head(seen.T.reshape(1, -1, self.cells, self.cells))


def _vit(width: int) -> Callable[[], nn.Module]:
    return lambda: tv.VisionTransformer(224, 16, 12, width // 64, width, 4 * width)


def _detector(make: Any) -> Callable[[], nn.Module]:
    return lambda: _Heads(make(weights=None, weights_backbone=None))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "vit_s": (_vit(384), [IMAGE]),
    "vit_b": (_vit(768), [IMAGE]),
    "swin_t": (tv.swin_t, [IMAGE]),
    "convnext_t": (tv.convnext_tiny, [IMAGE]),
    "segformer_b0": (Segformer, [(1, 3, 512, 512)]),
    "detr_r50": (Detr, [(1, 3, 640, 640)]),
    "resnet50": (tv.resnet50, [IMAGE]),
    "resnext50": (tv.resnext50_32x4d, [IMAGE]),
    "regnety_800": (tv.regnet_y_800mf, [IMAGE]),
    "shufflenet_v2": (tv.shufflenet_v2_x1_0, [IMAGE]),
    "mobilenet_v3": (tv.mobilenet_v3_large, [IMAGE]),
    "efficientnet_b0": (tv.efficientnet_b0, [IMAGE]),
    "retinanet_r50": (_detector(tv.detection.retinanet_resnet50_fpn), [(1, 3, 640, 640)]),
    "ssdlite320": (_detector(tv.detection.ssdlite320_mobilenet_v3_large), [(1, 3, 320, 320)]),
    "deeplabv3_mnv3": (
        lambda: _Segmented(tv.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None)),
        [(1, 3, 512, 512)],
    ),
    "yolov8n": (Yolo, [(1, 3, 640, 640)]),
    "centerpoint": (Pillars, [(1, 64, 256, 256)]),
    "pointpillars": (lambda: Pillars(anchors=True), [(1, 64, 496, 432)]),
    "gru_predictor": (Predictor, [(64, 20, 8)]),
    "deformable_attention": (
        lambda: Deformable(256, 8, 4, ((64, 64), (32, 32), (16, 16), (8, 8))),
        [(1, 900, 256), (1, 900, 2), (1, 5440, 256)],
    ),
    "lift_splat": (Splat, [(6, 256, 16, 44)]),
}
"""By name: how a network is made, and the shapes of its inputs."""


class Chosen(nn.Module):
    """Tensors of what a network of another maker returns, whatever holds them."""

    def __init__(self, whole: nn.Module, names: tuple[str, ...] = (), given: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.whole, self.names, self.given = whole, names, given

    def forward(self, *inputs):
        found = self.whole(**dict(zip(self.given, inputs, strict=True))) if self.given else self.whole(*inputs)
        if self.names:
            return tuple(found[name] for name in self.names)
        while isinstance(found, (list, tuple)) and isinstance(found[0], (list, tuple, dict)):
            found = found[0]
        return tuple(found.values()) if isinstance(found, dict) else found


class Detector(nn.Module):
    """A torchvision detector of one image with everything after its heads: anchors, suppression, the best boxes."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x):
        (found,) = self.whole([x[0]])
        return found["boxes"], found["scores"], found["labels"]


def _timm(name: str, **more: Any) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        import timm

        return timm.create_model(name, exportable=True, **more)

    return made


def _hugging(name: str, names: tuple[str, ...], given: tuple[str, ...], **more: Any) -> Callable[[], nn.Module]:
    """Return how to make a network of transformers with the settings of its configuration class changed."""

    def made() -> nn.Module:
        import transformers

        head = getattr(transformers, name)
        settings = head.config_class(**{**more, "attn_implementation": "eager"})
        return Chosen(head(settings), names, given)

    return made


def _ultralytics(name: str) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        from ultralytics import RTDETR, YOLO

        model = (RTDETR if "rtdetr" in name else YOLO)(f"{name}.yaml").model.eval()
        for layer in model.modules():
            if hasattr(layer, "export"):
                layer.export, layer.format = True, "onnx"
            if type(layer).__name__ == "C2f":
                layer.forward = layer.forward_split
        return Chosen(model)

    return made


def _whole(make: Any, **more: Any) -> Callable[[], nn.Module]:
    return lambda: Detector(make(weights=None, weights_backbone=None, **more))


SMALL = (1, 3, 320, 320)
OTHERS: dict[str, tuple[Callable[[], nn.Module], list[tuple[Any, ...]]]] = {
    "r3d_18": (tv.video.r3d_18, [(1, 3, 8, 112, 112)]),
    "deformable": (
        lambda: Deformable(64, 4, 2, ((16, 24), (8, 12))), [(1, 60, 64), (1, 60, 2), (1, 480, 64)],
    ),
    "bert": (
        _hugging("BertModel", ("last_hidden_state",), ("input_ids", "attention_mask"), num_hidden_layers=2),
        [(1, 64, np.int64), (1, 64, np.int64)],
    ),
    "detr": (
        _hugging(
            "DetrForObjectDetection", ("logits", "pred_boxes"), ("pixel_values",), use_pretrained_backbone=False,
            backbone="resnet18", use_timm_backbone=True, encoder_layers=2, decoder_layers=2,
        ),
        [SMALL],
    ),
    "clip_vision": (
        _hugging("CLIPVisionModel", ("last_hidden_state", "pooler_output"), ("pixel_values",), num_hidden_layers=4),
        [IMAGE],
    ),
    "dinov2": (_hugging("Dinov2Model", ("last_hidden_state",), ("pixel_values",), num_hidden_layers=4), [IMAGE]),
    "glpn": (_hugging("GLPNForDepthEstimation", ("predicted_depth",), ("pixel_values",)), [(1, 3, 256, 256)]),
    "rt_detr": (
        _hugging(
            "RTDetrForObjectDetection", ("logits", "pred_boxes"), ("pixel_values",), encoder_layers=1, decoder_layers=2,
            num_queries=100,
        ),
        [SMALL],
    ),
    "yolo11n": (_ultralytics("yolo11n"), [SMALL]),
    "yolov8n_seg": (_ultralytics("yolov8n-seg"), [SMALL]),
    "fcos": (_whole(tv.detection.fcos_resnet50_fpn, min_size=256, max_size=320), [(1, 3, 256, 320)]),
    "retinanet": (_whole(tv.detection.retinanet_resnet50_fpn, min_size=256, max_size=320), [(1, 3, 256, 320)]),
    "faster_rcnn": (
        _whole(tv.detection.fasterrcnn_mobilenet_v3_large_320_fpn, min_size=256, max_size=320), [(1, 3, 256, 320)],
    ),
}  # fmt: skip
"""Networks of other makers, and whole detectors; any other image classifier has the name of its package and its own."""
PAGE: dict[str, tuple[Callable[[], nn.Module], list[tuple[Any, ...]]]] = {
    "mobilenetv4_conv_small": (_timm("mobilenetv4_conv_small"), [IMAGE]),
    "vit_b_16": (tv.vit_b_16, [IMAGE]),
    "swin_t": (tv.swin_t, [IMAGE]),
    "rt_detr_r50": (
        _hugging(
            "RTDetrForObjectDetection", ("logits", "pred_boxes"), ("pixel_values",), anchor_image_size=[640, 640]
        ),
        [(1, 3, 640, 640)],
    ),
    "segformer_b0": (
        _hugging("SegformerForSemanticSegmentation", ("logits",), ("pixel_values",), num_labels=19),
        [(1, 3, 512, 1024)],
    ),
}  # fmt: skip
"""Networks of docs/zoo.md that have no published ONNX file."""


def emptied(path: Path) -> None:
    """Replace an ONNX file by one with large weights of zero, compressed: NAME.onnx.xz of a few hundred kB."""
    import onnx

    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) >= LARGE and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.raw_data = bytes(len(tensor.raw_data))
    path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(model.SerializeToString(), lzma.FORMAT_XZ))
    path.unlink()


def main() -> None:
    """Write the networks into a folder, and say what the exporter refuses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--exporter", choices=("legacy", "dynamo"), default="legacy")
    parser.add_argument("--page", action="store_true", help="those of docs/zoo.md, with large weights of zero")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.page:
        NETWORKS.update(PAGE)
    for name in options.names or (PAGE if options.page else OTHERS):
        path = options.folder / f"{name.rpartition('/')[2]}.onnx"
        try:
            export(name, path, options.exporter == "dynamo")
            if options.page:
                emptied(path)
        except Exception as error:  # the exporters' errors have no common class
            print(f"{name}: {options.exporter}: {type(error).__name__}: {str(error).strip().splitlines()[0][:200]}")


if __name__ == "__main__":
    main()
