"""The events of a Perfetto trace, built from columns block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace.columns import STATUS, Columns, unit
from socsched.trace.convert import Names, encode_values
from socsched.trace.execution_intervals import arrows, stays, used_lanes
from socsched.trace.protobuf import Block, Buffer, Part, Shape, Slot, fixed64, items, message, number, plain, raw, text
from socsched.trace.protobuf import width as width_of
from socsched.units import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Floats, Ints

    Values = Mapping[str, NDArray[Any]]


BLOCK = 1 << 16
"""Maximum number of each of stays, counter steps, releases and instants encoded at a time."""
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_TABLES_START, _TABLES_NEEDED = 1, 2
_CATEGORIES, _NAMES, _ARGS, _STRINGS = 1, 2, 3, 29
"""Fields of ``InternedData``."""


Track = tuple[str, str]
"""The subject of a track: ("lane", "gpu.0"), ("source", sensor or timer), ("counter", name)."""

PROCESS = 1
"""Identity of the process's own track; the other tracks are numbered upwards from it."""
_PID, _SEQUENCE, _GPU_SEQUENCE, _FIRST_COUNTER = 1, 1, 2, 3
_BITS = 16
"""Of a counter's value: five digits; what drawn times make of the others takes half of a file and shows nowhere."""
_BOOT, _CLOCK = 6, 64
"""Perfetto's clock since boot, and the sequence's own, whose readings are counted from the one before."""


