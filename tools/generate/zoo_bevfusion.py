"""The dense networks of CUDA-BEVFusion (ResNet-50) and CUDA-CenterPoint (VoxelNet, 0.075 m); needs torch.

Written from the papers (Liu et al. 2022; Yin et al. 2021; Bai et al. 2022 for the head) and the public configurations
`transfusion/secfpn/camera+lidar/resnet50` and `nusc_centerpoint_voxelnet_0075voxel`: six images of 256 x 704, 118
depths, a grid of 360 x 360 halved once, ten classes.  Both have a sparse 3D backbone before, which is no ONNX network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import interpolate

CAMERAS, IMAGE, DEPTHS, LIFTED = 6, (256, 704), 118, 80
SIDE, SWEPT, HIDDEN, PROPOSALS, CLASSES = 180, 256, 128, 200, 10
TASKS = (1, 2, 2, 1, 2, 2)
"""Classes of CenterPoint's six heads."""
BRANCHES = (2, 1, 3, 2, 2)
"""Outputs beside the heatmap: offset, height, size, rotation, velocity."""

Exported = tuple[Any, tuple[Any, ...], list[str]]


def _conv(given: int, made: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(given, made, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(made), nn.ReLU())


class _Second(nn.Module):
    """Two stages of six convolutions, brought to one size and joined (SECOND and its neck)."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(_conv(SWEPT, 128), *(_conv(128, 128) for _ in range(5)))
        self.two = nn.Sequential(_conv(128, 256, stride=2), *(_conv(256, 256) for _ in range(5)))
        self.same = _conv(128, 256, 1)
        self.up = nn.Sequential(nn.ConvTranspose2d(256, 256, 2, 2, bias=False), nn.BatchNorm2d(256), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        one = self.one(x)
        return torch.cat([self.same(one), self.up(self.two(one))], 1)


class _Camera(nn.Module):
    """Backbone, neck, depths and features of every pixel of the images' maps (stride 8)."""

    def __init__(self) -> None:
        super().__init__()
        parts = dict(torchvision.models.resnet50(weights=None).named_children())
        self.stem = nn.Sequential(*(parts[name] for name in ("conv1", "bn1", "relu", "maxpool", "layer1")))
        self.stages = nn.ModuleList(parts[f"layer{number}"] for number in (2, 3, 4))
        self.lateral = nn.ModuleList([_conv(512 + 256, 256, 1), _conv(1024 + 2048, 256, 1)])
        self.smooth = nn.ModuleList([_conv(256, 256), _conv(256, 256)])
        self.depth = nn.Sequential(_conv(1, 8, 1), _conv(8, 32, 5, 4), _conv(32, 64, 5, 2))
        self.lift = nn.Sequential(_conv(256 + 64, 256), _conv(256, 256), nn.Conv2d(256, DEPTHS + LIFTED, 1))

    def forward(self, images: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        maps, x = [], self.stem(images)
        for stage in self.stages:
            maps.append(x := stage(x))
        for level in (1, 0):
            x = interpolate(x, size=maps[level].shape[2:], mode="bilinear", align_corners=False)
            x = self.smooth[level](self.lateral[level](torch.cat([maps[level], x], 1)))
        lifted = self.lift(torch.cat([self.depth(points), x], 1))
        return lifted[:, :DEPTHS].softmax(1), lifted[:, DEPTHS:].permute(0, 2, 3, 1)


class _Fuser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.join, self.decoder = _conv(LIFTED + SWEPT, SWEPT), _Second()

    def forward(self, camera: Tensor, lidar: Tensor) -> Tensor:
        found: Tensor = self.decoder(self.join(torch.cat([camera, lidar], 1)))
        return found


class _Boxes(nn.Module):
    """Heatmap, the best cells as queries, one layer of a decoder over the whole grid (TransFusion)."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Conv2d(512, HIDDEN, 3, padding=1)
        self.heat = nn.Sequential(_conv(HIDDEN, HIDDEN), nn.Conv2d(HIDDEN, CLASSES, 3, padding=1))
        self.own, self.cross = (nn.MultiheadAttention(HIDDEN, 8, batch_first=True) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(HIDDEN, 256), nn.ReLU(), nn.Linear(256, HIDDEN))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(3))
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(HIDDEN, 64), nn.ReLU(), nn.Linear(64, n)) for n in (*BRANCHES, CLASSES)
        )
        self.place = nn.Parameter(torch.zeros(1, SIDE * SIDE, HIDDEN))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        grid = self.shared(x)
        heat = self.heat(grid).sigmoid()
        best = heat.flatten(1).topk(PROPOSALS).indices % (SIDE * SIDE)
        cells = grid.flatten(2).transpose(1, 2)
        query = cells[:, best[0]]
        query = self.norms[0](query + self.own(query, query, query, need_weights=False)[0])
        key = cells + self.place
        query = self.norms[1](query + self.cross(query, key, key, need_weights=False)[0])
        query = self.norms[2](query + self.feed(query))
        return (heat, *(head(query) for head in self.heads))


class _CenterHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.neck, self.shared = _Second(), _conv(512, 64)
        outputs = [n for classes in TASKS for n in (*BRANCHES, classes)]
        self.heads = nn.ModuleList(nn.Sequential(_conv(64, 64), nn.Conv2d(64, n, 3, padding=1)) for n in outputs)

    def forward(self, x: Tensor) -> Sequence[Tensor]:
        shared = self.shared(self.neck(x))
        return tuple(head(shared) for head in self.heads)


def camera() -> Exported:
    """Return the camera network, inputs of zeros, and their names."""
    inputs = torch.zeros(CAMERAS, 3, *IMAGE), torch.zeros(CAMERAS, 1, *IMAGE)
    return _Camera(), inputs, ["images", "points"]


def grid() -> Exported:
    """Return the network that halves the grid of lifted pixels."""
    net = nn.Sequential(_conv(LIFTED, LIFTED), _conv(LIFTED, LIFTED, stride=2), _conv(LIFTED, LIFTED))
    return net, (torch.zeros(1, LIFTED, 2 * SIDE, 2 * SIDE),), ["lifted"]


def fuser() -> Exported:
    """Return the network that joins camera and LiDAR."""
    return _Fuser(), (torch.zeros(1, LIFTED, SIDE, SIDE), torch.zeros(1, SWEPT, SIDE, SIDE)), ["camera", "lidar"]


def boxes() -> Exported:
    """Return the head."""
    return _Boxes(), (torch.zeros(1, 512, SIDE, SIDE),), ["grid"]


def centerpoint() -> Exported:
    """Return CenterPoint's dense part."""
    return _CenterHeads(), (torch.zeros(1, SWEPT, SIDE, SIDE),), ["swept"]
