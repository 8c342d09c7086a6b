"""Definitions of networks that no package of models has: CenterNet, SSD300 with ResNet-50, PIDNet-S; needs torch.

Written from the papers and the configurations of their public code; sizes and layers are theirs, weights random.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import interpolate, relu


def _features(name: str) -> dict[str, nn.Module]:
    return dict(torchvision.models.get_model(name, weights=None).named_children())


class Heads(nn.Module):
    """Several outputs of one trunk."""

    def __init__(self, trunk: nn.Module, heads: list[nn.Module]) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, nn.ModuleList(heads)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        found = self.trunk(image)
        return tuple(head(found) for head in self.heads)


def centernet() -> nn.Module:
    """Return CenterNet with ResNet-18 and plain deconvolutions, 80 classes (Zhou et al. 2019, section 5; `res_18`)."""
    parts = _features("resnet18")
    layers = [module for name, module in parts.items() if name not in ("avgpool", "fc")]
    width = 512
    for _ in range(3):
        layers += [nn.ConvTranspose2d(width, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
        width = 256
    heads: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(256, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, channels, 1))
        for channels in (80, 2, 2)
    ]
    heads[0] = nn.Sequential(heads[0], nn.Sigmoid())
    return Heads(nn.Sequential(*layers), heads)


class _Ssd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts = _features("resnet50")
        names = ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3")
        self.trunk = nn.Sequential(*(parts[name] for name in names))
        first: Any = self.trunk[-1][0]
        first.conv1.stride = first.conv2.stride = first.downsample[0].stride = (1, 1)
        widths, inner = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.more = nn.ModuleList()
        for place, middle in enumerate(inner):
            near = place < 3
            last = nn.Conv2d(middle, widths[place + 1], 3, 2 if near else 1, int(near), bias=False)
            self.more.append(
                nn.Sequential(
                    nn.Conv2d(widths[place], middle, 1, bias=False),
                    nn.BatchNorm2d(middle),
                    nn.ReLU(),
                    last,
                    nn.BatchNorm2d(widths[place + 1]),
                    nn.ReLU(),
                )
            )
        anchors = (4, 6, 6, 6, 4, 4)
        self.boxes = nn.ModuleList(nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in zip(widths, anchors, strict=True))
        self.classes = nn.ModuleList(nn.Conv2d(w, 81 * n, 3, padding=1) for w, n in zip(widths, anchors, strict=True))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.trunk(image)]
        for block in self.more:
            maps.append(block(maps[-1]))
        boxes = [head(x).view(1, 4, -1) for head, x in zip(self.boxes, maps, strict=True)]
        classes = [head(x).view(1, 81, -1) for head, x in zip(self.classes, maps, strict=True)]
        return torch.cat(boxes, 2), torch.cat(classes, 2)


def ssd_resnet50() -> nn.Module:
    """Return SSD300 with ResNet-50 up to its fourth group at stride 8, 8732 anchors (NVIDIA's SSD300 v1.1)."""
    return _Ssd()


def _conv(cin: int, cout: int, kernel: int = 1, stride: int = 1, **more: Any) -> nn.Sequential:
    layers = [nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False, **more), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers)


