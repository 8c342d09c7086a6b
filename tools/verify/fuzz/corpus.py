"""Regenerate the seeds of the fuzzer from shipped files and small generated ones: python -m tools.verify.fuzz.corpus.

They lie in corpus.tar.xz, FORMAT/NAME.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from socsched.compiler.artifact import Artifact
from socsched.cost.profile import CoRun, MeasuredConversion, MeasuredCost
from socsched.graph.operators import TensorType
from socsched.planning.io import save
from socsched.sim.simulate import simulate
from socsched.trace import io as trace_io
from socsched.trace.metrics import result
from tools import ROOT
from tools.verify.fuzz import imports

ARCHIVE = Path(__file__).parent / "corpus.tar.xz"


def read() -> dict[str, list[bytes]]:
    """Return the seeds of every format."""
    found: dict[str, list[bytes]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            if file is not None:
                found.setdefault(entry.name.split("/")[0], []).append(file.read())
    return found


def make(folder: Path) -> dict[str, bytes]:
    """Return seeds by FORMAT/NAME; `folder` is for files on the way."""
    seeds: dict[str, bytes] = {}
    for part in ("platforms", "pipelines", "studies"):
        for file in sorted((ROOT / part).glob("*.yaml")):
            seeds[f"{part.removesuffix('s').replace('studie', 'study')}/{file.stem}"] = file.read_bytes()
    for file in sorted((ROOT / "platforms/rules").glob("*.yaml")):
        seeds[f"rules/{file.stem}"] = file.read_bytes()
    seeds["plan/golden"] = (ROOT / "tests/golden/perception_stack_orin.plan.json").read_bytes()
    return seeds | _results(folder) | _tables() | _networks(folder) | imports.make(folder)


def _results(folder: Path) -> dict[str, bytes]:
    """Return the files of a simulation."""
    from tests.journals import write_journal
    from tests.sim.rich_plan import DURATION, rich_plan
    from tests.trace import reference_io

    plan = rich_plan()
    trace = simulate(plan, DURATION // 20, 3)
    trace.details[2] = {"boxes": [[1.5, 2.0]], "labels": ["Car"]}
    save(plan, folder / "plan.json")
    for name in ("trace.json", "trace.json.gz"):
        reference_io.save(trace, folder / name)
    trace_io.save(trace, folder / "trace.bin")
    write_journal(folder / "journal", trace)
    return {
        "plan/rich": (folder / "plan.json").read_bytes(),
        "trace/plain": (folder / "trace.json").read_bytes(),
        "blocks/trace": (folder / "trace.bin").read_bytes(),
        "tracegz/packed": (folder / "trace.json.gz").read_bytes(),
        "journal/run": (folder / "journal").read_bytes(),
        "result/run": json.dumps(result(trace, plan)).encode(),
    }


def _tables() -> dict[str, bytes]:
    """Return files of figures and settings."""
    border = (TensorType((1, 4, 8, 8), "fp32", "NCHW"),)
    made = Artifact("net", "m", "cpu0", "cpu", "llvm", "x86_64-linux-gnu", "fp32", 1, "k", Path("x"), ("net/a.so",),
                    ("x",), border, ("y",), border, "seed 0", True)  # fmt: skip
    stages = [
        {"name": "net", "sort": "network", "model": "m", "params": {}, "inputs": {"x": "camera"}, "artifacts": [0],
         "handovers": []},
        {"name": "vox", "sort": "function", "model": "voxelise", "params": {}, "inputs": {"points": "lidar"},
         "artifacts": [], "handovers": [0]},
        {"name": "rest", "sort": "timed", "model": None, "params": {}, "inputs": {}, "artifacts": [], "handovers": []},
    ]  # fmt: skip
    artifact = {**made.to_json(), "sha256": {"net/a.so": "0" * 64}, "machine": "x86_64"}
    handover = {"engine": "dla0", "toolchain": "TensorRT", "folder": "vox/dla0", "stage": "vox", "version": "8.6"}
    cost = MeasuredCost("net", "cpu0", "default", "fp32", 2, 10**6, 0.1, 20, 10**6, (10**6, 2 * 10**6))
    profile = {
        "schema_version": "1", "platform": "host", "tool": "x", "date": "2026-01-01", "costs": [asdict(cost)] * 2,
        "contention": [asdict(CoRun("net", "vox", 1.2, 5))],
        "conversions": [asdict(MeasuredConversion("net.y", "fp32 NCHW", "fp16 NCHW", 100, 10, 5))],
    }  # fmt: skip
    full = {"source": "x", "values": {"a": {"step": 0.1, "signed": True}}, "means": {"a": {"real": [1], "stored": [1]}}}
    faults = {
        "dropouts": [{"sensor": "lidar", "from": "1 ms", "until": "2 ms"}],
        "bursts": [{"sensor": "lidar", "at": "1 ms", "frames": 2}],
        "overruns": [{"stage": "net", "probability": 0.1, "factor": 2}],
        "throttles": [{"engine": "gpu", "from": "1 ms", "until": "2 ms", "factor": 2}],
        "random": {"seed": 1, "rate": 10, "until": "1 s", "kinds": ["dropouts"]},
    }
    tasks = [
        {"id": 1, "name": "a", "period": 10, "wcet": 3, "deadline": 9, "jitter": 1, "prio": 1},
        {"id": 2, "period": 20.5, "wcet": 4, "offset": 2, "prio": 2, "regions": [2, 2]},
    ]
    documents: dict[str, Any] = {
        "manifest/bundle": {
            "pipeline": "p",
            "platform": "b",
            "files": {"run.json": "0" * 64},
            "stages": stages,
            "artifacts": [artifact],
            "handovers": [handover],
            "application": {
                "machines": ["aarch64"],
                "glibc": "2.31",
                "stages": {"net": "network"},
                "built_on_board": [],
            },
        },
        "profile/host": profile,
        "scales/written": {"net": full},
        "scales/plain": {"net": {"x": 0.1, "y": 0.2}},
        "overload/all": {
            "stages": {
                "net": {"policy": "degrade", "precision": "int8", "params": {"a": 1}},
                "lanes": {"policy": "skip"},
            },
            "shed": {"below": "hard", "for": "1 s"},
        },
        "faults/all": faults,
        "taskset/two": {"name": "two", "time_unit": "ms", "policy": "P_FP", "tasks": tasks, "chain": [0, 1]},
    }
    return {name: json.dumps(document).encode() for name, document in documents.items()}


def _networks(folder: Path) -> dict[str, bytes]:
    """Return weights and networks."""
    import numpy as np
    import onnx

    from tests.models.checkpoint_files import save as save_checkpoint
    from tests.models.onnx_files import Builder

    seeds: dict[str, bytes] = {}
    arrays = {"conv.weight": np.ones((2, 3, 3, 3), np.float32), "bias": np.arange(4.0), "n": np.array(7)}
    np.savez(folder / "w.npz", **arrays)
    seeds["weights/plain"] = (folder / "w.npz").read_bytes()
    save_checkpoint(folder / "w.pth", {"state_dict": arrays, "meta": {"epoch": 3}})
    seeds["checkpoint/dict"] = (folder / "w.pth").read_bytes()
    b = Builder()
    x = b.op("Relu", b.conv("image", 3, 8))
    x = b.op("Concat", b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), b.conv(x, 8, 8, stride=2), axis=1)
    sizes = b.op("Slice", b.op("Shape", x), b.constant(np.array([2])), b.constant(np.array([4])))
    doubled = b.op("Concat", b.constant(np.array([1, 16])), b.op("Mul", sizes, b.constant(np.array([2, 2]))), axis=0)
    x = b.op("Resize", x, "", "", doubled, mode="nearest")
    x = b.op("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(6)))
    x = b.op("Reshape", b.op("GlobalAveragePool", x), b.constant(np.array([1, -1])))
    b.save(folder / "n.onnx", [1, 3, 16, 16], [b.op("Softmax", b.op("MatMul", x, b.constant(b.normal(16, 4))), axis=1)])
    seeds["onnx/net"] = (folder / "n.onnx").read_bytes()
    model = onnx.load(folder / "n.onnx")
    onnx.save(model, folder / "e.onnx", save_as_external_data=True, location="onnx.data", size_threshold=0)
    seeds["onnx/external"] = (folder / "e.onnx").read_bytes()
    seeds["beside/onnx.data"] = (folder / "onnx.data").read_bytes()
    seeds["scan/two"] = np.ones((2, 4), "<f4").tobytes()
    return seeds


def main() -> None:
    """Write the archive; the same files give the same bytes."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = make(Path(folder))
    with tarfile.open(ARCHIVE, "w:xz") as archive:
        for name, data in sorted(seeds.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    main()
