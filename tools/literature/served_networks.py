"""The networks that serving papers share a GPU among, in PyTorch with random weights, as `gpu_shares.py` times them.

Half precision, channels last, batch norm folded; LeNet and SSD on MobileNet are written here, BERT's base encoder too
(128 tokens), PointPillars is this project's (backbone, neck and heads), the others are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torchvision
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tools.bench.torch_networks import pointpillars, random_weights, torch_forward

BATCHES = (1, 4, 8, 16, 32)
TOKENS = 128


class LeNet(nn.Sequential):
    """LeNet-5 (LeCun et al., 1998) with ReLU and maxima, on 28 x 28."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip


def _conv(inside: int, outside: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outside), nn.ReLU(inplace=True)]


class Ssd(nn.Module):
    """SSD (Liu et al., ECCV 2016) on MobileNet (Howard et al., 2017), 300 x 300, 91 classes, without suppression."""

    def __init__(self) -> None:
        super().__init__()
        wide = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), *[(512, s) for s in (2, 1, 1, 1, 1, 1)])
        self.parts = nn.ModuleList([nn.Sequential(*_conv(3, 32, 3, 2), *self._separable(32, wide))])
        self.parts.append(nn.Sequential(*self._separable(512, ((1024, 2), (1024, 1)))))
        before = 1024
        for after in (512, 256, 256, 128):
            self.parts.append(nn.Sequential(*_conv(before, after // 2), *_conv(after // 2, after, 3, 2)))
            before = after
        maps = zip((512, 1024, 512, 256, 256, 128), (3, 6, 6, 6, 6, 6), strict=True)
        self.heads = nn.ModuleList([nn.Conv2d(inside, anchors * (91 + 4), 1) for inside, anchors in maps])

    @staticmethod
    def _separable(inside: int, blocks: tuple[tuple[int, int], ...]) -> list[nn.Module]:
        layers: list[nn.Module] = []
        for outside, stride in blocks:
            layers += _conv(inside, inside, 3, stride, inside) + _conv(inside, outside)
            inside = outside
        return layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = []
        for part, head in zip(self.parts, self.heads, strict=True):
            x = part(x)
            found.append(head(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, 95))
        return torch.cat(found, 1)


class Bert(nn.Module):
    """The base encoder of BERT (Devlin et al., 2019): 12 layers of 768, 12 heads, a classifier on the first token."""

    def __init__(self, wide: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(30522, wide), nn.Parameter(torch.randn(TOKENS, wide) * 0.02)
        self.first = nn.LayerNorm(wide)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    *(nn.Linear(wide, 3 * wide), nn.Linear(wide, wide), nn.LayerNorm(wide)),
                    *(nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide), nn.LayerNorm(wide)),
                ]
            )
            for _ in range(layers)
        )
        self.classes = nn.Linear(wide, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.first(self.words(tokens) + self.places)
        batch, count, wide = x.shape
        for project, out, norm, up, down, last in self.layers:
            q, k, v = project(x).view(batch, count, 3, 12, wide // 12).permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, count, wide)
            x = norm(x + out(mixed))
            x = last(x + down(functional.gelu(up(x))))
        return self.classes(x[:, 0])


def _pointpillars() -> tuple[Callable[..., Any], Callable[[int], torch.Tensor]]:
    network = pointpillars()
    forward = torch_forward(network, random_weights(network), torch, torch.float16)
    return forward, lambda batch: _image(batch, 64, 496, 432)


def _tokens(batch: int) -> torch.Tensor:
    return torch.randint(0, 30522, (batch, TOKENS), device="cuda")


def _image(batch: int, channels: int, height: int, width: int) -> torch.Tensor:
    image = torch.randn(batch, channels, height, width, device="cuda", dtype=torch.float16)
    return image.to(memory_format=torch.channels_last)


def _made(module: Callable[[], nn.Module], shape: tuple[int, int, int]) -> Callable[[], Any]:
    def make() -> tuple[Callable[..., Any], Callable[[int], torch.Tensor]]:
        return folded(module(), shape), lambda batch: _image(batch, *shape)

    return make


def _bert() -> tuple[Callable[..., Any], Callable[[int], torch.Tensor]]:
    return Bert().cuda().half().eval(), _tokens


def folded(module: nn.Module, shape: tuple[int, int, int], device: str = "cuda") -> nn.Module:
    """Return a network in half precision, channels last, its batch norms folded into the convolutions before them.

    Their means and variances are those of random images first, so that values keep their size through the layers.
    ArithmeticError when what is folded does not compute what was there before.
    """
    module = module.to(device).train()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 1.0
    images = torch.randn(8, *shape, device=device)
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        module(images)
        expected = module.eval()(images)
        for parent in list(module.modules()):
            children = list(parent.named_children())
            for (name, conv), (after, norm) in pairwise(children):
                if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    setattr(parent, name, fuse_conv_bn_eval(conv, norm))
                    setattr(parent, after, nn.Identity())
        error = float((module(images) - expected).abs().max() / expected.abs().max())
    if not error < 1e-3:
        raise ArithmeticError(f"{type(module).__name__}: folding moves results by {error:.1e}")
    return module.half().to(memory_format=torch.channels_last)


def _vision(name: str, **options: Any) -> Callable[[], Any]:
    return _made(lambda: torchvision.models.get_model(name, weights=None, **options), (3, 224, 224))


NETWORKS: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
    "lenet": (BATCHES, _made(LeNet, (1, 28, 28))),
    "googlenet": (BATCHES, _vision("googlenet", aux_logits=False, init_weights=False)),
    "resnet50": (BATCHES, _vision("resnet50")),
    "ssd": (BATCHES, _made(Ssd, (3, 300, 300))),
    "vgg16": (BATCHES, _vision("vgg16")),
    "mnasnet1_0": (BATCHES, _vision("mnasnet1_0")),
    "mobilenet_v2": (BATCHES, _vision("mobilenet_v2")),
    "densenet161": (BATCHES, _vision("densenet161")),
    "bert": (BATCHES, _bert),
    "pointpillars": ((1, 2, 4), _pointpillars),
}
"""Name (as gpulet's authors call them) -> batches, and a function that returns the network and one that makes input."""
