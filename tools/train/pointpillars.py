"""Train PointPillars-S on synthetic streets: scenes are made by worker processes while the device trains.

    python -m tools.train.pointpillars --minutes 9 --seed 1 --out trained

writes OUT/pointpillars-s.npz (fp16, batch norm folded) and OUT/figures.json.  Needs PyTorch; one GPU is enough, a CPU
will do for a trial (--limit 20 --batch 2).  The scenes' seeds start at FIRST_SEED, away from those figures are computed
on (quality.py).  Scenes stay on the device once made and are drawn again with other flips, turns and losses.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing as mp
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before numpy: a worker is one process a core

import numpy as np  # noqa: E402

FIRST_SEED = 1_000_000
LEAST = 5
"""Points an object must have to be learnt; those with fewer are neither object nor background."""


def example(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points [N, 4], boxes [n, 7] and labels [n] of a synthetic scene as training takes them."""
    from socsched.models.pointpillars.boxes import CLASSES
    from tools.train.streets import look_at, make_scene

    scene = make_scene(seed)
    seen = look_at(scene, seed)
    counts = np.bincount(seen.owner[seen.owner >= 0], minlength=len(scene.users))
    labels = []
    for kind, count in zip(scene.labels, counts, strict=True):
        if kind in CLASSES:
            labels.append(CLASSES.index(kind) if count >= LEAST else -2 - CLASSES.index(kind))
        else:  # a van is no car, but near enough not to count against one; a truck is background
            labels.append(-2 - CLASSES.index("Car") if kind == "Van" else -1)
    kept = (counts > 0) & (np.array(labels, int) != -1)
    return seen.points, scene.boxes[kept], np.array(labels, np.int64)[kept]


def make(first: int, stride: int, out: Any) -> None:
    """Put examples first, first + stride, ... into a queue until killed."""
    seed = first
    while True:
        points, boxes, labels = example(seed)
        out.put((np.asarray(points), boxes, labels))
        seed += stride


class Pool:
    """Scenes on the device; a thread moves there what the workers make."""

    def __init__(self, source: Any, device: Any, most: int) -> None:
        self.source, self.device, self.most = source, device, most
        self.scenes: list[tuple[Any, Any, Any]] = []
        self.stopped = False
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        import torch

        while not self.stopped and len(self.scenes) < self.most:
            try:
                arrays = self.source.get(timeout=1)
            except queue.Empty:
                continue
            self.scenes.append(tuple(torch.from_numpy(np.array(array)).to(self.device) for array in arrays))

    def wait(self, count: int) -> None:
        while len(self.scenes) < count:
            time.sleep(0.05)

    def batch(self, size: int, rng: np.random.Generator) -> tuple[Any, ...]:
        """Return points, their samples, boxes, labels and their samples of `size` scenes drawn at random."""
        import torch

        drawn = [self.scenes[i] for i in rng.integers(0, len(self.scenes), size)]
        numbers = torch.arange(size, device=self.device)
        points, boxes, labels = (torch.cat([scene[k] for scene in drawn]) for k in range(3))
        lengths = torch.tensor([[len(scene[0]), len(scene[1])] for scene in drawn], device=self.device)
        return points, numbers.repeat_interleave(lengths[:, 0]), boxes, labels, numbers.repeat_interleave(lengths[:, 1])


def one_cycle(at: float, top: float) -> tuple[float, float]:
    """Return learning rate and first momentum at a share of the training (Smith & Topin, 2018; cosine ramps)."""
    up = 0.3
    if at < up:
        share = 0.5 - 0.5 * math.cos(math.pi * at / up)
        return top * (0.1 + 0.9 * share), 0.95 - 0.1 * share
    share = 0.5 + 0.5 * math.cos(math.pi * min(1.0, (at - up) / (1 - up)))
    return top * max(share, 1e-4), 0.95 - 0.1 * share


