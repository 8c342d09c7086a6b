"""DeepThings: memory of a tile, and speed by workers, with work stealing against work sharing."""

from __future__ import annotations

from socsched_literature.planners.deepthings import deal_tiles, work_sharing, work_stealing
from tools.literature.claims._networks import pipeline
from tools.literature.claims._runs import planned
from tools.literature.claims.claim import Claim

SYSTEM, PAPER = "DeepThings", "Zhao et al., IEEE TCAD 2018"


def claims() -> list[Claim]:
    """Return memory, speed-up over workers and the gain of stealing for the network the paper used."""
    what = pipeline("yolov2_front", period_ms=4000.0, precisions=("fp32",))
    options = {"rows": "5", "columns": "5", "layers": "0", "steal": "1000"}
    by = {
        cores: planned("deepthings", what, {**options, "engines": ",".join(names)}).solver.facts
        for cores, names in ((4, ("cpu0",)), (8, ("cpu0", "cpu1")), (12, ("cpu0", "cpu1", "cpu2")))
    }
    facts = by[4]
    less = 1 - facts["tile_bytes"] / facts["whole_bytes"]
    speed = {cores: each["one_core_ns"] / each["makespan_ns"] for cores, each in by.items()}
    # Workers of different speed, as other work leaves them: every other core half as fast.
    tile = facts["one_core_ns"] // 25
    times = [[tile * (1 + worker % 2) for worker in range(6)] for _ in range(25)]
    queues = deal_tiles(25, 6)
    shared, stolen = work_sharing(times, queues), work_stealing(times, queues, 1_000_000).makespan_ns
    network = "the first 16 layers of YOLOv2 at 608 x 608, 5x5 tiles"
    return [
        Claim(
            SYSTEM,
            PAPER,
            "fused tiles need far less memory than the layers whole",
            network,
            "68 % less",
            f"{less:.0%} less ({facts['whole_bytes'] / 1e6:.1f} to {facts['tile_bytes'] / 1e6:.1f} MB of activations)",
            less >= 0.6,
            "activations alone; the paper's figure is for all memory of a device",
        ),
        Claim(
            SYSTEM,
            PAPER,
            "time falls with workers",
            f"{network}, on Cortex-A78AE cores of AGX Orin 64GB",
            "1.7 to 3.5x on 2 to 6 boards",
            ", ".join(f"{value:.1f}x on {cores} cores" for cores, value in speed.items()),
            speed[4] >= 1.7 and speed[12] > speed[4],
            "cores share a memory, boards a radio link; 25 tiles on 12 cores leave 3 rounds",
        ),
        Claim(
            SYSTEM,
            PAPER,
            "stealing beats sharing tiles out once",
            "the same tiles on six workers, every other one half as fast, a steal taking 1 ms",
            "1.7 to 2.2x",
            f"{shared / 1e6:.0f} to {stolen / 1e6:.0f} ms, {shared / stolen:.2f}x",
            stolen < shared,
            "" if shared / stolen >= 1.7 else "nearly; the paper's boards also reuse overlapping data, left out here",
        ),
    ]
