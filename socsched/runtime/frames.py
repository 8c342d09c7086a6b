"""What a sensor's source of frames is: arrays by port name, one frame after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a sensor: arrays by port name, what it is called, and why it cannot be used (empty: it can)."""

    outputs: Mapping[str, Any]
    title: str = ""
    problem: str = ""


class FrameSource(Protocol):
    """Frames of one sensor; `count` is how many there are before they repeat, 0 when that has no meaning."""

    count: int

    def frame(self, number: int) -> Frame:
        """Return frame `number` (from 0)."""
        ...

    def warm(self) -> Frame:
        """Return a sound frame to warm up with."""
        ...

    def preload(self, frames: int) -> None:
        """Make what takes long to make of the first `frames` frames, before the run."""
        ...
