"""Compute the oracles under tests/data/scan, by plain numpy that uses nothing of socsched, and compare or write them.

    python -m tools.generate.scan_oracle           compute again from the stored inputs; exit 1 where an oracle differs
    python -m tools.generate.scan_oracle --write   the same, and write what was computed
    python -m tools.generate.scan_oracle --inputs  draw scans, labels and the int8 network again first, then write all

References: tests/reference_pointpillars.py (float64 sums), tests/reference_int8.py (int64).  Weights: those shipped.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests import reference_int8
from tests import reference_pointpillars as reference
from tools import ROOT

Array = np.ndarray[Any, Any]
FOLDER = ROOT / "tests" / "data" / "scan"
WEIGHTS = ROOT / "socsched" / "trained" / "pointpillars-s.npz"
SEEDS = (2, 3, 4)
"""Streets with objects of all three classes, pillars that overflow, and no decision near its threshold."""
UNITS = 256
"""Coordinates and intensities are whole multiples of 1/256, which fp32 holds exactly."""
TENSORS = ("decorated", "pfn", "bev", "block1", "block2", "block3", "neck", "cls", "reg", "dir")
LEAST_MARGIN = 1e-4
"""Between a score or overlap and where it would decide otherwise; fp32 scores are within 1e-6."""
PILLARS = 16
"""Of how many pillars one is kept with its features."""


def pack(points: Array) -> bytes:
    """Return a scan as `recorded.unpack` reads it: int16 differences along each column, compressed."""
    units = np.rint(points.astype(np.float64) * UNITS).astype(np.int16)
    columns = [np.diff(units[:, i], prepend=np.int16(0)).astype("<i2").tobytes() for i in range(4)]
    return lzma.compress(b"".join(columns), preset=9)


def frame(points: Array, weights: dict[str, Array]) -> tuple[dict[str, Any], bytes]:
    """Return the oracle's results for a scan, and samples of its tensors as an .npz file."""
    found = reference.network(points, weights)
    boxes, margin = reference.detections(found["cls"], found["reg"], found["dir"])
    if min(margin) < LEAST_MARGIN:
        raise SystemExit(f"a decision is {min(margin):.1e} from falling otherwise: choose another seed")
    stats: dict[str, Any] = {"points": len(points), "pillars": len(found["counts"])}
    stats |= {"points_in_pillars": int(found["counts"].sum()), "full_pillars": int((found["counts"] == 32).sum())}
    stats |= {name: reference.statistics(found[name]) for name in TENSORS}
    words = [
        {"cls": reference.CLASSES[label], "score": round(score, 6), "box": [round(float(v), 6) for v in box]}
        for score, label, box in boxes
    ]
    samples = {f"{name}_sample": found[name][:, ::31, ::27].astype(np.float32) for name in ("cls", "reg", "dir")}
    samples["pfn"] = found["pfn"][::PILLARS].astype(np.float16)
    return {"stats": stats, "detections": words}, archive(samples)


