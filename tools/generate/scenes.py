"""Write synthetic street scans in KITTI's format, and print the rate.

    python -m tools.generate.scenes FOLDER --count 100 --processes 4
    python -m tools.generate.scenes --shipped

FOLDER gets NNNNNN.bin, NNNNNN_label.txt and NNNNNN_calib.txt; the number is the seed.  --shipped writes the scans that
socsched ships (`socsched.models.street`).
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # before numpy: one process a core

import argparse  # noqa: E402
import multiprocessing  # noqa: E402
import time  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from socsched.models import street  # noqa: E402
from socsched.models.pointpillars.scan import write_bin  # noqa: E402
from tools.train.lidar import KITTI_CAMERA  # noqa: E402
from tools.train.precision import calibration_of, truths_of, write_calibration, write_labels  # noqa: E402
from tools.train.streets import look_at, make_scene, sequence, visible  # noqa: E402


def write(seed: int, folder: Path, full_turn: bool) -> tuple[int, int, float]:
    """Write the scene of a seed; return how many points and labels it has, and the processor time it took (s)."""
    begun = time.process_time()
    scene, camera = make_scene(seed), None if full_turn else KITTI_CAMERA
    seen = look_at(scene, seed, camera=camera)
    truths, calibration = truths_of(scene, seen), calibration_of()
    write_bin(folder / f"{seed:06d}.bin", seen.points)
    write_labels(folder / f"{seed:06d}_label.txt", truths, calibration)
    write_calibration(folder / f"{seed:06d}_calib.txt", calibration)
    return len(seen.points), len(truths), time.process_time() - begun


def write_shipped(file: Path) -> None:
    """Write the first scans of the drive of seed 0 with the boxes that can be seen in them."""
    arrays = {}
    for number, (scene, points) in enumerate(sequence(0, street.SCANS)):
        columns = np.ascontiguousarray(points.T).view(np.uint8).reshape(4, -1, 4)
        arrays[f"points{number}"] = np.ascontiguousarray(columns.transpose(0, 2, 1))
        arrays[f"boxes{number}"] = scene.boxes[visible(scene, points)]
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("scenes"))
    parser.add_argument("--shipped", action="store_true", help="write the scans that socsched ships instead")
    parser.add_argument("--first", type=int, default=0, help="seed of the first scene")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--full-turn", action="store_true", help="all around, rather than what the camera sees")
    args = parser.parse_args()
    if args.shipped:
        write_shipped(street.FILE)
        raise SystemExit
    args.folder.mkdir(parents=True, exist_ok=True)
    job = partial(write, folder=args.folder, full_turn=args.full_turn)
    with multiprocessing.Pool(args.processes) as pool:
        pool.apply(job, (args.first,))  # workers have imported everything before the clock starts
        begun = time.perf_counter()
        made = pool.map(job, range(args.first, args.first + args.count), chunksize=4)
        taken = time.perf_counter() - begun
    points, labels, spent = (sum(column) / max(len(made), 1) for column in zip(*made, strict=True))
    print(
        f"{len(made)} scans of {points:.0f} points and {labels:.1f} labels: {len(made) / taken:.1f} scans a second, "
        f"{1000 * spent:.0f} ms of one processor each"
    )
