"""The slices of GPUs as Perfetto's typed GPU events (``GpuRenderStageEvent``), beside the tracks of their lanes.

Perfetto shows them under the GPU of their number, and lists them in the table ``gpu_slice``.  A lane is a hardware
queue, the name of a slice its stage (category compute), the job's frame its submission.  They are a sequence of their
own, numbered GPU by GPU in the order of the plan's engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace.columns import Columns
from socsched.trace.convert import encode_values
from socsched.trace.protobuf import Part, Shape, Slot, items, message, number, plain, text

if TYPE_CHECKING:
    from socsched.trace.columns import Ints

BLOCK = 1 << 16
"""Maximum number of slices encoded at a time."""
_SEQUENCE = 2
_TABLES_START, _TABLES_NEEDED = 1, 2
_COMPUTE = 2


def gpu_events(columns: Columns, plan: Plan) -> Iterator[bytes]:
    """Yield the packets of all slices on engines of kind gpu: the names first, then GPU by GPU in order of time."""
    found = []
    for engine in plan.engines:
        if engine.kind == "gpu" and engine.id in columns.engines:
            at = np.flatnonzero(columns.slices.engine == list(columns.engines).index(engine.id))
            found.append((engine.id, at[np.argsort(columns.slices.start_ns[at], kind="stable")]))
    if not any(len(at) for _, at in found):
        return
    specifications: dict[tuple[str, int], int] = {}
    rows = [(gpu, at, *_numbers(columns, engine, at, specifications)) for gpu, (engine, at) in enumerate(found)]
    table = [
        part
        for (name, category), iid in specifications.items()
        for part in message(24, [*number(1, iid), *text(2, name), *(number(4, category) if category else [])])
    ]
    yield plain(message(1, [*number(10, _SEQUENCE), *number(13, _TABLES_START), *message(12, table)]))
    for gpu, at, queue, stage in rows:
        for begin in range(0, len(at), BLOCK):
            part = slice(begin, begin + BLOCK)
            yield _block(columns, gpu, at[part], queue[part], stage[part])


def _numbers(columns: Columns, engine: str, at: Ints, specifications: dict[tuple[str, int], int]) -> tuple[Ints, Ints]:
    """Return the numbers of queue and stage of each slice, added to `specifications` by name and category."""

    def iid(name: str, category: int) -> int:
        return specifications.setdefault((name, category), len(specifications) + 1)

    lanes, lane = encode_values(columns.slices.lanes[at])
    names, name = encode_values(columns.slices.name[at])
    queues = [iid(f"{engine}.{min(columns.lanes(int(code)), default=0)}", 0) for code in lanes.tolist()]
    stages = [iid(columns.names[code], _COMPUTE) for code in names.tolist()]
    return np.array(queues or [0], np.int64)[lane], np.array(stages or [0], np.int64)[name]


def _block(columns: Columns, gpu: int, at: Ints, queue: Ints, stage: Ints) -> bytes:
    slices, jobs = columns.slices, columns.jobs
    job = slices.job[at]
    values = {
        "time": items(slices.start_ns[at]),
        "event": items(at + 1),
        "duration": items(slices.end_ns[at] - slices.start_ns[at]),
        "submission": items(jobs.frame[job]),
        "queue": items(queue),
        "stage": items(stage),
    }

    def slot(field: int, name: str) -> list[Part]:
        return number(field, Slot(name, values[name].dtype.itemsize))

    event = [*slot(1, "event"), *slot(2, "duration"), *slot(10, "submission"), *number(11, gpu)]
    event += [*slot(13, "queue"), *slot(14, "stage")]
    head = [*slot(8, "time"), *number(10, _SEQUENCE), *number(13, _TABLES_NEEDED)]
    shape = Shape(message(1, [*head, *message(53, event)]))
    return shape.fill(shape.blank(len(at)), values).tobytes()
