"""Detections of PointPillars-S with backbone and head compiled by a vendor and run in its simulator, against fp32.

    python -m tools.verify.vendor_detections                  # 20 synthetic scenes, every chip and data type
    python -m tools.verify.vendor_detections --scans FOLDER   # KITTI scans: NNN.bin, NNN_calib.txt, NNN_label.txt
    python -m tools.verify.vendor_detections --only "rk3588 int8"

Voxelisation, pillar feature net and scatter run in fp32 here, as they cannot run on these accelerators.  Printed and
written to --out: bird's-eye average precision and its loss, boxes that fp32 finds too and how far they moved, sizes of
the compiled files, time to compile and to simulate.  The scenes are those of `tools.train.quality`, seeds 0 to 19.
Exit code 1 if a case in int8 loses more than --most points.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.builder import compile_stage, network_of, shipped_scales
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.toolchains.hand_over import Built, built_here, prepare
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Stage
from socsched.errors import MachineError
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.decode import Detections, detect
from socsched.models.pointpillars.voxelise import voxelise
from socsched.runtime.backends.vendor_sim import Simulated
from tools.train.precision import Judged
from tools.train.quality import SCORE, figures, recorded, synthetic

Array = np.ndarray[Any, Any]
NEAR = 0.5
"""Metres within which a box of the same class counts as the same."""
CASES = (
    ("rk3588", "npu0", "int8"),
    ("rk3588", "npu0", "fp16"),
    ("qcs8550", "npu", "int8"),
    ("qcs6490", "npu", "int8"),
    ("sa8295p", "npu", "int8"),
    ("qcs8550", "npu", "fp16"),
    ("sa8295p", "npu", "fp16"),
)


class Here:
    """A stage compiled for this machine in fp32 or int8; takes and returns plain arrays."""

    def __init__(self, stage: Stage, precision: str = "fp32") -> None:
        engine = next(engine for engine in get_platform("host").engines if engine.kind == "cpu")
        self.compiled = load(compile_stage(stage, engine, precision, None, 2))

    def __call__(self, *arrays: Array) -> list[Array]:
        types = [TensorType(a.shape, "fp32" if a.dtype == np.float32 else "int32", _plain(a)) for a in arrays]
        given = [convert(a, t, w) for a, t, w in zip(arrays, types, self.compiled.inputs, strict=True)]
        made = zip(self.compiled(*given), self.compiled.outputs, strict=True)
        return [convert(np.asarray(a), t, TensorType(t.shape, "fp32", _plain_shape(t.shape))) for a, t in made]


def _plain(array: Array) -> str:
    return _plain_shape(array.shape)


def _plain_shape(shape: tuple[int, ...]) -> str:
    return "NCHW" if len(shape) == 4 else ""


@dataclass
class Found:
    """A case's detections, one entry per scan."""

    frames: list[Judged] = field(default_factory=list)
    boxes: list[Detections] = field(default_factory=list)
    seconds: float = 0.0


def built(stage: Stage, platform: str, engine: str, precision: str) -> Built:
    """Return a stage compiled by the engine's vendor."""
    scales = shipped_scales(network_of(stage)[0])
    made = built_here(prepare(stage, get_platform(platform).engine(engine), precision, None, None, scales))
    if made is None:
        raise MachineError("the vendor's compiler is not installed", "socsched doctor")
    return made


def same_boxes(reference: list[Detections], other: list[Detections]) -> dict[str, Any]:
    """Return how many of the reference's boxes above `SCORE` another case finds, and how far they moved (m)."""
    total, hits, more, moved = 0, 0, 0, []
    for one, two in zip(reference, other, strict=True):
        wanted = [i for i in range(len(one.scores)) if one.scores[i] >= SCORE]
        free = [i for i in range(len(two.scores)) if two.scores[i] >= SCORE]
        total += len(wanted)
        for i in wanted:
            distances = {
                j: float(np.hypot(*(two.boxes[j][:2] - one.boxes[i][:2])))
                for j in free
                if two.labels[j] == one.labels[i]
            }
            best = min(distances, key=lambda j: distances[j], default=None)
            if best is not None and distances[best] <= NEAR:
                hits += 1
                moved.append(distances[best])
                free.remove(best)
        more += len(free)
    return {"of": total, "found": hits, "others": more, "mean shift m": round(float(np.mean(moved or [0])), 4)}


