"""What training PointPillars takes beyond the network's own modules: batch norm, voxels on the device, targets, losses.

The module is made from the project's own network descriptions, so that what is trained is what is compiled; anchors,
box coding and directions are those `models.pointpillars.decode` expects.  References: Yan et al., SECOND, Sensors 2018,
section 3.2 (targets, sine of the angle's error, directions); Lin et al., Focal Loss for Dense Object Detection,
ICCV 2017, equation 5; Lang et al., PointPillars, CVPR 2019, section 4 (matching thresholds, weights of the losses).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from socsched.graph.network import Network
from socsched.models.pointpillars.boxes import PER_CELL, ROTATIONS, SIZES, STRIDE, map_shape
from socsched.models.pointpillars.grid import KITTI

NX, NY, _ = KITTI.cells
ROWS, COLUMNS = map_shape(KITTI)
MATCH = ((0.5, 0.35), (0.5, 0.35), (0.6, 0.45))
"""IoU from which an anchor is an object's, and below which it is background, by class."""
EPS, MOMENTUM = 1e-3, 0.03


def ignored(label: int) -> int:
    """Return the label of an object that is neither to be found as class `label` nor background for it."""
    return -2 - label


class Pillars(nn.Module):
    """Pillar feature net on live points: linear, batch norm over them, maximum of a pillar with its empty slots."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(9, channels, bias=False)
        self.norm = nn.BatchNorm1d(channels, eps=EPS, momentum=MOMENTUM)

    def forward(self, features: Tensor, pillar: Tensor, counts: Tensor, slots: int) -> Tensor:
        y = self.linear(features)
        if self.training:
            mean, var = y.mean(0), y.var(0, unbiased=False)
            with torch.no_grad():
                self.norm.running_mean.lerp_(mean, MOMENTUM)
                self.norm.running_var.lerp_(var, MOMENTUM)
        else:
            mean, var = self.norm.running_mean, self.norm.running_var
        scale = self.norm.weight * torch.rsqrt(var + EPS)
        bias = self.norm.bias - mean * scale
        live = torch.full((len(counts), y.shape[1]), -1e9, device=y.device)
        live = live.scatter_reduce(0, pillar[:, None].expand_as(y), y * scale + bias, "amax", include_self=False)
        padded = torch.where((counts < slots)[:, None], torch.maximum(live, bias), live)
        return F.relu(padded)


class Detector(nn.Module):
    """The networks of `models.pointpillars.small` with a batch norm behind every convolution but the heads'."""

    def __init__(self, pfn: Network, backbone: Network, head: Network) -> None:
        super().__init__()
        self.pfn = Pillars(pfn.params["pfn.weight"][0])
        self.layers, self.norms = nn.ModuleDict(), nn.ModuleDict()
        self.plan = [*backbone.layers, *head.layers]
        self.heads = head.outputs
        shapes = {**backbone.params, **head.params}
        for layer in self.plan:
            if layer.op not in ("conv2d", "conv2d_transpose"):
                continue
            shape, last = shapes[layer.weights["weight"]], layer.name in head.outputs
            kernel, stride = shape[2], layer.attrs["stride"]
            if layer.op == "conv2d":
                made = nn.Conv2d(shape[1], shape[0], kernel, stride, layer.attrs["padding"], bias=last)
                width = shape[0]
            else:
                made = nn.ConvTranspose2d(shape[0], shape[1], kernel, stride, bias=last)
                width = shape[1]
            nn.init.kaiming_normal_(made.weight, mode="fan_in" if layer.op == "conv2d" else "fan_out")
            key = layer.name.replace(".", "_")
            self.layers[key] = made
            if last:
                nn.init.normal_(made.weight, std=0.01)
                nn.init.constant_(made.bias, -math.log(99) if layer.name == "cls" else 0)
            else:
                self.norms[key] = nn.BatchNorm2d(width, eps=EPS, momentum=MOMENTUM)

    def forward(self, canvas: Tensor) -> dict[str, Tensor]:
        values = {"canvas": canvas}
        for layer in self.plan:
            key = layer.name.replace(".", "_")
            given = [values[name] for name in layer.inputs if name in values]
            if key in self.layers:
                value = self.layers[key](given[0])
                values[layer.name] = self.norms[key](value) if key in self.norms else value
            elif layer.op == "relu":
                values[layer.name] = F.relu(given[0], inplace=True)
            elif layer.op == "concat":
                values[layer.name] = torch.cat(given, 1)
            else:
                raise ValueError(f"no training form of {layer.op!r}")
        return {name: values[name] for name in self.heads}

    def maps(self, voxels: Voxels, batch: int, half: torch.dtype | None) -> dict[str, Tensor]:
        """Return the head's maps of a batch; the pillar feature net runs in fp32, the rest in `half` if given."""
        features = self.pfn(voxels.features, voxels.pillar, voxels.counts, voxels.slots)
        kind = half or torch.float32
        canvas = torch.zeros(batch * NY * NX, features.shape[1], dtype=kind, device=features.device)
        canvas = canvas.index_copy(0, voxels.cells, features.to(kind))
        canvas = canvas.view(batch, NY, NX, -1).permute(0, 3, 1, 2)  # channels last in memory
        with torch.autocast(canvas.device.type, dtype=kind, enabled=half is not None):
            return self(canvas)


