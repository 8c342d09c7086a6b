"""What a detector finds: average precision on fixed synthetic scenes and on real scans, by data type and target.

    python -m tools.train.quality                 # 200 synthetic scenes, PointPillars-S, all data types
    python -m tools.train.quality --scans FOLDER  # KITTI scans: NNN.bin, NNN_calib.txt, NNN_label.txt
    python -m tools.train.quality --pipeline pointpillars --weights FILE.npz
    python -m tools.train.quality --scenes 20 --vendors   # backbone and head in the vendors' simulators too

Prints tables and writes them, with everything they were made of, to --out.  Scenes have seeds 0 to 199; training and
calibration use others.  x86 is this machine; "dla" is the accelerator of a Jetson AGX Orin under its own operator rules
and data layouts, computed here, with the pillar feature net and scatter in fp32 as they cannot run there.  With
--vendors the chips of `VENDORS` are simulated by what their own compilers make (`socsched doctor --install`); then the
loss of average precision is stated, the boxes that fp32 finds too and how far they moved, sizes of the compiled files
and seconds to compile, and the exit code is 1 where int8 loses more than --most points.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from socsched.runtime.backends.vendor_sim import Simulated

from socsched.compiler.builder import compile_stage, network_of, shipped_scales
from socsched.compiler.layouts import convert
from socsched.compiler.loading.stages import load
from socsched.compiler.toolchains.hand_over import built_here, prepare
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Engine
from socsched.errors import MachineError
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.boxes import CLASSES
from socsched.models.pointpillars.decode import Detections, detect
from socsched.models.pointpillars.scan import read_scan
from socsched.models.pointpillars.voxelise import voxelise
from socsched.models.registry import get_model
from socsched.models.weights import load_weights
from socsched.runtime.functional import as_simulated
from tools.train.precision import (
    LEVELS,
    THRESHOLDS,
    Calibration,
    Judged,
    Question,
    Truth,
    average_precision,
    calibration_of,
    read_calibration,
    read_labels,
    recall,
    truths_of,
)
from tools.train.streets import look_at, make_scene

Array = np.ndarray[Any, Any]
STAGES = ("pfn", "scatter", "backbone", "head")
BOARD, DLA = "jetson-agx-orin-64gb", "dla0"
RANGES = ((0.0, 20.0), (20.0, 40.0), (40.0, 70.0))
SCORE = 0.3
"""Score from which an object counts as found where no average precision is asked for."""
NEAR = 0.5
"""Metres within which a box of the same class counts as the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to compute the network: a target, and the data type of every stage that is not fp32."""

    target: str
    precision: str
    stages: tuple[str, ...] = ("backbone", "head")

    @property
    def name(self) -> str:
        only = "" if self.precision == "fp32" or len(self.stages) != 1 else f", {self.stages[0]} only"
        return f"{self.target} {self.precision}{only}"


CASES = (
    Case("x86", "fp32"),
    Case("x86", "fp16", STAGES),
    Case("x86", "int8"),
    Case("x86", "int8", ("backbone",)),
    Case("x86", "int8", ("head",)),
    Case("dla", "fp16"),
    Case("dla", "int8"),
)
ENGINES = {"dla": (BOARD, DLA), "rk3588": ("rk3588", "npu0")} | {
    chip: (chip, "npu") for chip in ("qcs8550", "qcs6490", "sa8295p")
}
"""Platform and engine of a target."""
VENDORS = (
    *(Case(chip, "int8") for chip in ("rk3588", "qcs8550", "qcs6490", "sa8295p")),
    *(Case(chip, "fp16") for chip in ("rk3588", "qcs8550", "sa8295p")),
)


class InSimulator:
    """A stage in its vendor's simulator, which takes and gives fp32 in plain layouts; `facts`: of its compilation."""

    def __init__(self, stage: Stage, engine: Engine, precision: str) -> None:
        model = get_model(stage.model, stage.params)
        self.inputs, self.outputs = ([_plain(port.type) for port in ports] for ports in (model.inputs, model.outputs))
        made = built_here(prepare(stage, engine, precision, None, None, shipped_scales(network_of(stage)[0])))
        if made is None:
            raise MachineError("the vendor's compiler is not installed", "socsched doctor")
        self.facts = {"bytes": made.size, "compile s": made.seconds, "versions": dict(made.versions)}
        self.simulated = Simulated.of(stage, engine, precision)

    def __call__(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(self.simulated(list(arrays)).values())


def _plain(kind: TensorType) -> TensorType:
    return TensorType(kind.shape, "fp32", "NCHW" if len(kind.shape) == 4 else "")


class Chain:
    """The network stages of a pipeline, each handing on to the next."""

    def __init__(self, pipeline: Pipeline, case: Case, weights: Mapping[str, Array] | None, threads: int) -> None:
        cpu = next(engine for engine in get_platform("host").engines if engine.kind == "cpu")
        self.stages: dict[str, Any] = {}
        for name in STAGES:
            stage, engine, precision = pipeline.stage(name), cpu, case.precision if name in case.stages else "fp32"
            if case.target in ENGINES and name in case.stages:
                platform, engine_name = ENGINES[case.target]
                engine = as_simulated(get_platform(platform)).engine(engine_name)
                if case in VENDORS:
                    self.stages[name] = InSimulator(stage, get_platform(platform).engine(engine_name), precision)
                    continue
            self.stages[name] = load(compile_stage(stage, engine, precision, weights, threads))

    def __call__(self, points: Array) -> Detections:
        voxels, counts, coords = voxelise(points)
        values: tuple[Array, ...] = (voxels, counts, coords)
        types = [TensorType(a.shape, "fp32" if a.dtype == np.float32 else "int32") for a in values]
        for name, stage in self.stages.items():
            if name == "scatter":
                values, types = (values[0], coords), [types[0], TensorType(coords.shape, "int32")]
            given = [convert(a, t, wanted) for a, t, wanted in zip(values, types, stage.inputs, strict=True)]
            values, types = stage(*given), list(stage.outputs)
        plain = [TensorType(kind.shape, "fp32", "NCHW") for kind in types]
        return detect(*(convert(np.asarray(a), t, w) for a, t, w in zip(values, types, plain, strict=True)))


def synthetic(count: int) -> Iterator[tuple[Array, list[Truth], Calibration]]:
    """Yield the fixed scenes."""
    for seed in range(count):
        scene = make_scene(seed)
        seen = look_at(scene, seed)
        yield seen.points, truths_of(scene, seen), calibration_of()


def recorded(folder: Path) -> Iterator[tuple[Array, list[Truth], Calibration]]:
    """Yield KITTI scans with their calibration and labels."""
    for file in sorted(folder.glob("*.bin")):
        calibration = read_calibration(file.with_name(f"{file.stem}_calib.txt"))
        yield read_scan(file), read_labels(file.with_name(f"{file.stem}_label.txt"), calibration), calibration


def figures(frames: list[Judged]) -> dict[str, Any]:
    """Return average precisions by class in points of 100, and objects found at `SCORE`."""
    found: dict[str, Any] = {}
    for kind in CLASSES:
        entry: dict[str, Any] = {
            "iou": THRESHOLDS[kind],
            "objects": {},
            "bev": {},
            "3d": {},
            "bev moderate by range": {},
        }
        for level, name in enumerate(LEVELS):
            entry["objects"][name] = sum(t.kind == kind and t.level <= level for f in frames for t in f.truths)
            for view, solid in (("bev", False), ("3d", True)):
                entry[view][name] = _points(average_precision(frames, Question(kind, level, solid)))
        for near, far in RANGES:
            asked = Question(kind, 1, within=(near, far))
            entry["bev moderate by range"][f"{near:g}-{far:g} m"] = _points(average_precision(frames, asked))
        asked = Question(kind, 1, within=(0.0, 40.0))
        entry[f"moderate within 40 m found at score {SCORE}"] = recall(frames, asked, SCORE)
        found[kind] = entry
    moderate = [found[kind]["bev"]["moderate"] for kind in CLASSES]
    found["mean"] = None if None in moderate else round(sum(moderate) / len(moderate), 3)
    return found


def _points(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 3)


def same_boxes(reference: list[Detections], other: list[Detections]) -> dict[str, Any]:
    """Return how many of the reference's boxes above `SCORE` another case finds, and how far they moved (m)."""
    total, more, moved = 0, 0, []
    for one, two in zip(reference, other, strict=True):
        free = [i for i in range(len(two.scores)) if two.scores[i] >= SCORE]
        for box, label in ((one.boxes[i], one.labels[i]) for i in range(len(one.scores)) if one.scores[i] >= SCORE):
            total += 1
            near = {j: float(np.hypot(*(two.boxes[j][:2] - box[:2]))) for j in free if two.labels[j] == label}
            best = min(near, key=lambda j: near[j], default=None)
            if best is not None and near[best] <= NEAR:
                moved.append(near[best])
                free.remove(best)
        more += len(free)
    return {"of": total, "found": len(moved), "others": more, "mean shift m": round(float(np.mean(moved or [0])), 4)}


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| target, data type | class | BEV easy | moderate | hard | 3D moderate | 0-20 m | 20-40 m | 40-70 m | found |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, result in results.items():
        for kind in reversed(CLASSES):
            entry = result[kind]
            values = [*entry["bev"].values(), entry["3d"]["moderate"], *entry["bev moderate by range"].values()]
            hits, total = entry[f"moderate within 40 m found at score {SCORE}"]
            cells = " | ".join("-" if value is None else f"{value:.2f}" for value in values)
            lines.append(f"| {name} | {kind} | {cells} | {hits} of {total} |")
    return "\n".join(lines)


def main(args: argparse.Namespace) -> int:
    """Compute and write the figures."""
    pipeline = get_pipeline(args.pipeline)
    weights = load_weights(args.weights) if args.weights else None
    given = list(recorded(args.scans) if args.scans else synthetic(args.scenes))
    results: dict[str, Any] = {}
    reference: list[Detections] = []
    for case in (*CASES, *(VENDORS if args.vendors else ())):
        if args.only and case.name not in args.only:
            continue
        chain, begun = Chain(pipeline, case, weights, args.threads), time.monotonic()
        found = [chain(points) for points, _, _ in given]
        taken = time.monotonic() - begun
        frames = [
            Judged(truths, boxes.boxes, boxes.scores, boxes.labels, calibration)
            for boxes, (_, truths, calibration) in zip(found, given, strict=True)
        ]
        entry = results[case.name] = figures(frames)
        reference = reference or found
        first = next(iter(results.values()))["mean"]
        if args.vendors:
            entry["loss"] = None if None in (first, entry["mean"]) else round(first - entry["mean"], 3)
            entry["boxes"] = same_boxes(reference, found)
            entry |= {name: one.facts for name, one in chain.stages.items() if isinstance(one, InSimulator)}
            print(f"{case.name}: {json.dumps({key: entry[key] for key in ('loss', 'boxes')})}")
        print(f"{case.name}: mean of classes {entry['mean']}, {taken / len(given):.2f} s a scan", flush=True)
    print(table(results))
    made = {
        "pipeline": args.pipeline,
        "scans": str(args.scans.name if args.scans else "synthetic"),
        "count": len(given),
    }
    args.out.write_text(json.dumps({**made, "results": results}, indent=1) + "\n", encoding="utf-8")
    worst = [name for name, entry in results.items() if "int8" in name and (entry.get("loss") or 0) > args.most]
    print(f"more than {args.most} points lost by: {', '.join(worst)}" if worst else "")
    return int(bool(worst))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipeline", default="pointpillars-s")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--scans", type=Path, help="folder of KITTI scans instead of synthetic scenes")
    parser.add_argument("--scenes", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vendors", action="store_true", help="the vendors' chips too")
    parser.add_argument("--most", type=float, default=1.5, help="points of average precision that int8 may lose")
    parser.add_argument("--only", action="append", help="a case by name, repeatable")
    parser.add_argument("--out", type=Path, default=Path("quality.json"))
    sys.exit(main(parser.parse_args()))
