"""Measurement of selected configurations of a sweep on real boards, found through TVM's RPC tracker.

Every network stage that a plan puts on a processor is compiled for it here, sent to the next free board of the
platform's kind, and timed there in isolation, with its inputs in a frame.  The work of a board that disappears or takes
too long goes to another board.  Each measurement is stored as soon as it is available.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError, UsageError
from socsched.planning.plan import Plan, Task
from socsched.pool import Pool
from socsched.study.store import Row, replace_file
from socsched.study.sweep import Sweep, select_rows

_GRACE_S = 10


@dataclass(frozen=True, slots=True)
class Item:
    """One stage to measure: `code` (a shared object) and `arrays` are files, `name` is the name of its result."""

    name: str
    key: str
    stage: str
    code: str
    arrays: str
    repeat: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A task of a plan and the item that measures it."""

    plan: str
    task: Task
    item: Item


def measure_selected(done: Sweep, tracker: str, scans: Path | None, note: Callable[[str], None]) -> Sweep:
    """Return the sweep with the columns `measured` of the selected configurations filled in.

    Raises MachineError if no tracker answers at ``HOST:PORT``, or if it has no board of a required platform.
    """
    host, port = tracker_address(tracker)
    study, how = done.study, done.study.measure
    rows = [dict(row) for row in select_rows(study, done.rows, how.choose)]
    boards = _boards(host, port, {how.keys.get(row["platform"], row["platform"]) for row in rows})
    wanted = list(_wanted(done, rows, scans, note))
    folder = done.folder / "measured"
    measured = {name: JsonFile.open(folder / f"{name}.json", "measurement").data for name in _kept(folder)}
    items = {w.item.name: w.item for w in wanted if w.item.name not in measured}
    if items:
        note(f"{len(items)} stages are measured on {boards} boards")
        for item, answer in _answers(list(items.values()), boards, (host, port), done, note):
            if "times_ns" in answer:
                replace_file(folder / f"{item.name}.json", json.dumps(answer).encode())
                measured[item.name] = answer
    return replace(done, rows=tuple(_joined(row, wanted, measured) for row in done.rows))


def tracker_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; UsageError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"--measure {text}: expected HOST:PORT of an RPC tracker")
    return host, int(port)


def _boards(host: str, port: int, keys: set[str]) -> int:
    """Return the number of boards of these kinds; MachineError if one kind has none."""
    from socsched.compiler.loading.tracker import boards

    known = boards(host, port)
    missing = sorted(keys - set(known))
    if missing:
        listed = ", ".join(f"{key} ({count})" for key, count in sorted(known.items())) or "none"
        raise MachineError(
            f"the tracker knows no board {', '.join(missing)}; it has: {listed}",
            "start `python -m socsched.compiler.loading.rpc --tracker HOST:PORT --key KEY` there, or set measure: keys",
        )
    return sum(known[key] for key in keys)


def _wanted(done: Sweep, rows: Sequence[Row], scans: Path | None, note: Callable[[str], None]) -> Iterator[_Wanted]:
    """Yield the stages to measure for the plans of `rows`, compiled and with their inputs on disk."""
    from socsched.study.design import Point
    from socsched.study.sweep import configurations

    points: dict[int, Point] = {point.config: point for point in configurations(done.study)}
    opened, heard = done.opened(), _Heard(scans)
    (done.folder / "measured").mkdir(exist_ok=True)
    for key in dict.fromkeys(row["plan"] for row in rows):
        row = next(row for row in rows if row["plan"] == key)
        point, plan = points[row["config"]], done.planned(key).plan
        board = done.study.measure.keys.get(point.platform, point.platform)
        pipeline, platform = opened.pipeline(point), opened.platform(point)
        for task in plan.tasks:
            prepared = _prepared(task, plan, pipeline, platform, heard, note)
            if prepared is None:
                continue
            artifact, arrays = prepared
            packed = _npz(arrays)
            repeat = done.study.measure.repeat
            identity = f"{board} {artifact.key} {repeat} {hashlib.sha256(packed).hexdigest()}"
            name = hashlib.sha256(identity.encode()).hexdigest()[:20]
            file = done.folder / "measured" / f"{name}.npz"
            if not file.exists():
                replace_file(file, packed)
            item = Item(name, board, task.name, str(artifact.path), str(file), repeat)
            yield _Wanted(key, task, item)


def _npz(arrays: Sequence[Any]) -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, *arrays)
    return buffer.getvalue()