class Events:
    """The events of a trace on tracks identified by `uuids`."""

    def __init__(self, columns: Columns, plan: Plan, uuids: Mapping[Track, int]) -> None:
        self.columns, self.plan, self.uuids = columns, plan, uuids
        self.tasks = {task.name: task for task in plan.tasks}
        self.strings: Names[str] = Names()
        self.names: Names[str] = Names()
        self.categories: Names[str] = Names()
        self.args: Names[str] = Names()
        self.stays, self.arrows = stays(columns), arrows(columns, plan)
        self.migrates = bool(columns.jobs.migrations.any())
        self._shapes: dict[Any, Shape] = {}
        self._name_everything()
        self._find_lanes()
        self._find_singles()

    def blocks(self) -> Iterator[bytes | memoryview]:
        """Yield the packets of all events in order of time."""
        tables = (_CATEGORIES, self.categories), (_NAMES, self.names), (_ARGS, self.args), (_STRINGS, self.strings)
        yield _interned([(field, name, at + 1) for field, names in tables for name, at in names.items()], True)
        times = [self.begin_ns, self.release_ns, self.instant_ns]
        edges = np.unique(np.concatenate([at[BLOCK::BLOCK] for at in times])).tolist()
        rest = Block(np.zeros(0, np.int64), self._gap([*times, self.end_ns]))
        done, buffer = [0] * len(times), Buffer()
        for edge in [*edges, 1 << 62]:
            upto = [int(np.searchsorted(at, edge)) for at in times]
            spans = [slice(a, b) for a, b in zip(done, upto, strict=True)]
            done = upto
            texts, block = self._block(rest, *spans)
            data, rest = block.take(edge, buffer)
            if texts:
                yield texts
            yield data.data
        for sequence, (uuid, at, values) in enumerate(self.counters, _FIRST_COUNTER):
            yield from _steps(sequence, uuid, at, values)

    def _gap(self, times: Sequence[Ints]) -> int:
        """Return the bytes that hold the time (ns) from any event to the next, by the begins alone: more are nearer."""
        last = max((int(at.max()) for at in times if len(at)), default=0)
        return min(width_of(np.diff(self.begin_ns, prepend=0, append=last)), 8)

    # -- data common to all blocks

    def _name_everything(self) -> None:
        columns = self.columns
        for name in ("frame", "text", "status", "deadline", "deadline_ns", "slack_ns", "exec_ns"):
            self.args[name]
        for name in ("blocking_ns", "preemptions", "migrations", "lanes"):
            self.args[name]
        for name in (*STATUS, "", *(format_duration(task.deadline_ns) for task in self.plan.tasks)):
            self.strings[name]
        for name in (*columns.tasks, *columns.names, "input"):
            self.names[name]
        for name in ("job", "segment", "input", *(task.kind for task in self.plan.tasks)):
            self.categories[name]

    def _find_lanes(self) -> None:
        """Number the `places` (engine, lanes) held by stays, and find the track of each lane of a place."""
        columns, held = self.columns, self.stays
        pieces = held.pieces[held.first]
        codes, which = encode_values(columns.slices.lanes[pieces])
        pairs, self.place = encode_values(columns.slices.engine[pieces] * max(len(codes), 1) + which)
        places = [
            (columns.engines[pair // len(codes)], columns.lanes(int(codes[pair % len(codes)])))
            for pair in pairs.tolist()
        ]
        self.lane_counts = np.array([len(lanes) for _, lanes in places], np.int64)
        self.most_lanes = int(self.lane_counts.max(initial=1))
        self.tracks = np.zeros((len(places), self.most_lanes), np.int64)
        for row, (engine, lanes) in enumerate(places):
            for place, lane in enumerate(lanes):
                self.tracks[row, place] = self.uuids[lane_track(engine, lane)]
        self.lanes_text = [self.strings[",".join(map(str, lanes))] + 1 for _, lanes in places]
        slices = columns.slices
        self.begin_ns = slices.start_ns[pieces]
        self.end_ns = slices.end_ns[held.pieces[held.first + held.count - 1]]
        # a stay of a single slice with its task's name needs no nested slice
        names = {name: number for number, name in enumerate(columns.names)}
        own = np.array([names.get(task, -1) for task in columns.tasks] or [-1], np.int64)
        alike = (held.count == 1) & (slices.name[pieces] == own[columns.jobs.task[held.job]])
        self.nested = np.where(alike, 0, held.count)

    def _find_singles(self) -> None:
        """Sort releases, instants and counter steps by time; entries at the same time keep the order of the record."""
        columns, notes = self.columns, self.columns.instants
        releases, tracks = list(columns.releases.values()), [("source", name) for name in columns.releases]
        self.release_ns, which = _ordered(releases)
        self.release = np.arange(len(self.release_ns))[which]
        self.release_track = _repeated([self.uuids[track] for track in tracks], releases)[which]
        frames = [np.arange(len(at)) for at in releases] or [np.zeros(0, np.int64)]
        self.release_frame = np.concatenate(frames)[which]
        self.instant_ns, which = _ordered([notes.time_ns])
        self.instant = np.arange(len(self.instant_ns))[which]
        self.home = np.array([self._home(subject) for subject in columns.subjects] or [PROCESS], np.int64)
        kinds, kind = encode_values(notes.kind)
        pairs, self.called = encode_values(kind * max(len(columns.subjects), 1) + notes.subject)
        called = [
            (columns.kind(int(kinds[pair // len(columns.subjects)])), columns.subjects[pair % len(columns.subjects)])
            for pair in pairs.tolist()
        ]
        self.instant_name = np.array([self.names[f"{of} {subject}"] + 1 for of, subject in called], np.int64)
        self.instant_category = np.array([self.categories[of] + 1 for of, _ in called], np.int64)
        self.counters = []
        for name, (times, values) in columns.counters.items():
            at, order = _ordered([times])
            self.counters.append((self.uuids["counter", name], *_shown(at, values[order])))

    def _home(self, subject: str) -> int:
        """Return the track an instant belongs on."""
        task = self.tasks.get(subject)
        if task is not None:
            track = lane_track(task.engine, task.lanes[0])
        elif any(engine.id == subject for engine in self.plan.engines):
            track = lane_track(subject, 0)
        else:
            track = ("source", subject)
        return self.uuids.get(track, PROCESS)

    # -- a block: leftovers go first, since they began earlier

    def _block(self, rest: Block, held: slice, released: slice, noted: slice) -> tuple[bytes, Block]:
        counts = [x.stop - x.start for x in (released, noted)]
        lanes = self.lane_counts[self.place[held]]
        # one entry for every lane of every stay
        stay = np.repeat(np.arange(held.start, held.stop), lanes)
        lane = np.arange(len(stay)) - np.repeat(np.cumsum(lanes) - lanes, lanes)
        needs = 2 + 2 * self.nested[stay]
        edges = np.cumsum([0, counts[0], len(rest.time), int(needs.sum()), counts[1]])
        time = np.empty(edges[-1], np.int64)
        block = Block(time, rest.gap, rest.last)
        time[edges[1] : edges[2]] = rest.time
        rest.move(block, int(edges[1]))
        begins = edges[2] + np.cumsum(needs) - needs
        self._put_releases(block, released, np.arange(counts[0]))
        self._put_stays(block, stay, lane, begins, begins + needs - 1)
        texts = self._put_instants(block, noted, np.arange(edges[3], edges[4]))
        return texts, block

    def _put_releases(self, block: Block, span: slice, places: Ints) -> None:
        block.time[places] = self.release_ns[span]
        release = self.release[span]
        values = {"track": items(self.release_track[span]), "frame": items(self.release_frame[span])}
        begins = self.arrows.release_begins
        first = begins[release]
        for sends, rows in _alike(begins[release + 1] - first):
            chosen = {name: column[rows] for name, column in values.items()}
            chosen |= {f"sends{i}": raw(self.arrows.by_release[first[rows] + i]) for i in range(sends)}

            def body(widths: Mapping[str, int], sends: int = sends) -> list[Part]:
                named = [*number(10, self.names["input"] + 1), *number(3, self.categories["input"] + 1)]
                return [*_event(_INSTANT, widths), *named, *self._number("frame", widths), *_arrows(sends, 0)]

            self._put(block, places[rows], ("release", sends), body, chosen)

    def _put_instants(self, block: Block, span: slice, places: Ints) -> bytes:
        columns, notes, rows = self.columns, self.columns.instants, self.instant[span]
        block.time[places] = self.instant_ns[span]
        texts: Names[tuple[int, int]] = Names()
        pairs = zip(notes.kind[rows].tolist(), notes.value[rows].tolist(), strict=True)
        wording = np.array([texts[pair] for pair in pairs], np.int64)
        fresh = {columns.text(*pair): None for pair in texts}
        numbers = {words: self.strings[words] + 1 for words in fresh if words not in self.strings}
        table = [(_STRINGS, words, at) for words, at in numbers.items()]
        text_of = np.array([self.strings[columns.text(*pair)] + 1 for pair in texts] or [0], np.int64)
        called = self.called[rows]
        track, frame = items(self.home[notes.subject[rows]]), items(notes.frame[rows])
        values = {"track": track, "frame": frame, "text": items(text_of[wording])}
        values |= {"name": items(self.instant_name[called]), "category": items(self.instant_category[called])}

        def body(widths: Mapping[str, int]) -> list[Part]:
            named = [*number(10, Slot("name", widths["name"])), *number(3, Slot("category", widths["category"]))]
            args = [*self._number("frame", widths), *self._string("text", widths)]
            return [*_event(_INSTANT, widths), *named, *args]

        self._put(block, places, "instant", body, values)
        return _interned(table) if table else b""

    def _put_stays(self, block: Block, stay: Ints, lane: Ints, begins: Ints, ends: Ints) -> None:
        block.time[begins], block.time[ends] = self.begin_ns[stay], self.end_ns[stay]
        track = self.tracks[self.place[stay], lane]
        # nested slices: one entry for every piece of every entry
        inside = self.nested[stay]
        entry = np.repeat(np.arange(len(stay)), inside)
        at = np.arange(len(entry)) - np.repeat(np.cumsum(inside) - inside, inside)
        slices, pieces = self.columns.slices, self.stays.pieces[self.stays.first[stay[entry]] + at]
        opens = begins[entry] + 1 + 2 * at
        block.time[opens], block.time[opens + 1] = slices.start_ns[pieces], slices.end_ns[pieces]
        titles = np.array([self.names[name] + 1 for name in self.columns.names] or [0], np.int64)
        values = {"track": items(track[entry]), "name": items(titles[slices.name[pieces]])}

        def piece(widths: Mapping[str, int]) -> list[Part]:
            named = [*number(10, Slot("name", widths["name"])), *number(3, self.categories["segment"] + 1)]
            return [*_event(_BEGIN, widths), *named]

        self._put(block, opens, "piece", piece, values)
        closing = {"track": items(np.concatenate((track, track[entry])))}
        self._put(block, np.concatenate((ends, opens + 1)), "end", lambda widths: _event(_END, widths), closing)
        self._put_begins(block, stay, lane, begins)

    def _put_begins(self, block: Block, stay: Ints, lane: Ints, places: Ints) -> None:
        jobs, held, links = self.columns.jobs, self.stays, self.arrows
        job = held.job[stay]
        task, finish, deadline = jobs.task[job], jobs.finish_ns[job], jobs.deadline_ns[job]
        sent, received = links.job_begins[job], links.first[job]
        sends = np.where((lane == 0) & held.closes[stay], links.job_begins[job + 1] - sent, 0)
        receives = np.where((lane == 0) & held.opens[stay], links.received[job], 0)
        most = int(receives.max(initial=0)) + 1
        # negative varints take ten bytes, so late jobs, with negative slack, are encoded separately
        ended = np.where(finish < 0, 0, np.where(finish <= deadline, 1, 2))
        values = {"frame": items(jobs.frame[job]), "deadline_ns": items(deadline)}
        values["slack_ns"] = items(np.where(ended == 1, deadline - finish, 0))
        # what ran without a break for as long as its slice shows says no more
        whole = (jobs.preemptions[job] == 0) & (jobs.blocking_ns[job] == 0) & (jobs.migrations[job] == 0)
        broken = ~(whole & (ended > 0) & (jobs.exec_ns[job] == finish - jobs.start_ns[job]))
        details = ("exec_ns", "blocking_ns", "preemptions", *(("migrations",) if self.migrates else ()))
        values |= {name: items(getattr(jobs, name)[job]) for name in details}
        gang = self.lane_counts[self.place[stay]] > 1
        constant = (task * len(STATUS) + jobs.status[job]) * len(self.tracks) + self.place[stay]
        fixed, codes = self._constants(constant * self.most_lanes + lane)
        for shape, rows in _alike((((sends * most + receives) * 3 + ended) * 2 + broken) * 2 + gang):
            on_many, told, arrived = shape % 2, shape // 2 % 2, shape // 4 % 3
            out, into = divmod(shape // 12, most)
            shown = ("slack_ns" if arrived else "deadline_ns", *(details if told else ()))
            chosen = {name: values[name][rows] for name in ("frame", *shown)}
            if arrived == 2:
                chosen["slack_ns"] = items((deadline - finish)[rows])
            chosen |= {f"sends{i}": raw(links.by_job[sent[rows] + i]) for i in range(out)}
            chosen |= {f"receives{i}": raw(received[rows] + i) for i in range(into)}

            def body(
                widths: Mapping[str, int],
                shown: Sequence[str] = shown,
                out: int = out,
                into: int = into,
                on_many: int = on_many,
            ) -> list[Part]:
                named = [*number(10, Slot("name", widths["name"])), *number(3, Slot("category", widths["category"]))]
                args = [*self._string("status", widths), *self._string("deadline", widths)]
                args += self._string("lanes", widths) if on_many else []
                args += [part for name in ("frame", *shown) for part in self._number(name, widths)]
                return [*_event(_BEGIN, widths), *named, *args, *_arrows(out, into)]

            own = {name: column for name, column in fixed.items() if on_many or name != "lanes"}
            self._put(block, places[rows], ("begin", shown, out, into, on_many), body, chosen, own, codes[rows])

    def _constants(self, keys: Ints) -> tuple[Values, Ints]:
        """Return a table of the values that depend only on task, status, place and lane, and each entry's row in it."""
        found, codes = encode_values(keys)
        rows = []
        for key in found.tolist():
            rest, lane = divmod(key, self.most_lanes)
            rest, place = divmod(rest, len(self.tracks))
            number, status = divmod(rest, len(STATUS))
            name = self.columns.tasks[number]
            category = self.tasks[name].kind if name in self.tasks else "job"
            limit = format_duration(self.tasks[name].deadline_ns) if name in self.tasks else ""
            named = (self.names[name] + 1, self.categories[category] + 1, self.strings[STATUS[status]] + 1)
            rows.append((int(self.tracks[place, lane]), *named, self.strings[limit] + 1, self.lanes_text[place]))
        names = ("track", "name", "category", "status", "deadline", "lanes")
        table = np.array(rows, np.int64).reshape(-1, len(names))
        return {name: items(table[:, at]) for at, name in enumerate(names)}, codes

    def _put(
        self,
        block: Block,
        places: Ints,
        kind: Any,
        body: Callable[[Mapping[str, int]], list[Part]],
        values: Values,
        fixed: Values | None = None,
        codes: Ints | None = None,
    ) -> None:
        """Put a packet at each of `places`, made from the items `values` and from row `codes` of the items `fixed`."""
        if not len(places):
            return
        widths = {name: found.dtype.itemsize for name, found in (*values.items(), *(fixed or {}).items())}
        key = (kind, tuple(widths.values()))
        if key not in self._shapes:
            header = [*number(8, Slot("time", block.gap)), *number(10, _SEQUENCE), *number(13, _TABLES_NEEDED)]
            self._shapes[key] = Shape(message(1, [*header, *message(11, body(widths))]))
        shape = self._shapes[key]
        if fixed is None or codes is None:
            rows = shape.blank(len(places))
        else:
            rows = shape.fill(shape.blank(len(fixed["track"])), fixed)[codes]
        block.put(places, shape.fill(rows, values), shape.at["time"])

    def _number(self, name: str, widths: Mapping[str, int]) -> list[Part]:
        return message(4, [*number(1, self.args[name] + 1), *number(4, Slot(name, widths[name]))])

    def _string(self, name: str, widths: Mapping[str, int]) -> list[Part]:
        return message(4, [*number(1, self.args[name] + 1), *number(17, Slot(name, widths[name]))])


def _event(kind: int, widths: Mapping[str, int]) -> list[Part]:
    return [*number(9, kind), *number(11, Slot("track", widths["track"]))]


def _arrows(sends: int, receives: int) -> list[Part]:
    out = [part for i in range(sends) for part in fixed64(47, Slot(f"sends{i}", 8))]
    return out + [part for i in range(receives) for part in fixed64(48, Slot(f"receives{i}", 8))]


def _interned(entries: Sequence[tuple[int, str, int]], start: bool = False) -> bytes:
    """Return a packet with (table, text, number) entries; the first one starts the tables, and the sequence's clock."""
    tables = [part for field, words, at in entries for part in message(field, [*number(1, at), *text(2, words)])]
    content = plain(message(12, tables))
    return _started(content) if start else packet(content, flags=_TABLES_NEEDED)


def _started(content: bytes = b"", sequence: int = _SEQUENCE, uuid: int = 0) -> bytes:
    """Return the packets that start a sequence and its clock; `uuid`: the track of events that state none."""
    of_events = message(11, number(11, uuid)) if uuid else []
    content += plain(message(59, [*of_events, *number(58, _CLOCK)]))
    both = [
        *message(1, [*number(1, _BOOT), *number(2, 0)]),
        *message(1, [*number(1, _CLOCK), *number(2, 0), *number(3, 1)]),
    ]
    first = packet(content, flags=_TABLES_START, sequence=sequence)
    return first + packet(plain(message(6, both)), flags=_TABLES_NEEDED, sequence=sequence)


def _steps(sequence: int, uuid: int, at: Ints, values: Floats) -> Iterator[bytes]:
    """Yield the steps of a counter, as a sequence of its own: their packets differ in time and value alone."""
    yield _started(sequence=sequence, uuid=uuid)
    gaps = np.diff(at, prepend=0)
    for begin in range(0, len(at), BLOCK):
        part = slice(begin, begin + BLOCK)
        columns = {"time": items(gaps[part]), "value": raw(values[part])}
        head = [*number(10, sequence), *number(13, _TABLES_NEEDED), *number(8, Slot("time", columns["time"].itemsize))]
        shape = Shape(message(1, [*head, *message(11, [*number(9, _COUNTER), *fixed64(44, Slot("value", 8))])]))
        yield shape.fill(shape.blank(len(columns["value"])), columns).tobytes()


def _shown(at: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Return the steps of a counter that show: the last of each time, to `_BITS` bits, where these change."""
    fraction, power = np.frexp(values)
    rounded = np.ldexp(np.round(np.ldexp(fraction, _BITS)), power - _BITS)
    last = np.flatnonzero(np.diff(at, append=-1))
    kept = last[np.diff(rounded[last], prepend=np.nan) != 0]
    return at[kept], rounded[kept]


def _ordered(times: Sequence[Ints]) -> tuple[Ints, Ints | slice]:
    """Return the times of several records in order, and their indices in the concatenated records."""
    joined = np.concatenate(times) if len(times) > 1 else times[0] if times else np.zeros(0, np.int64)
    if not len(joined) or (joined[1:] >= joined[:-1]).all():
        return joined, slice(0, len(joined))
    order = np.argsort(joined, kind="stable")
    return joined[order], order


def _repeated(values: Sequence[int], records: Sequence[Ints]) -> Ints:
    return np.repeat(np.array(values, np.int64), [len(record) for record in records])


def _alike(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each code with the rows that have it."""
    found, which = encode_values(codes)
    order = np.argsort(which.astype(np.uint16), kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(found)))
    for place, code in enumerate(found.tolist()):
        yield code, order[ends[place - 1] if place else 0 : ends[place]]


# The slices of GPUs as Perfetto's typed GPU events (``GpuRenderStageEvent``), beside the tracks of their lanes.
#
# Perfetto shows them under the GPU of their number, and lists them in the table ``gpu_slice``.  A lane is a hardware
# queue, the name of a slice its stage (category compute), the job's frame its submission.  They are a sequence of their
# own, numbered GPU by GPU in the order of the plan's engines.


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
    yield plain(message(1, [*number(10, _GPU_SEQUENCE), *number(13, _TABLES_START), *message(12, table)]))
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
    head = [*slot(8, "time"), *number(10, _GPU_SEQUENCE), *number(13, _TABLES_NEEDED)]
    shape = Shape(message(1, [*head, *message(53, event)]))
    return shape.fill(shape.blank(len(at)), values).tobytes()


def lane_track(engine: str, lane: int) -> Track:
    """Return the track of a lane of an engine."""
    return ("lane", f"{engine}.{lane}")


def tracks_of(columns: Columns, plan: Plan) -> list[Track]:
    lanes = [lane_track(engine.id, lane) for engine in plan.engines for lane in range(max(engine.lanes, 1))]
    used = [lane_track(engine, lane) for engine, held in used_lanes(columns) for lane in held]
    sources = [("source", name) for name in columns.releases]
    counters = [("counter", name) for name in columns.counters]
    return list(dict.fromkeys([*sources, *lanes, *used, *counters]))


def packet(*parts: bytes, flags: int = 0, sequence: int = _SEQUENCE) -> bytes:
    """Return a packet; `flags` are its ``sequence_flags``."""
    own = [*number(10, sequence), *(number(13, flags) if flags else [])]
    return plain(message(1, [*own, *parts]))


def descriptors(tracks: list[Track], process: str) -> bytes:
    """Return the descriptors of the process and of every track, in display order."""
    named = [*number(1, _PID), *text(6, process)]
    packets = [packet(plain(message(60, [*number(1, PROCESS), *message(3, named)])))]
    for uuid, (kind, name) in enumerate(tracks, PROCESS + 1):
        described = [*number(1, uuid), *number(12, uuid)]  # sibling_order_rank
        if kind == "lane":
            described += message(4, [*number(1, _PID), *number(2, _PID + uuid), *text(5, name)])
        else:
            described += [*number(5, PROCESS), *text(2, name)]
        if kind == "counter":
            described += message(8, text(6, unit(name)))
        packets.append(packet(plain(message(60, described))))
    return b"".join(packets)
