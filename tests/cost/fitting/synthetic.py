"""Networks with known times: passes of every class, and cells of boards whose parameters are known."""

from __future__ import annotations

import numpy as np

from socsched.cost.fitting.least import Cell
from socsched.cost.fitting.table import job_times, table
from socsched.cost.timing import Nominal
from socsched.descriptor.fit import Parameters
from socsched.graph.operators import Pass

ENGINE = Nominal(peak=1e6, dram=3e4, sram=2**20, block=8, bytes=1.0, submit_us=100, launch_us=5, taps=0.8, copies=True)
TRUE = Parameters(0.4, 1.1, 1.3, 0.5, 0.9, 0.3, 0.02, 6, 1.5, 0.5, 0.6, 4.0, 0.05, 0.7, 2.5, 1.2, 0.9)


def networks(count: int, seed: int = 0) -> list[tuple[Pass, ...]]:
    """Return networks of random layers: convolutions of every kind, products, pools and copies."""
    random = np.random.default_rng(seed)
    kinds = ("conv", "conv", "winograd", "depthwise", "grouped", "gemm", "matmul", "pool", "copy", "softmax", "eltwise")
    return [
        tuple(_layer(random, str(random.choice(kinds))) for _ in range(random.integers(8, 40))) for _ in range(count)
    ]


def _layer(random: np.random.Generator, kind: str) -> Pass:
    cin, cout, rows = (int(2 ** random.integers(low, high)) for low, high in ((3, 9), (3, 9), (4, 14)))
    groups = {"depthwise": cin, "grouped": 4}.get(kind, 1)
    kernel = 3 if kind in ("winograd", "depthwise", "grouped") else int(random.choice((1, 3)))
    if kind == "depthwise":
        cin = cout = 1
    dense = kind in ("conv", "winograd", "depthwise", "grouped", "gemm", "matmul")
    macs = rows * cin * cout * groups * kernel**2 if dense else 0
    weights = cin * cout * groups * kernel**2 if dense and kind != "matmul" else 0
    read, written = rows * cin * groups, rows * cout * groups
    costly = written if random.random() < 0.3 else 0
    copies = int(kind == "copy") * 2
    return Pass(
        kind, macs, read, written, weights, rows, cin, cout, groups, kernel, 1, written, costly, read + written, copies
    )


def cell(board: str, count: int, seed: int = 0, true: Parameters = TRUE, noise: float = 0.0) -> Cell:
    """Return a cell of `count` networks measured on a board with the parameters `true`."""
    work = table(networks(count, seed), ENGINE)
    factor = np.exp(np.random.default_rng(seed + 1).normal(0, noise, count))
    names = tuple(f"net{seed}-{number}" for number in range(count))
    return Cell(board, board, ENGINE, work, job_times(work, true) * factor, names)
