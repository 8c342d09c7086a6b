"""Batches of mutations in a separate process, whose time and memory are monitored; repeatable by seed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import multiprocessing
import os
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from socsched.errors import SocschedError
from tools.verify.fuzz.formats import Format

SECONDS = 10.0
"""Processor time a file may take, in this process and in those that read for it."""
MEMORY = 2**30
"""Bytes a file may add to the process; the kernel limits those that read for it."""
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """Counts by outcome (taken, refused, and what must not be), and one example of each finding."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: str, number: int) -> None:
        self.counts[outcome.split(" ")[0]] += 1
        if outcome not in ("taken", "refused"):
            self.findings.setdefault(outcome, number)


def mutation(form: Format, seed: int, number: int) -> bytes:
    """Return mutation `number` of a format, the same for the same seed."""
    random = Random(f"{seed}/{form.name}/{number}")
    return form.mutate(random.choice(form.seeds), random)


def attempt(form: Format, data: bytes, file: Path) -> str:
    """Return taken or refused, or what went wrong: a kind, and the place in socsched."""
    file.write_bytes(data)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            form.read(file)
    except SocschedError as error:
        said = str(error)
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said) and form.plain:
            return "control characters in the message"
        return "refused"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "/socsched/" in f.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"traceback {type(error).__name__} {place}"
    return "taken"


def _peak(reset: bool = False) -> int:
    if reset:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def _work(form: Format, seed: int, numbers: range, folder: Path, pipe: Any) -> None:
    file = folder / ("manifest.json" if form.name == "manifest" else f"{form.name}{form.suffix}")
    with contextlib.redirect_stdout(io.StringIO()):
        form.warm(file)
    resting = _peak(reset=True)
    for number in numbers:
        data = mutation(form, seed, number)
        pipe.send((number, None))
        begun = _used()
        outcome = attempt(form, data, file)
        if _used() - begun > SECONDS:
            outcome = f"slow {hashlib.sha256(data).hexdigest()[:6]}"
        if _peak() - resting > MEMORY:
            outcome = f"memory {hashlib.sha256(data).hexdigest()[:6]}"
            resting = _peak(reset=True)
        pipe.send((number, outcome))
    pipe.send((None, None))


def _used() -> float:
    """Return the processor time (s) of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _spent(pid: int) -> tuple[float, int]:
    """Return processor seconds and resident bytes of a process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * _TICK, int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0.0, 0


def batch(form: Format, seed: int, numbers: range, folder: Path, until: float = float("inf")) -> Tally:
    """Return the outcomes of mutations `numbers` of a format; a process that hangs, grows or dies costs one of them."""
    tally = Tally()
    first = numbers.start
    while first < numbers.stop and time.monotonic() < until:
        for number, outcome in _watched(form, seed, range(first, numbers.stop), folder, until):
            tally.add(outcome, number)
            first = number + 1
    return tally


def _watched(form: Format, seed: int, numbers: range, folder: Path, until: float) -> Iterator[tuple[int, str]]:
    context = multiprocessing.get_context("fork")
    pipe, theirs = context.Pipe(duplex=False)
    worker = context.Process(target=_work, args=(form, seed, numbers, folder, theirs), daemon=True)
    worker.start()
    theirs.close()
    pid = worker.pid or 0
    at, begun, resting, ended = numbers.start, 0.0, 0, False
    try:
        while time.monotonic() < until:
            if pipe.poll(0.2):
                try:
                    number, outcome = pipe.recv()
                except EOFError:
                    break
                if number is None:
                    ended = True
                    return
                at = number
                if outcome is None:
                    begun, resting = 0.0, resting or _spent(pid)[1]
                else:
                    yield number, outcome
                continue
            spent, held = _spent(pid)
            begun = begun or spent
            if spent - begun > 2 * SECONDS:
                yield at, f"hang {number_of(form, seed, at)}"
                return
            if held - (resting or held) > 2 * MEMORY:
                yield at, f"memory {number_of(form, seed, at)}"
                return
        else:
            ended = True
            return
        worker.join()
        yield at, f"crash {worker.exitcode} {number_of(form, seed, at)}"
    finally:
        if not ended or worker.is_alive():
            worker.kill()
        worker.join()
        pipe.close()


def number_of(form: Format, seed: int, number: int) -> str:
    """Return a short digest of a mutation, so that different findings stay apart."""
    return hashlib.sha256(mutation(form, seed, number)).hexdigest()[:6]
