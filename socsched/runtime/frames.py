"""Frames of a sensor as they come from its source, arrays by port name, and of a chain as they end."""

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


def facts_of(frame: Frame) -> dict[str, Any]:
    """Return what the results of a run say about a frame: its name, number of points or problem."""
    if frame.problem:
        return {"input": frame.title, "problem": frame.problem}
    return {"input": frame.title, "points": len(frame.outputs["points"])} if "points" in frame.outputs else {}


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


@dataclass(frozen=True, slots=True)
class FrameReport:
    """The completion of a chain with source frame `frame` as its oldest data; times in ns from the start."""

    chain: str
    frame: int
    release_ns: int
    finish_ns: int
    deadline_ns: int

    @property
    def response_ns(self) -> int:
        """Return the time from the release of the frame to the end of the chain."""
        return self.finish_ns - self.release_ns

    @property
    def met(self) -> bool:
        """Return whether the chain met its deadline."""
        return self.response_ns <= self.deadline_ns