def main(args: argparse.Namespace) -> int:
    """Compute, print and write the figures."""
    pipeline = get_pipeline("pointpillars-s")
    stages = {name: pipeline.stage(name) for name in ("pfn", "scatter", "backbone", "head")}
    pfn, scatter = Here(stages["pfn"]), Here(stages["scatter"])
    given = list(recorded(args.scans) if args.scans else synthetic(args.scenes))
    canvases = []
    for points, _, _ in given:
        voxels, counts, coords = voxelise(points)
        canvases.append(scatter(pfn(voxels, counts, coords)[0], coords)[0])
    results: dict[str, Any] = {}
    reference: Found | None = None
    for name, backbone, head, facts in _cases(stages, args.only):
        found, begun = Found(), time.monotonic()
        for canvas, (_, truths, calibration) in zip(canvases, given, strict=True):
            boxes = detect(*head(*backbone(canvas)))
            found.boxes.append(boxes)
            found.frames.append(Judged(truths, boxes.boxes, boxes.scores, boxes.labels, calibration))
        seconds = (time.monotonic() - begun) / len(given)
        precision = figures(found.frames)
        reference = reference or found
        moderate = {kind: precision[kind]["bev"]["moderate"] for kind in precision if kind != "mean"}
        entry = {"bev moderate": moderate, "mean": precision["mean"], "boxes": same_boxes(reference.boxes, found.boxes)}
        results[name] = {**entry, **facts, "seconds a scan": round(seconds, 2)}
        first = next(iter(results.values()))["mean"]
        results[name]["loss"] = None if first is None or entry["mean"] is None else round(first - entry["mean"], 3)
        print(f"{name}: {json.dumps(results[name])}", flush=True)
    document = {"scans": args.scans.name if args.scans else "synthetic", "count": len(given), "results": results}
    args.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    worst = [name for name, r in results.items() if "int8" in name and (r["loss"] or 0) > args.most]
    print(f"more than {args.most} points lost by: {', '.join(worst) or 'none'}")
    return 1 if worst else 0


def _cases(stages: dict[str, Stage], only: list[str] | None) -> Any:
    """Yield name, backbone, head and facts of each case; fp32 and our own int8 come first."""
    for precision in ("fp32", "int8"):
        yield f"x86 {precision}", Here(stages["backbone"], precision), Here(stages["head"], precision), {}
    for platform, engine_name, precision in CASES:
        name = f"{platform} {precision}"
        if only and name not in only:
            continue
        engine = get_platform(platform).engine(engine_name)
        parts = {}
        facts: dict[str, Any] = {"bytes": {}, "compile s": {}}
        for stage in ("backbone", "head"):
            made = built(stages[stage], platform, engine_name, precision)
            facts["bytes"][stage], facts["compile s"][stage] = made.size, made.seconds
            facts["versions"] = dict(made.versions)
            parts[stage] = Simulated.of(stages[stage], engine, precision)
        yield name, _call(parts["backbone"]), _call(parts["head"]), facts
        for part in parts.values():
            part.close()


def _call(stage: Simulated) -> Any:
    return lambda *arrays: list(stage(list(arrays)).values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=Path, help="folder of KITTI scans instead of synthetic scenes")
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--only", action="append", help="a case by name, repeatable")
    parser.add_argument("--most", type=float, default=1.5, help="points of average precision that int8 may lose")
    parser.add_argument("--out", type=Path, default=Path("vendor_detections.json"))
    sys.exit(main(parser.parse_args()))
