"""PointPillars as one writes it with PyTorch: host stages on the processor, or everything on the GPU."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from socsched.compiler.native.host_stages import compiled_stages
from socsched.models.pointpillars.boxes import PER_CELL, anchor_tables
from socsched.models.pointpillars.decode import decode
from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.network import backbone_network, head_network, pfn_network
from socsched.models.pointpillars.voxelise import voxelise
from tools.bench.torch_networks import graph_of, pointpillars, torch_forward

ROOM = 8600
"""Pillars the PyTorch pipelines have room for: the most of 32 KITTI scans."""


class TorchLoop:
    """The same detector as one writes it with PyTorch: a loop over frames, the network one CUDA graph."""

    def __init__(self, weights: dict[str, Any], settings: Any) -> None:
        import torch

        self.torch, self.settings, self.compiled = torch, settings, compiled_stages()
        self.room = ROOM
        half = {"device": "cuda", "dtype": torch.float16}
        shapes = ((self.room, 32, 4), (self.room,), (self.room, 2))
        kinds = (torch.float32, torch.int32, torch.int32)
        self.pinned = [torch.zeros(s, dtype=k, pin_memory=True) for s, k in zip(shapes, kinds, strict=True)]
        self.placed = [torch.zeros(s, dtype=k, device="cuda") for s, k in zip(shapes, kinds, strict=True)]
        layer = pfn_network().layers[0]
        self.pillar, self.origin = float(layer.attrs["pillar"]), torch.tensor(layer.attrs["origin"], device="cuda")
        self.weight, self.bias = (torch.tensor(weights[f"pfn.{p}"], **half) for p in ("weight", "bias"))
        self.canvas = torch.zeros((496 * 432 + 1, 64), **half)
        body, head = backbone_network(), head_network()
        params = {name: weights[name] for name in (*body.params, *head.params)}
        self.forward = torch_forward(pointpillars(), params, torch, torch.float16)
        with torch.no_grad():
            self.outputs = self._network()
            self.graph = graph_of(self._again, torch)
        self.host = [torch.zeros(o.shape, dtype=torch.float32, pin_memory=True) for o in self.outputs]

    def _again(self) -> None:
        self.outputs = self._network()

    def _network(self) -> Any:
        torch = self.torch
        voxels, counts, coords = self.placed
        points = voxels.half()
        filled = (torch.arange(32, device="cuda")[None] < counts[:, None])[:, :, None]
        mean = points[:, :, :3].sum(1, keepdim=True) / counts.clamp(min=1).half()[:, None, None]
        centre = ((coords + 0.5) * self.pillar + self.origin).half()
        decorated = torch.cat([points, points[:, :, :3] - mean, points[:, :, :2] - centre[:, None]], 2) * filled
        features = torch.relu(decorated @ self.weight.T + self.bias).amax(1)
        place = torch.where(counts > 0, coords[:, 1] * 432 + coords[:, 0], 496 * 432).long()
        self.canvas.zero_()
        self.canvas.index_copy_(0, place, features)
        image = self.canvas[:-1].view(1, 496, 432, 64).permute(0, 3, 1, 2)
        return [output.float().contiguous() for output in self.forward(image)]

    def frame(self, points: Any) -> Any:
        """Return the detections in a scan."""
        found = voxelise(points, compiled=self.compiled)
        count = min(len(found[1]), self.room)
        for pinned, placed, array in zip(self.pinned, self.placed, found, strict=True):
            pinned.numpy()[:count] = array[:count]
            if array.ndim == 1:
                pinned.numpy()[count:] = 0
            placed.copy_(pinned, non_blocking=True)
        self.graph.replay()
        for there, here in zip(self.outputs, self.host, strict=True):
            here.copy_(there, non_blocking=True)
        self.torch.cuda.synchronize()
        return decode(*(tensor.numpy() for tensor in self.host), settings=self.settings, compiled=self.compiled)

    def rate(self, scans: list[Any], frames: int) -> float:
        """Return frames a second."""
        for number in range(10):
            self.frame(scans[number % len(scans)])
        start = time.perf_counter()
        for number in range(frames):
            self.frame(scans[number % len(scans)])
        return frames / (time.perf_counter() - start)


class TorchDevice:
    """The same detector wholly on the GPU, one CUDA graph from the scan to the boxes.

    Shapes are fixed so that it captures: pillars by a stable sort of the cells, suppression by iteration to a fixed
    point (`ROUNDS` rounds) over the matrix of overlaps.  `fused` takes cuDNN's fused convolution and ReLU.
    """

    ROUNDS = 10

    def __init__(self, weights: dict[str, Any], settings: Any, points: int = 32768, fused: bool = True) -> None:
        import torch

        self.torch, self.settings = torch, settings
        cuda = {"device": "cuda"}
        self.pinned = torch.full((points, 4), float("nan"), pin_memory=True)
        self.scan = self.pinned.cuda()
        self.low, self.size = (torch.tensor(v, **cuda) for v in (KITTI.low, KITTI.pillar))
        self.cells = torch.tensor(KITTI.cells, **cuda)
        self.index = torch.arange(points, **cuda)
        half = {"device": "cuda", "dtype": torch.float16}
        self.weight, self.bias = (torch.tensor(weights[f"pfn.{p}"], **half) for p in ("weight", "bias"))
        self.canvas = torch.zeros((496 * 432 + 1, 64), **half)
        body, head = backbone_network(), head_network()
        params = {name: weights[name] for name in (*body.params, *head.params)}
        self.forward = torch_forward(pointpillars(), params, torch, torch.float16, fused)
        xs, ys, kinds = (torch.tensor(table, **cuda) for table in anchor_tables(KITTI, settings.edges))
        self.xs, self.ys, self.kinds = xs, ys, kinds
        self.stream = torch.cuda.Stream()
        with torch.no_grad():
            self._again()
            self.graph = graph_of(self._again, torch)
        self.host = torch.zeros(self.found.shape, pin_memory=True)
        self.event = torch.cuda.Event(blocking=True)

    def _again(self) -> None:
        self.found = self._detected(*self._maps(*self._pillars()))

    def _pillars(self) -> Any:
        torch, (nx, ny, _) = self.torch, KITTI.cells
        scaled = (self.scan[:, :3] - self.low) / self.size
        inside = ((scaled >= 0) & (scaled < self.cells)).all(1)
        cell = torch.where(inside, scaled[:, 1].int() * nx + scaled[:, 0].int(), nx * ny)
        cell, order = torch.sort(cell, stable=True)
        new = torch.ones_like(inside)
        new[1:] = cell[1:] != cell[:-1]
        pillar = torch.cumsum(new, 0) - 1
        slot = self.index - torch.cummax(torch.where(new, self.index, 0), 0).values
        kept = (cell < nx * ny) & (slot < 32) & (pillar < ROOM)
        voxels = torch.zeros((ROOM * 32 + 1, 4), device="cuda")
        voxels.index_copy_(0, torch.where(kept, pillar * 32 + slot, ROOM * 32), self.scan[order])
        home = torch.where(kept, pillar, ROOM)
        counts = torch.zeros(ROOM + 1, dtype=torch.int32, device="cuda").index_add_(0, home, kept.int())
        place = torch.full((ROOM + 1,), nx * ny, dtype=torch.int32, device="cuda").index_copy_(0, home, cell.int())
        return voxels[:-1].view(ROOM, 32, 4), counts[:-1], place[:-1]

    def _maps(self, voxels: Any, counts: Any, place: Any) -> Any:
        torch, nx = self.torch, KITTI.cells[0]
        points = voxels
        filled = (torch.arange(32, device="cuda")[None] < counts[:, None])[:, :, None]
        mean = points[:, :, :3].sum(1, keepdim=True) / counts.clamp(min=1)[:, None, None]
        coords = torch.stack([place % nx, place // nx], 1)
        centre = (coords + 0.5) * self.size[:2] + self.low[:2]
        decorated = torch.cat([points, points[:, :, :3] - mean, points[:, :, :2] - centre[:, None]], 2) * filled
        features = torch.relu(decorated.half() @ self.weight.T + self.bias).amax(1)
        self.canvas.zero_()
        self.canvas.index_copy_(0, torch.where(counts > 0, place, 496 * 432).long(), features)
        image = self.canvas[:-1].view(1, 496, 432, 64).permute(0, 3, 1, 2)
        return self.forward(image)

    def _detected(self, cls: Any, reg: Any, direction: Any) -> Any:
        """Return max_boxes rows of box, score and label."""
        torch, settings = self.torch, self.settings
        columns = cls.shape[3]
        logits, offsets, bins = (
            m.permute(0, 2, 3, 1).reshape(-1, m.shape[1] // PER_CELL).float() for m in (cls, reg, direction)
        )
        index = torch.topk(logits.amax(1), settings.candidates).indices
        cell, kind = index // PER_CELL, index % PER_CELL
        anchor, given, turns = self.kinds[kind], offsets[index], bins[index]
        diagonal = torch.hypot(anchor[:, 3], anchor[:, 4])
        sizes = torch.exp(given[:, 3:6]) * anchor[:, 3:6]
        x = given[:, 0] * diagonal + self.xs[cell % columns]
        y = given[:, 1] * diagonal + self.ys[cell // columns]
        z = given[:, 2] * anchor[:, 5] + anchor[:, 2] + anchor[:, 5] / 2 - sizes[:, 2] / 2
        angle = given[:, 6] + anchor[:, 6]
        scores = torch.sigmoid(logits[index]).T
        over = self._overlaps(torch.stack([x, y, sizes[:, 0], sizes[:, 1], angle], 1)) > settings.iou
        better = (scores[:, :, None] > scores[:, None, :]) & over[None]
        valid = scores > settings.score
        kept = valid
        for _ in range(self.ROUNDS):
            kept = valid & ~(better & kept[:, :, None]).any(1)
        found = torch.topk((scores * kept).reshape(-1), settings.max_boxes)
        row, label = found.indices % len(index), found.indices // len(index)
        forward = turns[:, 1] <= turns[:, 0]
        angle = angle - torch.floor(angle / np.pi + 1) * np.pi + forward * np.pi
        boxes = torch.stack([x, y, z, *sizes.T, angle], 1)[row]
        return torch.cat([boxes, found.values[:, None], label[:, None].float()], 1)

    def _overlaps(self, rects: Any) -> Any:
        """Return the matrix of intersections over unions of footprints (x, y, w, l, ry), as `nms.intersection`."""
        torch = self.torch
        heading = -rects[:, 4] - np.pi / 2
        cos, sin = torch.cos(heading), torch.sin(heading)
        along = rects[:, 3:4] / 2 * self._signs(1, -1, -1, 1)
        across = rects[:, 2:3] / 2 * self._signs(1, 1, -1, -1)
        x = (rects[:, None, 0] - rects[None, :, 0])[..., None]
        y = (rects[:, None, 1] - rects[None, :, 1])[..., None]
        x = x + (along * cos[:, None] - across * sin[:, None])[:, None]
        y = y + (along * sin[:, None] + across * cos[:, None])[:, None]
        u, v = x * cos[:, None] + y * sin[:, None], y * cos[:, None] - x * sin[:, None]
        half_l, half_w = rects[None, :, 3:4] / 2, rects[None, :, 2:3] / 2
        du, dv = torch.roll(u, -1, 2) - u, torch.roll(v, -1, 2) - v

        def fraction(distance: Any, step: Any) -> Any:
            return torch.nan_to_num(distance / step, nan=0.0, posinf=1.0, neginf=0.0).clamp(0, 1)

        ends, turns = [fraction(b - u, du) for b in (-half_l, half_l)], [fraction(b - v, dv) for b in (-half_w, half_w)]
        start, stop = torch.minimum(*ends), torch.maximum(*ends)
        enter = torch.clamp(torch.minimum(*turns), start, stop)
        leave = torch.clamp(torch.maximum(*turns), start, stop)
        knots = torch.stack([start, enter, leave, stop])
        height = torch.clamp(v + knots * dv, -half_w, half_w)
        integral = ((knots[1:] - knots[:-1]) * (height[1:] + height[:-1])).sum(0) / 2 * du
        shared = (-integral.sum(2)).clamp(min=0)
        area = rects[:, 2] * rects[:, 3]
        return shared / (area[:, None] + area[None] - shared).clamp(min=1e-9)

    def _signs(self, *values: int) -> Any:
        if not hasattr(self, "_kept_signs"):
            self._kept_signs: dict[tuple[int, ...], Any] = {}
        if values not in self._kept_signs:
            self._kept_signs[values] = self.torch.tensor(values, device="cuda", dtype=self.torch.float32)
        return self._kept_signs[values]

    def submit(self, points: Any) -> None:
        """Start a frame."""
        here = self.pinned.numpy()
        here[: len(points)] = points
        here[len(points) :] = np.nan
        with self.torch.cuda.stream(self.stream):
            self.scan.copy_(self.pinned, non_blocking=True)
            self.graph.replay()
            self.host.copy_(self.found, non_blocking=True)
            self.event.record()

    def results(self) -> Any:
        """Return boxes, scores and labels of the frame, after its end."""
        self.event.synchronize()
        rows = self.host.numpy()
        rows = rows[rows[:, 7] > self.settings.score]
        return rows[:, :7].copy(), rows[:, 7].copy(), rows[:, 8].astype(np.int32)