class _Heard:
    """Inputs of stages in one frame, computed on this machine once per pipeline."""

    def __init__(self, scans: Path | None) -> None:
        self._scans = scans
        self._given: dict[int, Any] = {}

    def of(self, pipeline: Pipeline) -> Any:
        """Return inputs by stage."""
        from socsched.descriptor.host import detect
        from socsched.models.pointpillars.scan import list_scans
        from socsched.models.work import stage_work
        from socsched.planning.search import make_plan
        from socsched.runtime.corun import record

        if id(pipeline) not in self._given:
            here = detect()
            plan = make_plan(pipeline, here, work=stage_work, cuts=False, explain=False)
            files = None if self._scans is None else list(list_scans(self._scans))
            self._given[id(pipeline)] = (pipeline, record(plan, pipeline, here, files, None).given)
        return self._given[id(pipeline)][1]


def _prepared(
    task: Task, plan: Plan, pipeline: Pipeline, platform: Any, heard: _Heard, note: Callable[[str], None]
) -> tuple[Any, list[Any]] | None:
    """Return a network stage compiled for its engine, and its inputs; None for stages that boards do not measure."""
    from socsched.compiler.builder import compile_stage
    from socsched.models.registry import bindings, get_model
    from socsched.runtime.backends.base import Setting, gather
    from socsched.runtime.backends.tvm_cpu import weights_of

    stage = next((s for s in pipeline.stages if s.name == task.name), None)
    if stage is None or not stage.model or get_model(stage.model, stage.params).network is None:
        return None
    engine = platform.engine(task.engine)
    if engine.target.get("kind") != "llvm":
        note(f"{plan.platform}, {plan.mode}: {task.name} is not measured, {engine.id} is not a processor")
        return None
    setting = Setting(plan, pipeline, platform, bindings(pipeline), None)
    artifact = compile_stage(stage, engine, task.precision, weights_of(setting), len(task.lanes))
    ports = {name: setting.bound[task.name][name] for name in artifact.input_names}
    arrays = gather(ports, heard.of(pipeline)[task.name], artifact.inputs)
    if not artifact.computes_half:  # fp16 is then only stored at the boundary; send the code's type
        arrays = [array.astype(np.float32) if array.dtype == np.float16 else array for array in arrays]
    return artifact, list(arrays)


def _answers(
    items: Sequence[Item], boards: int, tracker: tuple[str, int], done: Sweep, note: Callable[[str], None]
) -> Iterator[tuple[Item, dict[str, Any]]]:
    """Yield the boards' answers as they arrive; items that no board could measure have `failed`."""
    how = done.study.measure
    pool = Pool(
        _setup,
        (*tracker, how.priority, how.timeout_s),
        boards,
        timeout_s=how.timeout_s + _GRACE_S,
        give_up=lambda item, why: {"failed": why},
    )
    left, waiting = list(items), 0
    with pool:
        while left or waiting:
            while left and pool.room:
                pool.submit(left.pop(0))
                waiting += 1
            for item, answer in pool.finished(0.5):
                outcome = [(item, answer)]
                if "lost" in answer:
                    note(f"{item.stage}: a board {item.key} was lost, its work moves to another ({answer['lost']})")
                    outcome = pool.again(item, answer["lost"])
                for one, final in outcome:
                    waiting -= 1
                    if "failed" in final:
                        note(f"{one.stage}: not measured on {one.key}: {final['failed']}")
                    else:
                        median = statistics.median(final["times_ns"])
                        note(f"{one.stage} on a board {one.key}: median {median / 1e6:.3f} ms")
                    yield one, final


def _setup(host: str, port: int, priority: int, timeout_s: int) -> Callable[[Item], dict[str, Any]]:
    """Return the worker function for an item: request a board, send, time; ``lost`` means the board disappeared."""

    def call(item: Item) -> dict[str, Any]:
        from socsched.compiler.loading.tracker import request

        with np.load(item.arrays) as stored:
            arrays = [stored[name] for name in stored.files]
        try:
            times = request(host, port, item.key, priority, timeout_s).timed(item.code, arrays, item.repeat)
        except (MachineError, OSError, RuntimeError) as error:
            return {"lost": " ".join(str(error).split())[-160:]}
        return {"times_ns": times, "board": item.key, "stage": item.stage, "date": time.strftime("%Y-%m-%d")}

    return call


def _kept(folder: Path) -> list[str]:
    return [path.stem for path in folder.glob("*.json")] if folder.is_dir() else []


def _joined(row: Row, wanted: Sequence[_Wanted], found: dict[str, Any]) -> Row:
    """Return a row with the measurements of its plan's stages."""
    known = [w for w in wanted if w.plan == row["plan"] and w.item.name in found]
    if not known:
        return row
    medians = [round(statistics.median(found[w.item.name]["times_ns"])) for w in known]
    return {
        **row,
        "measured": True,
        "measured_stages": len(known),
        "measured_ns": sum(medians),
        "measured_planned_ns": sum(w.task.cost_ns for w in known),
    }