def folded(model: Detector) -> dict[str, np.ndarray]:
    """Return the parameters under the project's names, batch norm folded into weights and biases, fp32."""
    arrays: dict[str, Tensor] = {}
    norm = model.pfn.norm
    scale = norm.weight / torch.sqrt(norm.running_var + EPS)
    arrays["pfn.weight"] = model.pfn.linear.weight * scale[:, None]
    arrays["pfn.bias"] = norm.bias - norm.running_mean * scale
    for layer in model.plan:
        key = layer.name.replace(".", "_")
        if key not in model.layers:
            continue
        weight, bias = model.layers[key].weight, model.layers[key].bias
        if key in model.norms:
            norm = model.norms[key]
            scale = norm.weight / torch.sqrt(norm.running_var + EPS)
            along = (-1, 1, 1, 1) if layer.op == "conv2d" else (1, -1, 1, 1)
            weight, bias = weight * scale.view(along), norm.bias - norm.running_mean * scale
        arrays[layer.weights["weight"]], arrays[layer.weights["bias"]] = weight, bias
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in arrays.items()}


@dataclass
class Voxels:
    """Live points of a batch: decorated features [T, 9], pillar of each [T]; counts [P], cell numbers [P]."""

    features: Tensor
    pillar: Tensor
    counts: Tensor
    cells: Tensor
    slots: int = 32


def voxels(points: Tensor, sample: Tensor, slots: int = 32) -> Voxels:
    """Return the pillars of points [N, 4] of samples [N], as `models.pointpillars.voxelise` and `pillar_features`."""
    low = torch.tensor(KITTI.low, device=points.device)
    size = torch.tensor(KITTI.pillar, device=points.device)
    scaled = (points[:, :3] - low) / size
    limits = torch.tensor(KITTI.cells, device=points.device)
    inside = ((scaled >= 0) & (scaled < limits)).all(1)
    points, sample, at = points[inside], sample[inside], scaled[inside].long()
    cell = (sample * NY + at[:, 1]) * NX + at[:, 0]
    cell, order = torch.sort(cell, stable=True)
    points = points[order]
    cells, pillar, held = torch.unique_consecutive(cell, return_inverse=True, return_counts=True)
    slot = torch.arange(len(cell), device=cell.device) - (held.cumsum(0) - held)[pillar]
    kept = slot < slots
    points, pillar, counts = points[kept], pillar[kept], held.clamp(max=slots)
    sums = torch.zeros(len(cells), 3, device=points.device).index_add_(0, pillar, points[:, :3])
    mean = sums / counts[:, None]
    x, y = cells % NX, cells // NX % NY
    middle = torch.stack([x, y], 1) * size[:2] + (low[:2] + size[:2] / 2)
    features = torch.cat([points, points[:, :3] - mean[pillar], points[:, :2] - middle[pillar]], 1)
    return Voxels(features, pillar, counts, cells, slots)


@dataclass
class Targets:
    """Per anchor, flat over the batch [B * ROWS * COLUMNS * PER_CELL]: object (-1 none), and whether it counts."""

    object: Tensor
    counts: Tensor


def anchor_kinds(device: torch.device) -> Tensor:
    """Return the anchors of one cell at the origin [PER_CELL, 7]."""
    kinds = [(0.0, 0.0, z, w, length, h, ry) for w, length, h, z in SIZES for ry in ROTATIONS]
    return torch.tensor(kinds, device=device)


