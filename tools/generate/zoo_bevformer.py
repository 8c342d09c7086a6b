"""BEVFormer-tiny as one ONNX graph: six cameras, a bird's-eye grid of 50 x 50 and the previous one; needs torch.

Written from the paper (Li et al. 2022) and the public configuration `bevformer_tiny`: ResNet-50 with one feature map of
stride 32, three encoder and six decoder layers, width 256, eight heads, 900 queries, ten classes.  What the cameras'
geometry gives is an input: where the anchors of a cell are in each image, and which cells an image shows.  So are the
learnt queries of the decoder, whose first layer has no other operand.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn.functional import grid_sample

WIDTH, HEADS, SIDE, CAMERAS, ANCHORS, QUERIES = 256, 8, 50, 6, 4, 900
IMAGE = (480, 800)
QUARTER = (256, 416)
"""Images of UniAD-tiny, whose camera network and grid are of this form."""


class _Deformable(nn.Module):
    """Deformable attention over `frames` maps of one size (Zhu et al. 2021, equation 2), `points` for each head."""

    def __init__(self, points: int, frames: int = 1, wide: int = 1) -> None:
        super().__init__()
        self.points, self.frames = points, frames
        self.value = nn.Linear(WIDTH, WIDTH)
        self.offsets = nn.Linear(wide * WIDTH, frames * HEADS * points * 2)
        self.weights = nn.Linear(wide * WIDTH, frames * HEADS * points)

    def forward(self, query: Tensor, value: Tensor, reference: Tensor, size: tuple[int, int]) -> Tensor:
        """Take a query [queries, wide x 256], values [maps, cells, 256], references [maps, queries, points or 1, 2].

        Return [maps, queries, 256].
        """
        count, maps, n = int(query.shape[0]), int(value.shape[0]), self.points
        frames = maps if self.frames > 1 else 1
        offsets = self.offsets(query).view(count, frames, HEADS, n, 2).permute(1, 2, 0, 3, 4)
        weights = self.weights(query).view(count, frames, HEADS, n).softmax(-1).permute(1, 2, 0, 3)
        scale = torch.tensor([2.0 / size[1], 2.0 / size[0]])
        places = (2 * reference - 1).unsqueeze(1) + offsets * scale
        image = self.value(value).view(maps, size[0], size[1], HEADS, WIDTH // HEADS).permute(0, 3, 4, 1, 2)
        found = grid_sample(
            image.reshape(maps * HEADS, WIDTH // HEADS, *size), places.reshape(maps * HEADS, count, n, 2),
            align_corners=False,
        ).view(maps, HEADS, WIDTH // HEADS, count, n)  # fmt: skip
        summed = (found * weights.unsqueeze(2)).sum(-1)
        return summed.permute(0, 3, 1, 2).reshape(maps, count, WIDTH)


class _Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x + self.path(x))
        return found


class _Encoder(nn.Module):
    """Temporal self-attention, spatial cross-attention, feed-forward (figure 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.past, self.past_out = _Deformable(4, frames=2, wide=2), nn.Linear(WIDTH, WIDTH)
        self.cameras, self.cameras_out = _Deformable(8), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2, self.feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), _Feed()

    def forward(
        self,
        bev: Tensor,
        place: Tensor,
        before: Tensor,
        cells: Tensor,
        maps: Tensor,
        anchors: Tensor,
        seen: Tensor,
        size: tuple[int, int],
    ) -> Tensor:
        both = self.past(torch.cat([before, bev + place], 1), torch.stack([before, bev]), cells, (SIDE, SIDE))
        bev = self.norm1(bev + self.past_out(both.mean(0)))
        views = self.cameras(bev + place, maps, anchors, size) * seen.unsqueeze(2)
        mean = views.sum(0) / seen.sum(0).clamp(min=1.0).unsqueeze(1)
        return self.feed(self.norm2(bev + self.cameras_out(mean)))  # type: ignore[no-any-return]


