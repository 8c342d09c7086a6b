"""Networks as people export them, as PyTorch modules whose weights follow from a name, and their ONNX files.

Needs PyTorch and torchvision.  The same module is a peer (`torch.compile`) and, exported, our input: both machines make
the same weights, so that none have to travel.  Weights repeat a short random sequence, which keeps compressed constants
small; batch norms scale all channels alike for the same reason.
"""

# mypy: ignore-errors
from __future__ import annotations

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

_PERIOD = 16381  # prime: no row of a weight starts where another does
IMAGE = (1, 3, 224, 224)


def module(name: str) -> nn.Module:
    """Return a network with its weights, in evaluation mode, batch norms folded; KeyError for another name."""
    made = NETWORKS[name][0]().eval()
    for parameter in made.parameters():
        parameter.requires_grad_(False)
    for key, tensor in made.state_dict().items():
        if tensor.is_floating_point() and tensor.numel():
            tensor.copy_(_values(key, tensor.shape))
    return _folded(made)


def inputs(name: str) -> list[np.ndarray[Any, Any]]:
    """Return a network's inputs, the same on every machine."""
    generator = np.random.default_rng(5)
    return [generator.normal(0, 1, shape).astype(np.float16).astype(np.float32) for shape in NETWORKS[name][1]]


def export(name: str, path: Path) -> None:
    """Write a network as ONNX, opset 17, with the exporter that most files come from."""
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no ONNX form
    given = tuple(torch.tensor(array) for array in inputs(name))
    names = [f"input{index}" for index in range(len(given))]
    torch.onnx.export(module(name), given, str(path), opset_version=17, dynamo=False, input_names=names)


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
    """CenterPoint's backbone, neck and heads (Yin et al., CVPR 2021; pillars of nuScenes, 512 x 512 cells halved)."""

    def __init__(self) -> None:
        super().__init__()

        def conv(given: int, made: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(nn.Conv2d(given, made, 3, stride, 1, bias=False), nn.BatchNorm2d(made), nn.ReLU())

        def block(given: int, made: int, count: int) -> nn.Module:
            return nn.Sequential(conv(given, made, 2), *(conv(made, made) for _ in range(count)))

        def up(given: int, scale: int) -> nn.Module:
            return nn.Sequential(nn.ConvTranspose2d(given, 128, scale, scale), nn.ReLU())

        self.blocks = nn.ModuleList((block(64, 64, 3), block(64, 128, 5), block(128, 256, 5)))
        self.up = nn.ModuleList((up(64, 1), up(128, 2), up(256, 4)))
        self.shared = conv(384, 64)
        self.heads = nn.ModuleList(
            nn.Sequential(conv(64, 64), nn.Conv2d(64, made, 3, padding=1)) for made in (2, 1, 3, 2, 2, 10)
        )

    def forward(self, x):
        found = []
        for block, up in zip(self.blocks, self.up, strict=True):
            x = block(x)
            found.append(up(x))
        x = self.shared(torch.cat(found, 1))
        return tuple(head(x) for head in self.heads)


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
    "gru_predictor": (Predictor, [(64, 20, 8)]),
}
"""By name: how a network is made, and the shapes of its inputs."""
