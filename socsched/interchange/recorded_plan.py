"""What the plans of imported recordings have in common: nothing was searched for, planned or proved."""

from __future__ import annotations

from typing import Any

from socsched.planning.evidence import Bandwidth, Power
from socsched.planning.search_report import IMPORTED, SearchReport

RECORDED: dict[str, Any] = {
    "verdict": "undecided",
    "policy": "fifo",
    "transitions": (),
    "violations": (),
    "power": Power(),
    "bandwidth": Bandwidth(),
    "solver": SearchReport(name=IMPORTED, status="recorded elsewhere: nothing was planned or proved"),
    "inputs": {},
}
"""Fields of `Plan`."""