def train(args: argparse.Namespace) -> None:
    """Train and write weights and figures."""
    import torch

    from socsched.models.pointpillars.grid import KITTI
    from socsched.models.pointpillars.small import networks
    from tools.train import training as pt

    context = mp.get_context("fork")
    made: Any = context.Queue(maxsize=64)
    start = FIRST_SEED + args.seed * 10_000_000
    workers = [
        context.Process(target=make, args=(start + i, args.workers, made), daemon=True) for i in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    half = torch.bfloat16 if device.type == "cuda" else None
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    rng = np.random.default_rng(args.seed)
    generator = torch.Generator(device=device).manual_seed(args.seed)
    model = pt.Detector(*networks()).to(device)
    model = model.to(memory_format=torch.channels_last).train()
    mean = pt.Detector(*networks()).to(device).eval()
    mean.load_state_dict(model.state_dict())
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": args.decay}, {"params": plain, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=args.rate, betas=(0.95, 0.99), fused=device.type == "cuda")
    pool = Pool(made, device, args.most)
    pool.wait(min(4 * args.batch, args.most))
    args.out.mkdir(parents=True, exist_ok=True)
    begun, step, log, sums = time.monotonic(), 0, [], torch.zeros(4, device=device)
    saved = begun
    low, high = (torch.tensor(edge[:2], device=device) for edge in (KITTI.low, KITTI.high))
    while True:
        spent = time.monotonic() - begun
        share = max(step / args.limit if args.limit else 0.0, spent / (60 * args.minutes))
        if share >= 1:
            break
        rate, momentum = one_cycle(share, args.rate)
        for group in optimiser.param_groups:
            group["lr"], group["betas"] = rate, (momentum, 0.99)
        points, sample, boxes, labels, owner = pool.batch(args.batch, rng)
        points, sample, boxes = pt.augment(points, sample, boxes, owner, args.batch, generator)
        inside = ((boxes[:, :2] >= low) & (boxes[:, :2] < high)).all(1)
        boxes, labels, owner = boxes[inside], labels[inside], owner[inside]
        maps = model.maps(pt.voxels(points, sample), args.batch, half)
        found = pt.losses(maps, pt.match(boxes, labels, owner, args.batch), boxes, labels)
        loss = found["cls"] + 2 * found["box"] + 0.2 * found["dir"]
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        with torch.no_grad():
            keep = min(0.999, (1 + step) / (10 + step))
            ours = [t for t in model.state_dict().values() if t.is_floating_point()]
            theirs = [t for t in mean.state_dict().values() if t.is_floating_point()]
            torch._foreach_lerp_(theirs, ours, 1 - keep)
            sums += torch.stack([found["cls"], found["box"], found["dir"], norm]).detach()
        step += 1
        if step % args.every == 0:
            figures = (sums / args.every).tolist()
            sums.zero_()
            spent = time.monotonic() - begun
            names = ("cls", "box", "dir", "norm")
            log.append(
                {"step": step, "seconds": spent, "scenes": len(pool.scenes), **dict(zip(names, figures, strict=True))}
            )
            print(
                f"{step:6d} {spent:6.1f} s {len(pool.scenes):6d} scenes {step * args.batch / spent:6.1f} samples/s "
                + " ".join(f"{name} {value:.4f}" for name, value in zip(names, figures, strict=True)),
                flush=True,
            )
            if time.monotonic() - saved > 60:
                saved = time.monotonic()
                _write(args, mean, step, begun, pool, log, device)
    pool.stopped = True
    _write(args, mean, step, begun, pool, log, device)
    for worker in workers:
        worker.kill()


def _write(
    args: argparse.Namespace, model: Any, step: int, begun: float, pool: Pool, log: list[Any], device: Any
) -> None:
    import torch

    from tools.train import training as pt

    halves = {name: array.astype(np.float16) for name, array in pt.folded(model).items()}
    if not all(np.isfinite(array).all() for array in halves.values()):
        raise SystemExit("weights beyond fp16: training diverged")
    np.savez_compressed(args.out / "pointpillars-s.npz", **halves)
    chosen = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    figures = {
        "settings": chosen,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "steps": step,
        "samples": step * args.batch,
        "scenes": len(pool.scenes),
        "seconds": round(time.monotonic() - begun, 1),
        "parameters": sum(array.size for array in halves.values()),
        "log": log,
    }
    (args.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=9.0, help="ends after this, whatever --limit says")
    parser.add_argument("--limit", type=int, default=0, help="steps; 0: as many as the minutes allow")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--decay", type=float, default=0.01)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--most", type=int, default=60_000, help="scenes kept on the device")
    parser.add_argument("--every", type=int, default=100, help="steps between lines of the log")
    parser.add_argument("--out", type=Path, default=Path("trained"))
    train(parser.parse_args())