def match(boxes: Tensor, labels: Tensor, sample: Tensor, batch: int) -> Targets:
    """Return the targets of objects: boxes [N, 7], labels [N] (a class or `ignored`), samples [N].

    An anchor is an object's where their overlap seen from above, each turned to the nearest axis, reaches the class's
    threshold or is the best the object has; it is background where no object of its class overlaps it enough.
    """
    device, total = boxes.device, batch * ROWS * COLUMNS * PER_CELL
    best = torch.zeros(total, dtype=torch.long, device=device)
    best_ignored = torch.zeros(total, dtype=torch.long, device=device)
    forced = torch.full((total,), -1, dtype=torch.long, device=device)
    step = STRIDE * KITTI.pillar[0]
    kinds = anchor_kinds(device)
    for label in range(len(SIZES)):
        chosen = torch.nonzero((labels == label) | (labels == ignored(label)))[:, 0]
        if not len(chosen):
            continue
        mine, real = boxes[chosen], labels[chosen] == label
        reach = 11 if label == 2 else 5
        span = torch.arange(-reach, reach + 1, device=device)
        column = ((mine[:, 0] - KITTI.low[0]) / step).floor().long()[:, None] + span
        row = ((mine[:, 1] - KITTI.low[1]) / step).floor().long()[:, None] + span
        turned = torch.abs(torch.remainder(mine[:, 6] + math.pi / 4, math.pi) - math.pi / 4) > math.pi / 4
        wide = torch.where(turned, mine[:, 4], mine[:, 3])  # extent along y where ry is 0 is the length
        long_ = torch.where(turned, mine[:, 3], mine[:, 4])
        for rotation in range(len(ROTATIONS)):
            kind = label * len(ROTATIONS) + rotation
            w, length = kinds[kind, 3], kinds[kind, 4]
            ax, ay = (w, length) if rotation == 0 else (length, w)
            dx = torch.abs((column + 0.5) * step + KITTI.low[0] - mine[:, :1])
            dy = torch.abs((row + 0.5) * step + KITTI.low[1] - mine[:, 1:2])
            over_x = torch.minimum((wide[:, None] + ax) / 2 - dx, torch.minimum(wide, ax.expand_as(wide))[:, None])
            over_y = torch.minimum((long_[:, None] + ay) / 2 - dy, torch.minimum(long_, ay.expand_as(long_))[:, None])
            shared = over_x.clamp(min=0)[:, None, :] * over_y.clamp(min=0)[:, :, None]
            iou = shared / ((wide * long_)[:, None, None] + ax * ay - shared)
            valid = ((row >= 0) & (row < ROWS))[:, :, None] & ((column >= 0) & (column < COLUMNS))[:, None, :]
            iou = torch.where(valid, iou, torch.zeros_like(iou))
            number = (sample[chosen][:, None, None] * ROWS + row.clamp(0, ROWS - 1)[:, :, None]) * COLUMNS
            number = (number + column.clamp(0, COLUMNS - 1)[:, None, :]) * PER_CELL + kind
            key = (iou * (1 << 20)).long() * (1 << 20) + chosen[:, None, None]
            for index, out in ((real, best), (~real, best_ignored)):
                out.scatter_reduce_(0, number[index].reshape(-1), key[index].reshape(-1), "amax")
            if rotation == 0:
                first = (iou, number)
            else:
                both = torch.cat([first[0].flatten(1), iou.flatten(1)], 1)
                numbers = torch.cat([first[1].flatten(1), number.flatten(1)], 1)
                top, at = both.max(1)
                good = real & (top > 0.05)
                forced[numbers.gather(1, at[:, None])[good, 0]] = chosen[good]
    kind = torch.arange(PER_CELL, device=device).repeat(total // PER_CELL) // len(ROTATIONS)
    thresholds = torch.tensor(MATCH, device=device)[kind]
    overlap, owner = (best >> 20).float() / (1 << 20), best & ((1 << 20) - 1)
    other = (best_ignored >> 20).float() / (1 << 20)
    positive = overlap >= thresholds[:, 0]
    found = torch.where(positive, owner, torch.full_like(owner, -1))
    found = torch.where(forced >= 0, forced, found)
    background = (overlap < thresholds[:, 1]) & (other < thresholds[:, 1])
    return Targets(found, (found >= 0) | background)


def losses(maps: dict[str, Tensor], targets: Targets, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return the losses of classes, boxes and directions, each a sum over anchors by the number of positive ones."""
    flat = {name: _by_anchor(value.float(), value.shape[1] // PER_CELL) for name, value in maps.items()}
    positive = torch.nonzero(targets.object >= 0)[:, 0]
    count = max(len(positive), 1)
    mine = targets.object[positive]
    wanted = torch.zeros_like(flat["cls"])
    wanted[positive, labels[mine]] = 1
    found = {"cls": (focal(flat["cls"], wanted) * targets.counts[:, None]).sum() / count}
    cell = positive // PER_CELL % (ROWS * COLUMNS)
    anchors = anchor_kinds(boxes.device)[positive % PER_CELL]
    step = STRIDE * KITTI.pillar[0]
    x, y = (cell % COLUMNS + 0.5) * step + KITTI.low[0], (cell // COLUMNS + 0.5) * step + KITTI.low[1]
    truth, diagonal = boxes[mine], torch.hypot(anchors[:, 3], anchors[:, 4])
    goal = torch.stack(
        [
            (truth[:, 0] - x) / diagonal,
            (truth[:, 1] - y) / diagonal,
            (truth[:, 2] + truth[:, 5] / 2 - anchors[:, 2] - anchors[:, 5] / 2) / anchors[:, 5],
            *(torch.log(truth[:, 3:6] / anchors[:, 3:6]).unbind(1)),
            truth[:, 6] - anchors[:, 6],
        ],
        1,
    )
    given = flat["reg"][positive]
    error = torch.cat([given[:, :6] - goal[:, :6], torch.sin(given[:, 6:] - goal[:, 6:])], 1)
    found["box"] = F.smooth_l1_loss(error, torch.zeros_like(error), reduction="sum", beta=1 / 9) / count
    # decode turns the angle into [0, pi) where bin 0 wins, into [-pi, 0) otherwise
    side = (torch.remainder(truth[:, 6] + math.pi, 2 * math.pi) < math.pi).long()
    found["dir"] = F.cross_entropy(flat["dir"][positive], side, reduction="sum") / count
    return found


def _by_anchor(maps: Tensor, channels: int) -> Tensor:
    """Return maps [B, PER_CELL * channels, H, W] as [anchors, channels] in anchor order."""
    batch, _, height, width = maps.shape
    return maps.view(batch, PER_CELL, channels, height * width).permute(0, 3, 1, 2).reshape(-1, channels)


def focal(logits: Tensor, wanted: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """Return the focal loss of every logit."""
    probability = torch.sigmoid(logits)
    missing = wanted * (1 - probability) + (1 - wanted) * probability
    weight = (wanted * alpha + (1 - wanted) * (1 - alpha)) * missing**gamma
    return weight * F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")


def augment(
    points: Tensor, sample: Tensor, boxes: Tensor, owner: Tensor, batch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return points, their samples and boxes after flips, turns, scaling, shifts, tilts and losses of each sample."""
    device = points.device

    def draw(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(batch, generator=generator, device=device)

    def normal(spread: float) -> Tensor:
        return spread * torch.randn(batch, generator=generator, device=device)

    flip = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    turn, scale, lift, tilt = draw(-math.pi / 4, math.pi / 4), draw(0.95, 1.05), normal(0.1), normal(0.004)
    side_x, side_y = normal(0.2), normal(0.2)
    cos, sin = torch.cos(turn), torch.sin(turn)

    def place(xyz: Tensor, index: Tensor) -> Tensor:
        x, y = xyz[:, 0], xyz[:, 1] * flip[index]
        across = x * cos[index] - y * sin[index] + side_x[index]
        ahead = x * sin[index] + y * cos[index] + side_y[index]
        up = xyz[:, 2] + lift[index] + tilt[index] * x
        return torch.stack([across, ahead, up], 1) * scale[index, None]

    moved = boxes.clone()
    moved[:, :3] = place(boxes[:, :3], owner)
    moved[:, 3:6] = boxes[:, 3:6] * scale[owner, None]
    # a mirrored heading is its negative: ry = -heading - pi/2 becomes -pi - ry; a turn takes its angle off ry
    yaw = torch.where(flip[owner] < 0, -math.pi - boxes[:, 6], boxes[:, 6]) - turn[owner]
    moved[:, 6] = torch.remainder(yaw + math.pi, 2 * math.pi) - math.pi
    gain, power, blind = draw(0.75, 1.3), draw(0.8, 1.25), draw(-0.3, 0.25).clamp(min=0)
    strength = (points[:, 3].clamp(min=0) ** power[sample] * gain[sample]).clamp(0, 1)
    chance = torch.rand(len(points), generator=generator, device=device)
    strength = torch.where(chance < blind[sample], torch.zeros_like(strength), strength)
    lost = draw(-0.15, 0.2).clamp(min=0)
    kept = torch.rand(len(points), generator=generator, device=device) >= lost[sample]
    placed = torch.cat([place(points[:, :3], sample), strength[:, None]], 1)
    return placed[kept], sample[kept], moved
