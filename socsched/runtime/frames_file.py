"""The results of a run in a file that grows during the run: `frames.jsonl`, one object per line.

Parts of frames are queued as they arrive and written four times a second by a background thread, so a killed process
loses at most its last quarter of a second.  Parts are written in order of arrival; at the end of the run they are
merged into one object per frame, in frame order.  Memory holds a quarter of a second of parts, and at most `_BACKLOG`
if the disk is slow: then `add` blocks.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from socsched.bounded import open_file, read_lines
from socsched.descriptor.json_file import JsonFile
from socsched.errors import InputError
from socsched.files import replacing

NAME = "frames.jsonl"
INTERVAL_S = 0.25
_BACKLOG = 1024
_AT_ONCE = 8
"""Detections serialised before the interpreter lock is offered to other threads: some 50 us of work."""
_FRAME = re.compile(rb'\{"frame": (\d{1,15})\b')
_HINT = "run again with -o, into this folder"
_LONGEST = 64 * 2**20
"""Bytes of a line: a thousand detections take 100 KiB."""

Part = Mapping[str, Any]
"""Data about a frame, by name; a value may be an iterator of plain data, which writing consumes."""


class FramesFile:
    """Writes parts of frames to `path`; a context manager around the run.  `error` holds a write failure, if any."""

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
        """Queue a part of a frame for writing."""
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
                self._file.flush()  # the kernel has it now, even if this process dies
        except Exception as error:
            self.error = error
            self._parts.clear()
            self._room.release(_BACKLOG)  # unblock threads that wait for room


def _pieces(frame: int, part: Part) -> Iterator[str]:
    """Yield the line of a part, offering the interpreter lock to other threads every `_AT_ONCE` rows."""
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
    """Yield the data of every frame, in frame order, even for a killed run; a truncated line is skipped."""
    places = _places(Path(path))
    with open_file(path, "results of a run", _HINT) as file:
        for _, offsets in sorted(places.items()):
            yield _merged(_lines(Path(path), file, offsets))


def settle(path: Path) -> None:
    """Merge the file into one object per frame, in frame order; delete it if empty.

    Memory holds only a few numbers per frame.
    """
    places = _places(path)
    if not places:
        path.unlink()  # the run produced no data
        return
    if all(len(found) == 1 for found in places.values()) and list(places) == sorted(places):
        return
    with replacing(path) as file:
        for frame in read_frames(path):
            file.write(json.dumps(frame).encode() + b"\n")


def _places(path: Path) -> dict[int, list[int]]:
    """Return, for every frame, the file offsets of its lines."""
    found: dict[int, list[int]] = {}
    offset = 0
    for line in read_lines(path, "results of a run", _HINT, _LONGEST):
        if (match := _FRAME.match(line)) and line.endswith(b"\n"):
            found.setdefault(int(match[1]), []).append(offset)
        offset += len(line)
    return found


def _lines(path: Path, file: BinaryIO, offsets: Iterable[int]) -> Iterator[dict[str, Any]]:
    for offset in offsets:
        file.seek(offset)
        part = JsonFile(file.readline(_LONGEST), str(path), _HINT).data
        if not isinstance(part, dict) or not isinstance(part.get("tensors", {}), dict):
            raise InputError(f"{path}: byte {offset}: expected the results of a frame by name", _HINT)
        yield part


def _merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        merge(whole, part)
    return whole


def merge(whole: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a part of a frame's results to the others; tensors of several stages stand together."""
    tensors = {**whole.get("tensors", {}), **part.get("tensors", {})}
    whole.update(part)
    if tensors:
        whole["tensors"] = tensors
