"""Kernels of networks from REEF's published profiles: JSON with every kernel's time, and its time by occupancy.

github.com/SJTU-IPADS/reef-artifacts, measured on an MI50 with 60 compute units; a file holds `model` and `kernels`,
each with `kernel`, `us`, `us_by_occupancy` and `launch` (grid and block).  The class follows from the name:
convolutions and matrix products are bound by arithmetic, the rest by memory, since the profiles hold no counters.
"""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

from socsched.errors import InputError
from socsched_literature.sharing.corun import Class, Client, Kernel

UNITS = 60
_ARITHMETIC = ("conv", "dense", "matmul", "winograd")


def read_client(file: Path, rate: float = 0.0) -> Client:
    """Return the network of a trace file; InputError for an invalid file."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kernels = tuple(_kernel(one) for one in content["kernels"])
        return Client(str(content["model"]), kernels, rate)
    except (ValueError, KeyError, TypeError) as error:
        hint = "expected JSON with model, and kernels with kernel, us, us_by_occupancy and launch"
        raise InputError(f"{file}: {type(error).__name__}: {error}", hint) from None


def _kernel(entry: dict[str, object]) -> Kernel:
    name, grid, rounds = str(entry["kernel"]), entry["launch"], entry["us_by_occupancy"]
    if not isinstance(grid, list) or not isinstance(rounds, list):
        raise ValueError("launch and us_by_occupancy are lists")
    blocks = max(1, int(grid[0]) * int(grid[1]) * int(grid[2]))
    units = ceil(blocks / ceil(blocks / UNITS))
    kind: Class = "compute" if any(word in name for word in _ARITHMETIC) else "memory"
    alone = int(str(entry["us"])) * 1000
    return Kernel(name, alone, units, kind, blocks, tuple(int(one) * 1000 for one in rounds))
