"""Components of training against the rest of the project: voxels, targets that decode to the objects, folded norms."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs PyTorch: .venv/bin/pip install torch")


from socsched.models.pointpillars.boxes import (  # noqa: E402
    PER_CELL,
    footprints,
    iou,
)
from socsched.models.pointpillars.decode import Settings, detect  # noqa: E402
from socsched.models.pointpillars.small import networks  # noqa: E402
from socsched.models.pointpillars.voxelise import voxelise  # noqa: E402
from tools.train import training as pt  # noqa: E402
from tools.train.pointpillars import example  # noqa: E402
from tools.train.streets import _inside  # noqa: E402


@pytest.fixture(scope="module")
def scene() -> tuple[torch.Tensor, ...]:
    return tuple(torch.from_numpy(np.array(array)) for array in example(3))


def test_voxels_are_those_of_the_voxelising_stage(scene: tuple[torch.Tensor, ...]) -> None:
    points = scene[0]
    found = pt.voxels(points, torch.zeros(len(points), dtype=torch.long))
    held, counts, coords = voxelise(points.numpy())
    cells = coords[:, 1].astype(int) * 432 + coords[:, 0]
    order = np.argsort(cells)
    np.testing.assert_array_equal(found.cells.numpy(), cells[order])
    np.testing.assert_array_equal(found.counts.numpy(), counts[order])
    live = np.concatenate([held[i, : counts[i]] for i in order])
    np.testing.assert_array_equal(found.features[:, :4].numpy(), live)


@pytest.mark.parametrize("changed", [False, True])
def test_targets_decode_to_the_objects_they_are_of(scene: tuple[torch.Tensor, ...], changed: bool) -> None:
    points, boxes, labels = scene
    owner = torch.zeros(len(boxes), dtype=torch.long)
    before = [_inside(points.numpy(), box) for box in boxes.numpy()]
    if changed:
        sample = torch.zeros(len(points), dtype=torch.long)
        points, _, boxes = pt.augment(points, sample, boxes, owner, 1, torch.Generator().manual_seed(5))
        after = [_inside(points.numpy(), box) for box in boxes.numpy()]
        near = [(a, b) for a, b in zip(before, after, strict=True) if a > 50]
        assert near and all(0.5 * a < b < 1.4 * a for a, b in near)  # points move with their boxes
    kept = (boxes[:, 0] > 1) & (boxes[:, 0] < 68) & (boxes[:, 1].abs() < 39)
    boxes, labels, owner = boxes[kept], labels[kept], owner[kept]
    targets = pt.match(boxes, labels, owner, 1)
    positive = torch.nonzero(targets.object >= 0)[:, 0]
    maps = {"reg": torch.zeros(1, 42, 248, 216, requires_grad=True), "cls": torch.zeros(1, 18, 248, 216)}
    maps["dir"] = torch.zeros(1, 12, 248, 216, requires_grad=True)
    for step in range(120):  # values are independent, so the signs of their gradients suffice
        found = pt.losses(maps, targets, boxes, labels)
        for name, slope in zip(
            ("reg", "dir"), torch.autograd.grad(found["box"] + found["dir"], [maps["reg"], maps["dir"]]), strict=True
        ):
            maps[name] = (maps[name] - 0.1 * 0.95**step * torch.sign(slope)).detach().requires_grad_()
    flat = torch.full((248 * 216 * PER_CELL, 3), -10.0)
    flat[positive, labels[targets.object[positive]]] = 5.0
    cls = flat.view(-1, PER_CELL, 3).permute(1, 2, 0).reshape(1, 18, 248, 216).numpy()
    seen = detect(cls, *(maps[name].detach().numpy() for name in ("reg", "dir")), Settings(candidates=3000))
    for box, label in zip(boxes.numpy(), labels.tolist(), strict=True):
        if label < 0:
            continue
        best = iou(np.repeat(footprints(box[None]), len(seen.boxes), 0), footprints(seen.boxes))
        at = int(best.argmax())
        turn = abs((seen.boxes[at, 6] - box[6] + np.pi) % (2 * np.pi) - np.pi)
        assert best[at] > 0.9 and seen.labels[at] == label and abs(seen.boxes[at, 2] - box[2]) < 0.05
        assert turn < 0.1 or min(abs(box[6]), np.pi - abs(box[6])) < 0.05  # where the half turns meet either will do


def test_batch_norm_folds_into_the_weights_that_are_written(scene: tuple[torch.Tensor, ...]) -> None:
    torch.manual_seed(0)
    model = pt.Detector(*networks()).eval()
    for norm in [model.pfn.norm, *model.norms.values()]:
        torch.nn.init.uniform_(norm.running_var, 0.5, 2)
        torch.nn.init.normal_(norm.running_mean)
        torch.nn.init.normal_(norm.bias)
    arrays = pt.folded(model)
    shapes = {n: s for net in networks() for n, s in net.params.items()}
    assert {name: array.shape for name, array in arrays.items()} == shapes
    layer = torch.randn(2, 32, 9, 9)
    ours = torch.nn.functional.conv2d(
        layer, torch.from_numpy(arrays["blocks.0.1.weight"]), torch.from_numpy(arrays["blocks.0.1.bias"]), 1, 1
    )
    with torch.no_grad():
        np.testing.assert_allclose(model.norms["blocks_0_1"](model.layers["blocks_0_1"](layer)), ours, atol=1e-4)
    # a pillar's feature takes in its empty slots, as the compiled network does
    features, pillar = torch.randn(5, 9), torch.tensor([0, 0, 1, 1, 1])
    weight, bias = torch.from_numpy(arrays["pfn.weight"]), torch.from_numpy(arrays["pfn.bias"])
    rows = features @ weight.T + bias
    want = torch.stack([torch.maximum(rows[:2].amax(0), bias), rows[2:].amax(0)]).clamp(min=0)
    with torch.no_grad():
        got = model.pfn(features, pillar, torch.tensor([2, 3]), 3)
    np.testing.assert_allclose(got, want, atol=1e-5)
