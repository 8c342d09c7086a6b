"""Give the channels of every activation like ranges, without changing what the network computes.

    python tools/equalise.py WEIGHTS.npz --out EQUAL.npz

One int8 step serves a whole activation, so a channel with a small range beside one with a large one loses its digits.
Behind a ReLU a channel can be scaled and the weights that read it divided by as much (Nagel et al., Data-Free
Quantization through Weight Equalization and Bias Correction, ICCV 2019, section 4.1; here by ranges seen on synthetic
scans).  tools/train_pointpillars.py's weights go through this before they are shipped.  Needs PyTorch.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.scene import cast, make_scene
from socsched.models.pointpillars.voxelise import voxelise

FIRST_SEED, LARGEST = 500_000, 8.0
NX, NY, _ = KITTI.cells
Weights = dict[str, torch.Tensor]


def ranges(points: np.ndarray, w: Weights) -> dict[str, torch.Tensor]:
    """Return the greatest value of every channel behind each layer, by the layer's name."""
    voxels, counts, coords = (torch.from_numpy(np.array(array)) for array in voxelise(points))
    mean = voxels[:, :, :3].sum(1, keepdim=True) / counts[:, None, None]
    centre = coords.float() * KITTI.pillar[0] + KITTI.pillar[0] / 2 + torch.tensor(KITTI.low[:2])
    features = torch.cat([voxels, voxels[:, :, :3] - mean, voxels[:, :, :2] - centre[:, None]], -1)
    features = features * (torch.arange(voxels.shape[1]) < counts[:, None])[..., None]
    pillars = F.relu(features @ w["pfn.weight"].T + w["pfn.bias"]).amax(1)
    seen = {"pfn": pillars.amax(0)}
    x = torch.zeros(NY * NX, pillars.shape[1])
    x[coords[:, 1].long() * NX + coords[:, 0].long()] = pillars
    x = x.T.reshape(1, -1, NY, NX)
    for block in range(3):
        for index in range(depth(w, block)):
            name = f"blocks.{block}.{index}"
            x = F.relu(F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], 1 if index else 2, 1))
            seen[name] = x.amax((0, 2, 3))
        name = f"de.{block}"
        up = F.relu(F.conv_transpose2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride=2**block))
        seen[name] = up.amax((0, 2, 3))
    return seen


def depth(w: Weights, block: int) -> int:
    """Return how many convolutions a block has."""
    return sum(name.startswith(f"blocks.{block}.") and name.endswith("weight") for name in w)


def scale(w: Weights, layer: str, factor: torch.Tensor) -> None:
    """Multiply the results of a layer by `factor` a channel, and divide the weights of all that read it."""
    transposed = layer.startswith("de.")
    out = w[f"{layer}.weight"]
    w[f"{layer}.weight"] = out * factor.view((1, -1, 1, 1) if transposed else (-1,) + (1,) * (out.ndim - 1))
    w[f"{layer}.bias"] = w[f"{layer}.bias"] * factor
    for reader, first in readers(w, layer):
        into = w[f"{reader}.weight"].clone()
        if reader.startswith("de."):
            into /= factor.view(-1, 1, 1, 1)
        else:
            into[:, first : first + len(factor)] /= factor.view(1, -1, 1, 1)
        w[f"{reader}.weight"] = into


def readers(w: Weights, layer: str) -> list[tuple[str, int]]:
    """Return the layers that read a layer's results, and the first of their input channels that does."""
    kind, *place = layer.split(".")
    if kind == "pfn":
        return [("blocks.0.0", 0)]
    if kind == "de":
        first = sum(w[f"de.{block}.weight"].shape[1] for block in range(int(place[0])))
        return [(head, first) for head in ("cls", "reg", "dir")]
    block, index = (int(number) for number in place)
    if index + 1 < depth(w, block):
        return [(f"blocks.{block}.{index + 1}", 0)]
    return [(f"de.{block}", 0), *([(f"blocks.{block + 1}.0", 0)] if block < 2 else [])]


def main(args: argparse.Namespace) -> None:
    """Write the equalised weights."""
    w = {name: torch.from_numpy(array.astype(np.float32)) for name, array in np.load(args.weights).items()}
    with torch.no_grad():
        found: dict[str, torch.Tensor] = {}
        for number in range(args.scenes):
            seed = FIRST_SEED + number
            for name, most in ranges(cast(make_scene(seed), seed), w).items():
                found[name] = torch.maximum(found.get(name, most), most)
        for name, most in found.items():
            goal = most.clamp(min=1e-3).log().mean().exp()  # a layer's ranges keep their geometric mean
            scale(w, name, (goal / most.clamp(min=1e-3)).clamp(1 / LARGEST, LARGEST))
            print(f"{name}: ranges {most.min():.3g} to {most.max():.3g}")
    np.savez_compressed(args.out, **{name: array.numpy().astype(np.float16) for name, array in w.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--scenes", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("equal.npz"))
    main(parser.parse_args())
