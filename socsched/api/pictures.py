"""Pictures of a run's detections in one frame: a range image, and the scan from above with its boxes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from socsched.trace.trace import Trace


def draw(trace: Trace, files: Sequence[Path], target: Path, street: int | None) -> None:
    """Draw the first frame with detected boxes, as a range image and from above, with the true boxes where known.

    `street`: the shipped scan that is the first of `files`, None for other scans.
    """
    import tempfile

    import numpy as np

    from socsched.models.pointpillars.scan import read_scan
    from socsched.models.street import boxes as boxes_in
    from socsched.reporting.pictures import draw as birdseye
    from socsched.reporting.pictures import draw_range, stack

    numbers = {file.name: number for number, file in enumerate(files)}
    frame = next((f for f, d in sorted(trace.details.items()) if d.get("input") in numbers and "detections" in d), None)
    if frame is None:
        return
    name, detections = str(trace.details[frame]["input"]), trace.details[frame]["detections"]
    points = np.asarray(read_scan(files[numbers[name]], None))
    boxes = np.array([entry["box"] for entry in detections])
    labels, scores = ([entry[key] for entry in detections] for key in ("label", "score"))
    truth = boxes_in(street + numbers[name]) if street is not None else None
    with tempfile.TemporaryDirectory() as scratch:
        above = birdseye(points, boxes, labels, scores, truth, Path(scratch) / "above.png", f"{name}, frame {frame}")
        ahead = draw_range(points, boxes, labels, scores, truth, Path(scratch) / "ahead.png")
        stack(ahead, above, target)
