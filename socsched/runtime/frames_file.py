"""What a run found, in a file that grows as it goes: `frames.jsonl`, one object a line.

Parts of frames are noted as they come and written four times a second by a thread nobody waits for, so that a process
that is killed leaves all but its last quarter of a second.  Parts come in the order things happen; when the run is over
they are put together to one object a frame, in frame order.  Memory holds a quarter of a second's parts, and no more
than `_BACKLOG` where the disk is slow: then who adds another one waits.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from socsched.files import replacing

NAME = "frames.jsonl"
INTERVAL_S = 0.25
_BACKLOG = 1024
_AT_ONCE = 8
"""Detections put into words before others may have the interpreter: some 50 us of work."""
_FRAME = re.compile(rb'\{"frame": (\d+)')

Part = Mapping[str, Any]
"""What is known of a frame, by name; a value may be an iterator of plain data, which is used up in writing."""


class FramesFile:
    """Writes parts of frames to `path`; a context manager around the run.  `error` is what writing failed with."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.error: Exception | None = None
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        self._parts: deque[tuple[int, Part]] = deque()
        self._room = threading.Semaphore(_BACKLOG)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)

    def __enter__(self) -> FramesFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        self._write()
        self._file.close()
        if self.error is None:
            settle(self._path)

    def add(self, frame: int, part: Part) -> None:
        """Note a part of a frame."""
        if self.error is None:
            self._room.acquire()
            self._parts.append((frame, part))

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._write()

    def _write(self) -> None:
        try:
            while self._parts:
                frame, part = self._parts.popleft()
                self._room.release()
                if self.error is None:
                    self._file.write("".join(_pieces(frame, part)))
            if self.error is None:
                self._file.flush()  # the system has it now, whatever becomes of this process
        except Exception as error:
            self.error = error
            self._parts.clear()
            self._room.release(_BACKLOG)  # who waits for room goes on


def _pieces(frame: int, part: Part) -> Iterator[str]:
    """Yield the line of a part; the interpreter is offered to others between a few rows."""
    yield json.dumps({"frame": frame})[:-1]
    for name, value in part.items():
        yield f", {json.dumps(name)}: "
        if not isinstance(value, Iterator):
            yield json.dumps(value)
            continue
        yield "["
        for number, row in enumerate(value):
            yield (", " if number else "") + json.dumps(row)
            if number % _AT_ONCE == _AT_ONCE - 1:
                time.sleep(0)
        yield "]"
    yield "}\n"


def read_frames(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield what is known of every frame, in frame order, also of a run that was killed; a torn line is left out."""
    places = _places(Path(path))
    with Path(path).open("rb") as file:
        for _, offsets in sorted(places.items()):
            yield _merged(_lines(file, offsets))


def settle(path: Path) -> None:
    """Make the file one object a frame, in frame order; memory holds a few numbers a frame.  An empty one goes."""
    places = _places(path)
    if not places:
        path.unlink()  # nothing was there to be found
        return
    if all(len(found) == 1 for found in places.values()) and list(places) == sorted(places):
        return
    with replacing(path) as file:
        for frame in read_frames(path):
            file.write(json.dumps(frame).encode() + b"\n")


def _places(path: Path) -> dict[int, list[int]]:
    """Return, for every frame, where the lines about it begin."""
    found: dict[int, list[int]] = {}
    offset = 0
    with path.open("rb") as file:
        for line in file:
            if (match := _FRAME.match(line)) and line.endswith(b"\n"):
                found.setdefault(int(match[1]), []).append(offset)
            offset += len(line)
    return found


def _lines(file: Any, offsets: Iterable[int]) -> Iterator[dict[str, Any]]:
    for offset in offsets:
        file.seek(offset)
        yield json.loads(file.readline())


def _merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        tensors = {**whole.get("tensors", {}), **part.get("tensors", {})}
        whole.update(part)
        if tensors:
            whole["tensors"] = tensors
    return whole