def archive(arrays: dict[str, Array]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def turn(axis: int, angle: float) -> Array:
    """Return the matrix of a rotation about a coordinate axis."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    matrix = np.eye(3)
    matrix[i, i] = matrix[j, j] = np.cos(angle)
    matrix[j, i], matrix[i, j] = np.sin(angle), -np.sin(angle)
    return matrix


def labels() -> tuple[str, str]:
    """Return a calibration and labels as KITTI's files: image boxes by its devkit's formula, in camera coordinates."""
    focal, column, row = 720.0, 610.0, 173.0
    project = np.array([[focal, 0, column, 45.0], [0, focal, row, 0.2], [0, 0, 1, 0.003]])
    rectify = turn(1, 0.008) @ turn(0, 0.004) @ turn(2, -0.010)
    to_camera = turn(0, 0.012) @ turn(2, 0.006) @ np.array([[0, -1, 0], [0, 0, -1], [1, 0, 0]])
    rows = {"P2": project, "R0_rect": rectify, "Tr_velo_to_cam": np.column_stack([to_camera, [0.0, -0.07, -0.27]])}
    calibration = "".join(f"{k}: " + " ".join(f"{v:.12e}" for v in m.ravel()) + "\n" for k, m in rows.items())
    lines = ["DontCare -1 -1 -10 510.00 170.00 530.00 190.00 -1 -1 -1 -1000 -1000 -1000 -10\n"]
    for kind, h, w, length, x, y, z, ry in (
        ("Car", 1.5, 1.7, 4.2, 1.0, 1.6, 20.0, -1.57),
        ("Car", 1.4, 1.6, 3.9, -9.0, 1.7, 27.0, 0.7),
        ("Van", 2.1, 1.9, 5.0, 8.5, 1.5, 12.0, 2.9),
        ("Pedestrian", 1.8, 0.6, 0.8, -3.5, 1.55, 11.0, 0.3),
        ("Cyclist", 1.75, 0.6, 1.8, 5.0, 1.4, 33.0, -2.2),
        ("Truck", 3.2, 2.5, 9.0, -4.0, 1.5, 60.0, 1.4),
    ):
        across = np.array([1, 1, -1, -1, 1, 1, -1, -1]) * length / 2
        along = np.array([1, -1, -1, 1, 1, -1, -1, 1]) * w / 2
        up = np.array([0, 0, 0, 0, -1, -1, -1, -1]) * h
        places = turn(1, ry) @ np.stack([across, up, along]) + np.array([[x], [y], [z]])
        pixels = project @ np.vstack([places, np.ones(8)])
        u, v = np.clip(pixels[0] / pixels[2], 0, 1241), np.clip(pixels[1] / pixels[2], 0, 374)
        numbers = (u.min(), v.min(), u.max(), v.max(), h, w, length, x, y, z, ry)
        lines.append(f"{kind} 0.00 0 {ry - np.arctan2(x, z):.2f} " + " ".join(f"{n:.2f}" for n in numbers) + "\n")
    return calibration, "".join(lines)


def int8_network() -> tuple[onnx.ModelProto, Array]:
    """Return a small network of the operators a real accelerator's file has, and its input [H, W, C]: random bytes."""
    rng = np.random.default_rng(8)
    source = np.where(rng.random((20, 24, 16)) < 0.4, 0, rng.integers(0, 256, (20, 24, 16))).astype(np.uint8)
    nodes, initializers, channels = [], [], {"Conv2d_18": 16}

    def convolution(name: str, x: str, out: int, kernel: int, stride: int, relu: bool = True) -> None:
        op, into = "ConvTranspose" if kernel == 4 else "Conv", channels[x]
        weight = np.clip(np.rint(rng.normal(0, 40, (out, kernel, kernel, into))), -127, 127).astype(np.int8)
        # sums of this many products of a weight and a byte are shifted to about the range of a byte
        spread = 40 * 90 * np.sqrt(kernel * kernel / (4 if kernel == 4 else 1) * into)
        shift = np.rint(np.log2(spread / 80) + rng.uniform(-0.8, 0.8, out)).astype(int)
        ahead = rng.integers(0, 3, out)
        bias = (rng.normal(0.3, 0.8, out) * spread / 2**ahead).clip(-32768, 32767).astype(np.int16)
        plain = name == "Conv2d_19"  # one shift for all channels, as some layers of a real file have
        for role, array in (("weight", weight), ("bias", bias)):
            initializers.append(numpy_helper.from_array(array, f"{name}_{role}"))
        shifts = {"offset": int(shift.max()), "bias_offset": 0} if plain else {"offset": shift.tolist()}
        attributes = {"bias_offset": ahead.tolist(), "kernel_size": [kernel] * 2, "stride": [stride] * 2, **shifts}
        attributes |= {"padding": [1 if kernel > 1 else 0] * 2, **({"nonlinear": 1} if relu else {})}
        nodes.append(helper.make_node(op, [x, f"{name}_weight", f"{name}_bias"], [name], name, **attributes))
        channels[name] = out

    def concatenation(name: str, *inputs: str, scale: int) -> None:
        scales = {"input_scale": [scale, 1], "input_offset": [8, 0]}
        nodes.append(helper.make_node("Concat", list(inputs), [name], name, **scales))
        channels[name] = sum(channels[x] for x in inputs)

    convolution("Conv2d_19", "Conv2d_18", 16, 3, 1)
    convolution("Conv2d_20", "Conv2d_19", 24, 3, 2)
    convolution("Conv2d_21", "Conv2d_20", 32, 3, 2)
    convolution("ConvTranspose2d_3", "Conv2d_21", 24, 4, 2)
    concatenation("Concat_1", "ConvTranspose2d_3", "Conv2d_20", scale=112)
    convolution("Conv2d_28", "Concat_1", 16, 3, 1)
    convolution("ConvTranspose2d_4", "Conv2d_28", 16, 4, 2)
    concatenation("Concat_2", "ConvTranspose2d_4", "Conv2d_19", scale=254)
    for name, out in (("Conv2d_15", 18), ("Conv2d_16", 42), ("Conv2d_17", 12)):
        convolution(name, "Concat_2", out, 1, 1, relu=False)
    graph = helper.make_graph(nodes, "small", [], [], initializers)
    return helper.make_model(graph, producer_name="tools/generate/scan_oracle.py"), source


def inputs() -> dict[str, bytes]:
    """Return the files oracles are computed from: scans of the scene generator, labels, the int8 network, its input."""
    from tools.train.streets import look_at, make_scene

    files = {f"{seed:06d}.xz": pack(look_at(make_scene(seed), seed).points) for seed in SEEDS}
    calibration, text = labels()
    files |= {"000000_calib.txt": calibration.encode(), "000000_label.txt": text.encode()}
    model, source = int8_network()
    return files | {"int8.onnx": model.SerializeToString(), "int8_golden.npz": archive({"Conv2d_18": source})}


def oracles() -> dict[str, bytes]:
    """Return the files computed from the stored inputs."""
    from tests.recorded import unpack

    weights = {name: array.astype(np.float32) for name, array in np.load(WEIGHTS).items()}
    document: dict[str, Any] = {
        "weights": reference.statistics(np.concatenate([array.ravel() for array in weights.values()])),
        "parameters": sum(array.size for array in weights.values()),
        "frames": {},
    }
    files = {}
    for path in sorted(FOLDER.glob("*.xz")):
        document["frames"][path.stem], files[f"{path.stem}.npz"] = frame(unpack(path), weights)
    source = np.load(FOLDER / "int8_golden.npz")["Conv2d_18"]
    golden = reference_int8.run(onnx.load(str(FOLDER / "int8.onnx")), "Conv2d_18", source)
    files["int8_golden.npz"] = archive({"Conv2d_18": source, **golden})
    return {"oracle.json": (json.dumps(document, indent=1) + "\n").encode(), **files}


def numbers(name: str, content: bytes) -> list[Any]:
    """Return the leaves of a file's arrays or document, in order."""
    if name.endswith(".npz"):
        with np.load(io.BytesIO(content)) as arrays:
            return [float(v) for key in sorted(arrays.files) for v in arrays[key].astype(np.float64).ravel()]
    leaves: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict | list):
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)
        else:
            leaves.append(value)

    walk(json.loads(content))
    return leaves


def difference(name: str, content: bytes) -> float:
    """Return the largest difference of a number, relative to it or 1, to the stored file; infinite for text."""
    stored = numbers(name, (FOLDER / name).read_bytes()) if (FOLDER / name).is_file() else []
    computed = numbers(name, content)
    if len(stored) != len(computed):
        return float("inf")
    worst = 0.0
    for old, new in zip(stored, computed, strict=True):
        if isinstance(new, str) or isinstance(old, str):
            worst = max(worst, 0.0 if old == new else float("inf"))
        else:
            worst = max(worst, abs(old - new) / max(1.0, abs(old)))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--inputs", action="store_true")
    args = parser.parse_args()
    if args.inputs:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name, content in inputs().items():
            (FOLDER / name).write_bytes(content)
    worst = 0.0
    for name, content in oracles().items():
        differs = difference(name, content)
        worst = max(worst, differs)
        print(f"{name}: {len(content)} bytes, differs by {differs:.1e}")
        if args.write or args.inputs:
            (FOLDER / name).write_bytes(content)
    return 0 if worst <= 1e-6 or args.write or args.inputs else 1


if __name__ == "__main__":
    raise SystemExit(main())