class _Decoder(nn.Module):
    """Self-attention of the queries, deformable attention over the grid, feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.v, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.grid, self.grid_out = _Deformable(4), nn.Linear(WIDTH, WIDTH)
        self.norm1, self.norm2, self.feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), _Feed()

    def forward(self, query: Tensor, place: Tensor, bev: Tensor, reference: Tensor) -> Tensor:
        q, k = self.qk(query + place).view(QUERIES, 2, HEADS, -1).permute(1, 2, 0, 3).unbind(0)
        v = self.v(query).view(QUERIES, HEADS, -1).transpose(0, 1)
        shares = (q @ k.transpose(1, 2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        query = self.norm1(query + self.out((shares @ v).transpose(0, 1).reshape(QUERIES, WIDTH)))
        found = self.grid(query + place, bev.unsqueeze(0), reference.view(1, QUERIES, 1, 2), (SIDE, SIDE))
        return self.feed(self.norm2(query + self.grid_out(found.view(QUERIES, WIDTH))))  # type: ignore[no-any-return]


def _branch(outputs: int, norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(2):
        layers += [nn.Linear(WIDTH, WIDTH), *([nn.LayerNorm(WIDTH)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


class _BevFormer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts = dict(torchvision.models.resnet50(weights=None).named_children())
        self.backbone = nn.Sequential(*(part for name, part in parts.items() if name not in ("avgpool", "fc")))
        self.neck = nn.Sequential(nn.Conv2d(2048, WIDTH, 1), nn.Conv2d(WIDTH, WIDTH, 3, padding=1))
        self.bev = nn.Parameter(torch.randn(SIDE * SIDE, WIDTH))
        self.place = nn.Parameter(torch.randn(SIDE * SIDE, WIDTH))
        self.camera = nn.Parameter(torch.randn(CAMERAS, 1, WIDTH))
        self.motion = nn.Sequential(
            nn.Linear(18, WIDTH // 2), nn.ReLU(), nn.Linear(WIDTH // 2, WIDTH), nn.ReLU(), nn.LayerNorm(WIDTH)
        )
        self.reference = nn.Linear(WIDTH, 3)
        self.encoder = nn.ModuleList(_Encoder() for _ in range(3))
        self.decoder = nn.ModuleList(_Decoder() for _ in range(6))
        self.boxes = nn.ModuleList(_branch(10, False) for _ in range(6))
        self.classes = _branch(10, True)
        line = (torch.arange(SIDE) + 0.5) / SIDE
        y, x = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("cells", torch.stack([x, y], -1).reshape(1, -1, 1, 2).repeat(2, 1, 1, 1))

    def forward(
        self,
        images: Tensor,
        before: Tensor,
        motion: Tensor,
        anchors: Tensor,
        seen: Tensor,
        query: Tensor,
        place: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        cells: Any = self.cells
        maps = self.neck(self.backbone(images))
        size = int(maps.shape[2]), int(maps.shape[3])
        maps = maps.flatten(2).transpose(1, 2) + self.camera
        bev = self.bev + self.motion(motion)
        both = torch.cat([anchors, anchors], 2)  # two points for each anchor
        for layer in self.encoder:
            bev = layer(bev, self.place, before, cells, maps, both, seen, size)
        reference = self.reference(place)
        for layer, branch in zip(self.decoder, self.boxes, strict=True):
            query = layer(query, place, bev, torch.sigmoid(reference[:, :2]))
            box = branch(query)
            reference = reference + torch.cat([box[:, :2], box[:, 4:5]], 1)
        return bev, self.classes(query), torch.cat([torch.sigmoid(reference), box], 1)


def bevformer_tiny(image: tuple[int, int] = IMAGE) -> tuple[Any, tuple[Any, ...], list[str]]:
    """Return the network, inputs of zeros, and the inputs' names."""
    inputs = (
        torch.zeros(CAMERAS, 3, *image),
        torch.zeros(SIDE * SIDE, WIDTH),
        torch.zeros(1, 18),
        torch.zeros(CAMERAS, SIDE * SIDE, ANCHORS, 2),
        torch.zeros(CAMERAS, SIDE * SIDE),
        torch.zeros(QUERIES, WIDTH),
        torch.zeros(QUERIES, WIDTH),
    )
    return _BevFormer(), inputs, ["images", "before", "motion", "anchors", "seen", "query", "place"]