def _before(cin: int, cout: int, kernel: int = 1, **more: Any) -> nn.Sequential:
    """Return batch norm, ReLU and a convolution."""
    conv = nn.Conv2d(cin, cout, kernel, padding=kernel // 2, bias=False, **more)
    return nn.Sequential(nn.BatchNorm2d(cin), nn.ReLU(), conv)


class _Residual(nn.Module):
    """A basic block or a bottleneck (output twice its width), without the last ReLU where `last`."""

    def __init__(self, cin: int, width: int, stride: int = 1, narrow: bool = False, last: bool = False) -> None:
        super().__init__()
        cout = 2 * width if narrow else width
        if narrow:
            self.path = nn.Sequential(
                _conv(cin, width), nn.ReLU(), _conv(width, width, 3, stride), nn.ReLU(), _conv(width, cout)
            )
        else:
            self.path = nn.Sequential(_conv(cin, width, 3, stride), nn.ReLU(), _conv(width, width, 3))
        self.short = _conv(cin, cout, 1, stride) if stride > 1 or cin != cout else nn.Identity()
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        found = self.path(x) + self.short(x)
        return found if self.last else relu(found)


def _group(cin: int, width: int, count: int, stride: int = 1) -> nn.Sequential:
    blocks = [_Residual(cin, width, stride)]
    blocks += [_Residual(width, width, last=place == count - 1) for place in range(1, count)]
    return nn.Sequential(*blocks)


def _sized(x: Tensor, like: Tensor) -> Tensor:
    return interpolate(x, [int(like.shape[2]), int(like.shape[3])], mode="bilinear", align_corners=False)


class _Attend(nn.Module):
    """Pixel-attention-guided fusion (section 3.2)."""

    def __init__(self, cin: int, width: int) -> None:
        super().__init__()
        self.x, self.y = _conv(cin, width), _conv(cin, width)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        gate = torch.sigmoid((self.x(x) * _sized(self.y(y), x)).sum(1, keepdim=True))
        return (1 - gate) * x + gate * _sized(y, x)


class _Pool(nn.Module):
    """Parallel aggregation pyramid pooling (section 3.3)."""

    def __init__(self, cin: int, width: int, cout: int) -> None:
        super().__init__()
        pools = [nn.AvgPool2d(2 * step + 1, step, step) for step in (2, 4, 8)] + [nn.AdaptiveAvgPool2d(1)]
        self.scales = nn.ModuleList(nn.Sequential(pool, _before(cin, width)) for pool in pools)
        self.first, self.mix = _before(cin, width), _before(4 * width, 4 * width, 3, groups=4)
        self.last, self.short = _before(5 * width, cout), _before(cin, cout)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        found = self.mix(torch.cat([_sized(scale(x), x) + first for scale in self.scales], 1))
        return self.last(torch.cat([first, found], 1)) + self.short(x)


class _Pid(nn.Module):
    """Proportional, integral and derivative branch (figure 5), at 1/8 of the image's size."""

    def __init__(self, p: int = 32, pool: int = 96, head: int = 128, classes: int = 19) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, p, 3, 2), nn.ReLU(), _conv(p, p, 3, 2), nn.ReLU())
        self.layer1, self.layer2 = _group(p, p, 2), _group(p, 2 * p, 2, 2)
        self.layer3, self.layer4 = _group(2 * p, 4 * p, 3, 2), _group(4 * p, 8 * p, 3, 2)
        self.layer5 = nn.Sequential(
            _Residual(8 * p, 8 * p, 2, narrow=True), _Residual(16 * p, 8 * p, narrow=True, last=True)
        )
        self.small3, self.small4 = _conv(4 * p, 2 * p), _conv(8 * p, 2 * p)
        self.attend3, self.attend4 = _Attend(2 * p, p), _Attend(2 * p, p)
        self.p3, self.p4 = _group(2 * p, 2 * p, 2), _group(2 * p, 2 * p, 2)
        self.p5 = _Residual(2 * p, 2 * p, narrow=True, last=True)
        self.d3, self.d4 = _Residual(2 * p, p, last=True), _Residual(p, p, narrow=True, last=True)
        self.d5 = _Residual(2 * p, 2 * p, narrow=True, last=True)
        self.edge3, self.edge4 = _conv(4 * p, p, 3), _conv(8 * p, 2 * p, 3)
        self.pool = _Pool(16 * p, pool, 4 * p)
        self.join_p, self.join_i = _conv(4 * p, 4 * p), _conv(4 * p, 4 * p)
        self.head = nn.Sequential(_before(4 * p, head, 3), nn.BatchNorm2d(head), nn.ReLU(), nn.Conv2d(head, classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        x = relu(self.layer2(relu(self.layer1(self.stem(image)))))
        p, d = self.p3(x), self.d3(x)
        x = relu(self.layer3(x))
        p, d = self.attend3(p, self.small3(x)), d + _sized(self.edge3(x), d)
        x = relu(self.layer4(x))
        p, d = self.p4(relu(p)), self.d4(relu(d))
        p, d = self.attend4(p, self.small4(x)), d + _sized(self.edge4(x), d)
        p, d = self.p5(relu(p)), self.d5(relu(d))
        i = _sized(self.pool(self.layer5(x)), p)
        edge = torch.sigmoid(d)
        found: Tensor = self.head(self.join_p((1 - edge) * i + p) + self.join_i(i + edge * p))
        return found


def pidnet_s() -> nn.Module:
    """Return PIDNet-S for Cityscapes (Xu, Xiong, Bhattacharyya 2023; 7.6 million weights)."""
    return _Pid()
