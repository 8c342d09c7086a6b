"""The interface of a sensor's frame source: arrays by port name, frame by frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a sensor: arrays by port name, a title, and the reason it is unusable (empty if usable)."""

    outputs: Mapping[str, Any]
    title: str = ""
    problem: str = ""


class FrameSource(Protocol):
    """Frames of one sensor; `count` is the number of frames before they repeat, 0 if not applicable."""

    count: int

    def frame(self, number: int) -> Frame:
        """Return frame `number` (from 0)."""
        ...

    def warm(self) -> Frame:
        """Return a usable frame for warm-up."""
        ...

    def preload(self, frames: int) -> None:
        """Generate the expensive parts of the first `frames` frames before the run."""
        ...
