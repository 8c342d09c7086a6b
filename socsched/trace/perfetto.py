"""Export of a trace to Perfetto (ui.perfetto.dev): one process, a track per engine lane, flows along the data path.

A job is a slice on each lane it holds, from acquiring the lane to losing it; its segments are nested inside.  Arrows
lead from the sensor or job that delivers data to the job that uses it, and through the slices of a job that was
preempted.  Misses, drops and faults are instants; power of module, rails and engines, bandwidth, clocks, temperatures
and queue depths are counters.  A plan (simulated for its first hyperperiods), a simulation and a run use the same
representation.

A lane is a packet sequence of its own, in order of time, so that what follows each other there is alike; so are
releases, instants, the steps of a table of counters and the typed events of a GPU.  Times are counted from the packet
before (an incremental clock, ``clock_snapshot.proto``); names and texts are written once and referred to by number.
The event that begins or ends a slice carries the counters that change then (``extra_counter_values``); a packet of its
own states a change in between.  Field numbers are those of Perfetto's ``perfetto_trace.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.files import GzipWriter, replacing
from socsched.planning.plan import Plan, PlannedEngine
from socsched.trace.blocks import BLOCK
from socsched.trace.columns import CLOCK, STATUS, Columns, unit
from socsched.trace.convert import Names, encode_values
from socsched.trace.execution_intervals import used_lanes
from socsched.trace.protobuf import Part, Rows, Slot, fixed64, items, message, number, plain, raw, text
from socsched.trace.stored import POWER, TRAFFIC, merged, steps_by_time
from socsched.units import format_duration

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from socsched.trace.columns import Floats, Ints
    from socsched.trace.trace import Trace

    Values = Mapping[str, NDArray[Any]]


# The packets of a Perfetto trace, built from columns part by part.

Track = tuple[str, str]
"""The subject of a track: ("lane", "gpu.0"), ("source", sensor or timer), ("counter", name)."""

PROCESS = 1
"""Identity of the process's own track; the other tracks are numbered upwards from it."""
ENGINE_POWER = "engine_mw."
"""Prefix, before an engine's name, of counters of its power as computed here (without DRAM)."""
_PID, _MAIN = 1, 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_STARTS, _NEEDS_START = 1, 2
_CATEGORIES, _NAMES, _ARGS, _GPU_STAGES, _STRINGS = 1, 2, 3, 24, 29
"""Fields of ``InternedData``."""
_BITS, _METERED, _WHOLE = 16, 7, 10
"""Bits of a counter's greatest value that are shown; those of power and bandwidth of the board, which with drawn times
change to a new value at nearly every event; and those from which on values are whole numbers."""
_SIGNIFICANT = 11
"""Bits of a job's slack, execution and blocking time, rounded down: exact below 2 µs, else to 2**-10."""
_CARRIED = 8
"""Most counters of an event that Perfetto reads."""
_BYTES = 10**9
"""In a GB."""
_BOOT, _CLOCK = 6, 64
"""Perfetto's clock since boot, and a sequence's own, whose readings are counted from the one before."""
_COMPUTE = 2
_TOLD = ("task", "frame", "status", "start_ns", "finish_ns", "deadline_ns", "exec_ns", "blocking_ns", "preemptions",
         "migrations")  # fmt: skip
_ARGUMENTS = ("frame", "text", "status", "deadline", "deadline_ns", "slack_ns", "exec_ns", "blocking_ns", "preemptions",
              "migrations", "lanes")  # fmt: skip


class Events:
    """The packets of a trace of a plan, in a process called `title`."""

    def __init__(self, columns: Columns, plan: Plan, title: str) -> None:
        self.columns, self.plan, self.title = columns, plan, title
        self.tasks = {task.name: task for task in plan.tasks}
        self.flows = Flows(columns, plan)
        self.strings: Names[str] = Names()
        self.names: Names[str] = Names()
        self.categories: Names[str] = Names()
        self.sequences, self.numbers = count(_MAIN + 1), dict[Track, int]()
        limits = (format_duration(task.deadline_ns) for task in plan.tasks)
        for table, entries in (
            (self.strings, (*STATUS, "", *limits)),
            (self.names, (*columns.tasks, *columns.names, "input")),
            (self.categories, ("job", "segment", "input", *(task.kind for task in plan.tasks))),
        ):
            for entry in entries:
                table[entry]

    def packets(self, derived: bool) -> Iterator[bytes]:
        """Yield all packets; `derived`: with the power of engines, and planned clocks that no counter tells.

        What happens at one time on several sequences is shown in the order of the file: releases before lanes.
        """
        used = used_lanes(self.columns)
        for _, held in used:
            self.strings[",".join(map(str, held))]
        lanes = [(engine.id, lane) for engine in self.plan.engines for lane in range(max(engine.lanes, 1))]
        lanes += [(engine, lane) for engine, held in used for lane in held]
        tracks = [("source", name) for name in self.columns.releases]
        tracks += [("lane", f"{engine}.{lane}") for engine, lane in lanes]
        derived = derived and len(self.columns.slices) > 0
        powers = [EnginePower(self.columns, engine) for engine in self.plan.engines] if derived else []
        names = dict.fromkeys([*self.columns.counters, *(name for power in powers for name in power.counters)])
        self.numbers = dict(zip(dict.fromkeys([*tracks, *(("counter", name) for name in names)]), count(PROCESS + 1)))
        named = [*number(1, _PID), *text(6, self.title)]
        yield started(_MAIN, self.tables()) + packet(message(60, [*number(1, PROCESS), *message(3, named)]))
        yield b"".join(
            packet(message(60, described(*track, uuid)))
            for track, uuid in self.numbers.items()
            if track[0] != "counter"
        )
        yield from self._releases()
        yield from self._slices(powers)
        yield from self._instants()

    def tables(self) -> list[Part]:
        """Return the tables of names and texts as they are now."""
        arguments = {name: at for at, name in enumerate(_ARGUMENTS)}
        tables = (_CATEGORIES, self.categories), (_NAMES, self.names), (_ARGS, arguments), (_STRINGS, self.strings)
        return [part for field, names in tables for part in _entries(field, names)]

    def _releases(self) -> Iterator[bytes]:
        """Yield the releases in order of time."""
        names, last = list(self.columns.releases), 0
        released = [np.asarray(times, np.int64) for times in self.columns.releases.values()]
        times = np.concatenate([np.zeros(0, np.int64), *released])
        order = np.argsort(times, kind="stable")
        counts = [len(at) for at in released]
        source = np.repeat(np.arange(len(counts)), counts)[order]
        frame = np.concatenate([np.zeros(0, np.int64), *map(np.arange, counts)])[order]
        times = times[order]
        tracks = np.array([self.numbers["source", name] for name in names], np.int64)
        named = [*number(10, self.names["input"] + 1), *number(3, self.categories["input"] + 1)]
        for part in _parts(len(times), True):
            first, ids = self.flows.of(names, source[part], frame[part])
            gaps = np.diff(times[part], prepend=last)
            last = int(times[part][-1])
            values = {"track": items(tracks[source[part]]), "frame": items(frame[part])}
            rows = Rows(gaps)
            for sends, here in _alike(np.diff(first)):
                chosen = {name: column[here] for name, column in values.items()}
                chosen |= {f"flow{i}": raw(ids[first[here] + i]) for i in range(sends)}
                body = [*number(9, _INSTANT), *slot(11, "track", chosen), *named, *_argument("frame", chosen)]
                rows.put(here, _packet([*body, *_flows(sends)], _MAIN, rows), chosen)
            yield rows.joined()

    def _instants(self) -> Iterator[bytes]:
        """Yield misses, drops and faults."""
        columns, sequence, last = self.columns, next(self.sequences), 0
        home = np.array([self._home(subject) for subject in columns.subjects] or [PROCESS], np.int64)
        yield started(sequence, self.tables())
        for part in _parts(len(columns.instants), columns.stored is not None):
            note = _read(columns.instants, part)
            order = np.argsort(note["time_ns"], kind="stable")
            time, kind, subject, frame, value = (
                note[name][order] for name in ("time_ns", "kind", "subject", "frame", "value")
            )
            texts, wording = _pairs(kind, value)
            titles, title = _pairs(kind, subject)
            words = {
                "text": (_STRINGS, self.strings, wording, [columns.text(*pair) for pair in texts]),
                "name": (_NAMES, self.names, title, [f"{columns.kind(k)} {columns.subjects[s]}" for k, s in titles]),
                "category": (_CATEGORIES, self.categories, title, [columns.kind(kind) for kind, _ in titles]),
            }
            fresh, values = list[Part](), {"track": items(home[subject]), "frame": items(frame)}
            for name, (field, table, which, said) in words.items():
                fresh += _entries(field, {word: table[word] for word in said if word not in table})
                values[name] = items(np.array([table[word] + 1 for word in said], np.int64)[which])
            if fresh:
                yield packet(message(12, fresh), flags=_NEEDS_START, sequence=sequence)
            rows = Rows(np.diff(time, prepend=last))
            last = int(time[-1])
            body = [*number(9, _INSTANT), *slot(11, "track", values), *slot(10, "name", values)]
            body += [*slot(3, "category", values), *_argument("text", values, 17), *_argument("frame", values)]
            rows.put(np.arange(len(time)), _packet(body, sequence, rows), values)
            yield rows.joined()

    def _home(self, subject: str) -> int:
        """Return the track an instant belongs on."""
        task, source = self.tasks.get(subject), self.numbers.get(("source", subject), PROCESS)
        return self.numbers.get(("lane", f"{task.engine}.{task.lanes[0]}" if task else f"{subject}.0"), source)

    def _slices(self, powers: Sequence[EnginePower]) -> Iterator[bytes]:
        """Yield what lanes did, and counters, in parts: slices of a long trace are in the order in which they began."""
        columns, slices = self.columns, self.columns.slices
        stays = Stays(self)
        yield stays.started()
        found = [engine for engine in self.plan.engines if engine.kind == "gpu" and engine.id in columns.engines]
        gpus = [GpuEvents(self, gpu, engine.id) for gpu, engine in enumerate(found)]
        derived = Steps(self, {name: most for power in powers for name, most in power.counters.items()}, iter(()))
        # what differs most from time to time is last, next to the time
        counters = [derived, *(Steps(self, *given) for given in reversed([*steps_by_time(columns)]))]
        yield b"".join(steps.started() for steps in counters)
        parts = [*_parts(len(slices), columns.stored is not None)] or [slice(0, 0)]
        for part, after in zip(parts, [*parts[1:], None], strict=False):
            piece = _read(slices, part)
            if columns.stored is None:
                order = np.argsort(piece["start_ns"], kind="stable")
                piece = {name: column[order] for name, column in piece.items()}
            upto = 1 << 62 if after is None else int(slices.start_ns[after.start])
            if powers:
                derived.ahead = merged([step for power in powers for step in power.steps(piece, upto)])
            changes = [steps.before(upto) for steps in counters]
            data, carried = stays.packets(piece, after is None, *map(np.concatenate, zip(*changes, strict=True)))
            yield data
            left = np.split(~carried, np.cumsum([len(at) for _, at, _ in changes])[:-1])
            for steps, (tracks, at, values), alone in zip(counters, changes, left, strict=True):
                yield steps.packets(tracks[alone], at[alone], values[alone])
            for gpu in gpus:
                yield from gpu.packets(piece)


class Stays:
    """What lanes were held for: a slice for every stay of a job, with its segments inside.

    A stay is one or more slices of a job on the same lanes, one right after the other.
    """

    def __init__(self, events: Events) -> None:
        self.events, self.columns = events, events.columns
        lanes = [name for kind, name in events.numbers if kind == "lane"]
        self.numbers = {name: at for at, name in enumerate(lanes)}
        self.uuids = [events.numbers["lane", name] for name in lanes]
        self.sequences = np.array([next(events.sequences) for _ in lanes], np.int64)
        self.last = np.zeros(len(lanes), np.int64)
        self.places: Names[tuple[int, int]] = Names()
        self.waiting: dict[str, Ints] = {}
        self.migrates = bool(self.columns.jobs.migrations.any())
        names = {name: number for number, name in enumerate(self.columns.names)}
        self.own = np.array([names.get(task, -1) for task in self.columns.tasks] or [-1], np.int64)
        self.titles = np.array([events.names[name] + 1 for name in self.columns.names] or [0], np.int64)

    def started(self) -> bytes:
        """Return the packets that start the lanes' sequences."""
        tables = self.events.tables()
        pairs = zip(self.sequences.tolist(), self.uuids, strict=True)
        return b"".join(started(sequence, tables, uuid) for sequence, uuid in pairs)

    def packets(
        self, piece: Mapping[str, Ints], final: bool, tracks: Ints, at: Ints, values: Floats
    ) -> tuple[bytes, NDArray[np.bool_]]:
        """Return the packets of all stays that slices in order of their start end; `final`: of all.

        An event that begins, ends or continues a slice carries the new values of counters at its time; the second
        result says which of them an event carries.
        """
        if not len(piece["engine"]) and not self.waiting:
            return b"", np.zeros(len(at), np.bool_)
        entry = self._entries(piece)
        same = [entry[name][1:] == entry[name][:-1] for name in ("lane", "job", "place")]
        goes_on = np.logical_and.reduce([*same, entry["start_ns"][1:] == entry["end_ns"][:-1]])
        first = np.flatnonzero(np.concatenate(([True], ~goes_on))) if len(entry["lane"]) else np.zeros(0, np.int64)
        if not final:  # the last of a lane may go on
            lanes = entry["lane"][first]
            open_ = np.concatenate((lanes[1:] != lanes[:-1], [True])) if len(first) else first
            waits = np.repeat(open_, np.diff(np.append(first, len(entry["lane"]))))
            self.waiting = {name: column[waits] for name, column in entry.items()}
            entry = {name: column[~waits] for name, column in entry.items()}
            first = np.flatnonzero(np.concatenate(([True], ~goes_on))[~waits]) if (~waits).any() else first[:0]
        if not len(first):
            return b"", np.zeros(len(at), np.bool_)
        return self._packets(entry, first, (tracks, at, values))

    def _entries(self, piece: Mapping[str, Ints]) -> dict[str, Ints]:
        """Return an entry for every lane of every slice, and those that waited, lane by lane in order of time."""
        columns = self.columns
        pairs, which = _pairs(piece["engine"], piece["lanes"])
        place = np.array([self.places[pair] for pair in pairs], np.int64)[which]
        names = [[f"{columns.engines[engine]}.{lane}" for lane in columns.lanes(code)] for engine, code in pairs]
        held = [[self.numbers[name] for name in lanes] for lanes in names]
        table = np.array([lanes + [0] * (max(map(len, held)) - len(lanes)) for lanes in held], np.int64)
        counts = np.array([len(lanes) for lanes in held], np.int64)[which]
        row = np.repeat(np.arange(len(which)), counts)
        within = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        entry = {name: piece[name][row] for name in ("job", "name", "start_ns", "end_ns")}
        entry |= {"lane": table[which[row], within], "within": within, "place": place[row]}
        if self.waiting:
            entry = {name: np.concatenate((self.waiting[name], column)) for name, column in entry.items()}
        order = np.argsort(entry["lane"], kind="stable")
        return {name: column[order] for name, column in entry.items()}

    def _packets(
        self, entry: Mapping[str, Ints], first: Ints, changes: tuple[Ints, Ints, Floats]
    ) -> tuple[bytes, NDArray[np.bool_]]:
        count = np.diff(np.append(first, len(entry["lane"])))
        stay = {name: column[first] for name, column in entry.items()} | {"end_ns": entry["end_ns"][first + count - 1]}
        rows, job = np.unique(stay["job"], return_inverse=True)
        jobs = {name: column[job] for name, column in _read(self.columns.jobs, rows, _TOLD).items()}
        # a stay of a single slice with its task's name needs no nested slice
        inside = np.where((count == 1) & (stay["name"] == self.own[jobs["task"]]), 0, count)
        needs = 2 + 2 * inside
        begins = np.cumsum(needs) - needs
        nested = np.repeat(inside > 0, count)
        opens = begins[np.repeat(np.arange(len(first)), count)] + 1
        opens = (opens + 2 * (np.arange(len(nested)) - np.repeat(first, count)))[nested]
        lane, time = np.repeat(stay["lane"], needs), np.empty(int(needs.sum()), np.int64)
        time[begins], time[begins + needs - 1] = stay["start_ns"], stay["end_ns"]
        time[opens], time[opens + 1] = entry["start_ns"][nested], entry["end_ns"][nested]
        same, order, times = lane[1:] == lane[:-1], None, time
        if ((time[1:] < time[:-1]) & same).any():  # jobs overlap on a lane: the record of a run
            order = np.lexsort((time, lane))
            time = time[order]
        before = np.concatenate((time[:1], time[:-1]))
        fresh = np.concatenate(([True], ~same))
        before[fresh] = self.last[lane[fresh]]
        self.last[lane[np.concatenate((~same, [True]))]] = time[np.concatenate((~same, [True]))]
        carriers = Carriers(Rows(time - before, order), times, *changes)
        sequence = items(self.sequences[lane])
        values = {"sequence": sequence[opens], "name": items(self.titles[entry["name"][nested]])}
        body = [*number(9, _BEGIN), *slot(10, "name", values), *number(3, self.events.categories["segment"] + 1)]
        carriers.put(opens, body, values)
        ends = np.concatenate((begins + needs - 1, opens + 1))
        carriers.put(ends, number(9, _END), {"sequence": sequence[ends]})
        self._put_begins(carriers, begins, sequence[begins], stay, jobs)
        return carriers.packets.joined(), carriers.here

    def _put_begins(
        self, events: Carriers, places: Ints, sequence: NDArray[Any], stay: Mapping[str, Ints], jobs: Mapping[str, Ints]
    ) -> None:
        finish, deadline = jobs["finish_ns"], jobs["deadline_ns"]
        gang = np.array([len(self.columns.lanes(code)) > 1 for _, code in self.places])[stay["place"]]
        first, ids = self.events.flows.of(self.columns.tasks, jobs["task"], jobs["frame"], stay["job"])
        flows = np.where(stay["within"] == 0, np.diff(first), 0)
        # negative varints take ten bytes, so late jobs, with negative slack, are encoded separately
        ended = np.where(finish < 0, 0, np.where(finish <= deadline, 1, 2))
        values = {"sequence": sequence, "frame": items(jobs["frame"]), "deadline_ns": items(deadline)}
        slack = _rounded(deadline - finish)
        values["slack_ns"] = items(np.where(ended == 1, slack, 0))
        # what ran without a break for as long as its slice shows says no more
        details = ("exec_ns", "blocking_ns", "preemptions", *(("migrations",) if self.migrates else ()))
        broken = (ended == 0) | (jobs["exec_ns"] != finish - jobs["start_ns"])
        broken |= np.logical_or.reduce([jobs[name] != 0 for name in ("blocking_ns", "preemptions", "migrations")])
        values |= {name: items(_rounded(jobs[name]) if name.endswith("_ns") else jobs[name]) for name in details}
        fixed, codes = self._constants(jobs["task"], jobs["status"], stay["place"])
        for shape, rows in _alike(((flows * 3 + ended) * 2 + broken) * 2 + gang):
            on_many, detailed, arrived, links = shape % 2, shape // 2 % 2, shape // 4 % 3, shape // 12
            chosen = {name: values[name][rows] for name in ("sequence", "frame", *(details if detailed else ()))}
            if arrived == 2:
                chosen["slack_ns"] = items(slack[rows])
            else:
                name = "slack_ns" if arrived else "deadline_ns"
                chosen[name] = values[name][rows]
            chosen |= {f"flow{i}": raw(ids[first[rows] + i]) for i in range(links)}
            chosen |= {name: column[codes[rows]] for name, column in fixed.items() if on_many or name != "lanes"}
            body = [*number(9, _BEGIN), *slot(3, "category", chosen)]
            body += [part for name in ("status", "deadline", "lanes") for part in _argument(name, chosen, 17)]
            body += slot(10, "name", chosen)
            # what differs from job to job is next to each other, followed by counters and the time
            annotations = (*details, "slack_ns", "deadline_ns", "frame")
            body += [*(part for name in annotations for part in _argument(name, chosen)), *_flows(links)]
            events.put(places[rows], body, chosen)

    def _constants(self, task: Ints, status: Ints, place: Ints) -> tuple[Values, Ints]:
        """Return a table of the values that depend only on task, status and place, and each entry's row in it."""
        events, rows = self.events, []
        found, codes = encode_values((task * len(STATUS) + status) * len(self.places) + place)
        places = list(self.places)
        for key in found.tolist():
            rest, held = divmod(key, len(places))
            name = self.columns.tasks[rest // len(STATUS)]
            known = events.tasks.get(name)
            texts = STATUS[rest % len(STATUS)], format_duration(known.deadline_ns) if known else ""
            lanes = ",".join(map(str, self.columns.lanes(places[held][1])))
            strings = [events.strings[words] + 1 for words in (*texts, lanes)]
            rows.append((events.names[name] + 1, events.categories[known.kind if known else "job"] + 1, *strings))
        names = ("name", "category", "status", "deadline", "lanes")
        table = np.array(rows, np.int64).reshape(-1, len(names))
        return {name: items(table[:, at]) for at, name in enumerate(names)}, codes


class Carriers:
    """Events that carry the new values of counters at their time, if these are integers; `here`: which of them."""

    def __init__(self, packets: Rows, times: Ints, tracks: Ints, at: Ints, values: Floats) -> None:
        self.packets = packets
        order = np.argsort(times, kind="stable")
        place = np.minimum(np.searchsorted(times, at, sorter=order), len(times) - 1)
        place = order[place]
        self.here = (times[place] == at) & (values == np.floor(values))
        rows = np.flatnonzero(self.here)
        rows = rows[np.argsort(place[rows], kind="stable")]
        count = np.bincount(place[rows], minlength=len(times))
        within = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        self.here[rows[within >= _CARRIED]] = False
        rows = rows[within < _CARRIED]
        self.count = np.minimum(count, _CARRIED)
        self.first = np.cumsum(self.count) - self.count
        self.tracks, self.values = tracks[rows], values[rows].astype(np.int64)

    def put(self, places: Ints, body: Sequence[Part], values: Values) -> None:
        """Put track events into `packets`, each with the counters that it carries."""
        for many, rows in _alike(self.count[places]):
            first = self.first[places[rows]]
            chosen = {name: column[rows] for name, column in values.items()}
            chosen |= {f"counter{i}": items(self.tracks[first + i]) for i in range(many)}
            chosen |= {f"value{i}": items(self.values[first + i]) for i in range(many)}
            tracks = [part for i in range(many) for part in slot(31, f"counter{i}", chosen)]
            shown = [part for i in range(many) for part in slot(12, f"value{i}", chosen)]
            packet_ = _packet([*tracks, *body, *shown], chosen, self.packets)
            self.packets.put(places[rows], packet_, chosen)


class GpuEvents:
    """The slices of a GPU as Perfetto's typed events (``GpuRenderStageEvent``), beside the tracks of its lanes.

    Perfetto shows them under the GPU's number, and lists them in the table ``gpu_slice``.  A lane is a hardware queue,
    the name of a slice its stage (category compute), the job's frame its submission.
    """

    def __init__(self, events: Events, gpu: int, engine: str) -> None:
        self.columns, self.gpu, self.engine = events.columns, gpu, engine
        self.sequence, self.last = next(events.sequences), 0
        self.known: Names[tuple[str, int]] = Names()

    def packets(self, piece: Mapping[str, Ints]) -> Iterator[bytes]:
        """Yield the packets of those of some slices, in order of their start, that are the GPU's."""
        here = np.flatnonzero(piece["engine"] == self.columns.engines.index(self.engine))
        if not len(here):
            return
        if not self.known:
            yield started(self.sequence)
        before = len(self.known)
        values = {"submission": items(_read(self.columns.jobs, piece["job"][here], ("frame",))["frame"])}
        for name, of, category in (("queue", "lanes", 0), ("stage", "name", _COMPUTE)):
            found, which = encode_values(piece[of][here])
            said = [
                self.columns.names[code] if category else f"{self.engine}.{min(self.columns.lanes(code), default=0)}"
                for code in found.tolist()
            ]
            values[name] = items(np.array([self.known[word, category] + 1 for word in said], np.int64)[which])
        values["duration"] = items(piece["end_ns"][here] - piece["start_ns"][here])
        if len(self.known) > before:
            table = [
                part
                for (name, category), at in list(self.known.items())[before:]
                for part in message(
                    _GPU_STAGES, [*number(1, at + 1), *text(2, name), *(number(4, category) if category else [])]
                )
            ]
            yield packet(message(12, table), flags=_NEEDS_START, sequence=self.sequence)
        body = [*number(11, self.gpu), *slot(13, "queue", values), *slot(14, "stage", values)]
        body += [*slot(10, "submission", values), *slot(2, "duration", values)]
        rows = Rows(np.diff(piece["start_ns"][here], prepend=self.last))
        self.last = int(piece["start_ns"][here[-1]])
        rows.put(np.arange(len(here)), _packet(body, self.sequence, rows, 53), values)
        yield rows.joined()


class EnginePower:
    """The power of an engine in mW: idle power plus, per busy lane, dynamic power at its clock.

    `counters`: the greatest value of each counter that `steps` yields; a clock that the trace has is not among them.
    """

    def __init__(self, columns: Columns, engine: PlannedEngine) -> None:
        self.columns, self.engine, self.busy = columns, engine, 0.0
        self.number = columns.engines.index(engine.id) if engine.id in columns.engines else -1
        name, powers = CLOCK + engine.id, [float(engine.dynamic_mw)]
        self.moved, self.dynamic = np.zeros(1, np.int64), np.array(powers)
        self.counters = {ENGINE_POWER + engine.id: 0.0}
        if engine.levels and name in columns.counters:
            by_clock = {float(level.clock_hz): float(level.dynamic_mw) for level in engine.levels}
            self.moved, clocks = columns.counters[name]
            self.dynamic = np.array([by_clock.get(clock, powers[0]) for clock in clocks.tolist()])
        elif engine.levels:
            self.counters = {name: float(engine.levels[-1].clock_hz)} | self.counters
        self.counters[ENGINE_POWER + engine.id] = float(engine.idle_mw + self.dynamic.max(initial=powers[0]))
        self.at = np.union1d(self.moved, [0])
        self.changes = np.zeros(len(self.at))
        self._begun = False

    def steps(self, piece: Mapping[str, Ints], upto: int) -> Iterator[tuple[Ints, Floats]]:
        """Yield the steps before a time of each of `counters`, given slices that begin before it."""
        if not self._begun and len(self.counters) > 1:
            yield np.zeros(1, np.int64), np.array([next(iter(self.counters.values()))])
        elif len(self.counters) > 1:
            yield np.zeros(0, np.int64), np.zeros(0)
        self._begun = True
        here = piece["engine"] == self.number
        codes, which = encode_values(piece["lanes"][here])
        lanes = np.array([len(self.columns.lanes(code)) for code in codes.tolist()] or [0])[which]
        at = np.concatenate((self.at, piece["start_ns"][here], piece["end_ns"][here]))
        changes = np.concatenate((self.changes, lanes, -lanes))
        now = at < upto
        self.at, self.changes = at[~now], changes[~now]
        times, places = np.unique(at[now], return_inverse=True)
        busy = self.busy + np.cumsum(np.bincount(places.reshape(-1), weights=changes[now], minlength=len(times)))
        self.busy = float(busy[-1]) if len(busy) else self.busy
        dynamic = self.dynamic[np.maximum(np.searchsorted(self.moved, times, side="right") - 1, 0)]
        yield times, self.engine.idle_mw + dynamic * busy / max(self.engine.lanes, 1)


class Steps:
    """The steps of some counters; `most`: the greatest value of each, by name.

    `parts`: their steps by the number of the counter, time and value, in order of time.  A value is shown as a multiple
    of a power of two, which is at most 2**-`_BITS` of the greatest, or one.
    """

    def __init__(self, events: Events, most: Mapping[str, float], parts: Iterator[tuple[Ints, Ints, Floats]]) -> None:
        self.sequence, self.last, self.parts, self.names = next(events.sequences), 0, parts, tuple(most)
        self.tracks = np.array([events.numbers["counter", name] for name in most], np.int64)
        self.scale = np.array([_BYTES if name == TRAFFIC else 1 for name in most])
        greatest = np.frexp(np.array([*most.values()], np.float64) * self.scale)[1]
        bits = np.array([_METERED if name in (POWER, TRAFFIC) else _BITS for name in most], np.int64)
        self.quantum = 2.0 ** np.where(greatest > _WHOLE, np.maximum(greatest - bits, 0), greatest - bits)
        self.multiplier = np.maximum(self.quantum, 1)
        self.values = np.full(len(most), np.nan)
        self.ahead = merged([(np.zeros(0, np.int64), np.zeros(0))])

    def started(self) -> bytes:
        """Return the packets that start the sequence of the steps that no event carries."""
        tracks = zip(self.names, self.tracks.tolist(), self.multiplier.astype(np.int64).tolist(), strict=True)
        descriptors = (packet(message(60, described("counter", *track)), sequence=self.sequence) for track in tracks)
        return started(self.sequence) + b"".join(descriptors) if self.names else b""

    def before(self, upto: int) -> tuple[Ints, Ints, Floats]:
        """Return the next steps before a time that change what is shown, by track, time and value."""
        found = [self.ahead]
        while not len(found[-1][1]) or found[-1][1][-1] < upto:
            part = next(self.parts, None)
            if part is None:
                break
            found.append(part)
        which, at, values = map(np.concatenate, zip(*found, strict=True))
        here = int(np.searchsorted(at, upto))
        self.ahead = which[here:], at[here:], values[here:]
        which, at, values = which[:here], at[:here], values[:here]
        order = np.argsort(which, kind="stable")
        of, time = which[order], at[order]
        last = np.append((of[1:] != of[:-1]) | (time[1:] != time[:-1]), True)[: len(of)]
        order, of = order[last], of[last]
        rounded = np.round(values[order] * self.scale[of] / self.quantum[of])
        before = np.append(np.nan, rounded)[: len(of)]
        first = np.append(True, of[1:] != of[:-1])[: len(of)]
        before[first] = self.values[of[first]]
        self.values[of] = rounded  # the last write wins
        kept = np.flatnonzero(rounded != before)
        kept = kept[np.argsort(order[kept])]
        return self.tracks[of[kept]], at[order[kept]], (rounded * self.quantum[of] / self.multiplier[of])[kept]

    def packets(self, tracks: Ints, at: Ints, values: Floats) -> bytes:
        """Return packets of steps that no event carries."""
        if not len(at):
            return b""
        columns = {"track": items(tracks), "value": raw(values)}
        packets = Rows(np.diff(at, prepend=self.last))
        self.last = int(at[-1])
        body = [*number(9, _COUNTER), *slot(11, "track", columns), *fixed64(44, Slot("value", 8))]
        packets.put(np.arange(len(at)), _packet(body, self.sequence, packets), columns)
        return packets.joined()


class Flows:
    """The numbers of the arrows that pass through jobs and releases: events with the same one are joined in a row.

    Frames keep their number along a path of the graph, so that one for each path and frame joins it from end to end;
    a job that samples has a number for each of its reads.
    """

    def __init__(self, columns: Columns, plan: Plan) -> None:
        numbers, ends = count(1), dict[str, list[int]]()
        self.paths: dict[str, list[int]] = {}
        for task in plan.tasks:
            own = self.paths.setdefault(task.name, [])
            for source in task.after:
                goes_on = ends.get(source)
                number_ = goes_on.pop(0) if goes_on else next(numbers)
                for through in (self.paths.setdefault(source, []), own):
                    through.extend({number_}.difference(through))
                ends.setdefault(task.name, []).append(number_)
        self.reads: list[tuple[str, str, int, Ints, Ints]] = []
        """Sampler, source, number, rows of jobs, and the frames they took."""
        tasks = {name: number for number, name in enumerate(columns.tasks)}
        for task in plan.tasks:
            for place, source in enumerate(columns.reads[tasks[task.name]] if task.name in tasks else ()):
                rows, frames = _sampled(columns, tasks[task.name], place)
                self.reads.append((task.name, source, next(numbers), rows, frames))
        self._by_frame = [np.argsort(frames, kind="stable") for *_, frames in self.reads]

    def of(self, names: Sequence[str], which: Ints, frame: Ints, job: Ints | None = None) -> tuple[Ints, Ints]:
        """Return where the numbers of each event begin, and all numbers; events are of frames of `names[which]`.

        `job`: the rows of jobs, which may have sampled.
        """
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        own = [self.paths.get(name, []) for name in names]
        for place in range(max(map(len, own), default=0)):
            paths = np.array([row[place] if place < len(row) else 0 for row in own], np.int64)[which]
            rows = np.flatnonzero(paths)
            found.append((rows, _flow(paths[rows], frame[rows])))
        numbers = {name: number for number, name in enumerate(names)}
        for (task, source, path, jobs, frames), order in zip(self.reads, self._by_frame, strict=True):
            if job is not None and task in numbers and len(jobs):
                at = np.minimum(np.searchsorted(jobs, job), len(jobs) - 1)
                rows = np.flatnonzero((jobs[at] == job) & (which == numbers[task]))
                found.append((rows, _flow(path, at[rows])))
            if source in numbers:
                rows = np.flatnonzero(which == numbers[source])
                low, high = (np.searchsorted(frames[order], frame[rows], side=side) for side in ("left", "right"))
                counts = high - low
                places = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
                found.append((np.repeat(rows, counts), _flow(path, order[np.repeat(low, counts) + places])))
        events, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
        first = np.concatenate(([0], np.cumsum(np.bincount(events, minlength=len(which)))))
        return first, ids[np.argsort(events, kind="stable")]


def _flow(path: Ints | int, frame: Ints) -> Ints:
    return (np.asarray(path, np.int64) << 40) | (frame & (1 << 40) - 1)


def _sampled(columns: Columns, task: int, place: int) -> tuple[Ints, Ints]:
    """Return the jobs of a task that took a frame of one of its reads and started, and the frames."""
    jobs, found = columns.jobs, [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for part in _parts(len(jobs), columns.stored is not None):
        sampled = jobs.sampled[part]
        rows = np.flatnonzero((jobs.task[part] == task) & (jobs.start_ns[part] >= 0) & (sampled >= 0))
        frames = np.asarray(jobs.frames[sampled[rows] + place], np.int64)
        found.append((rows[frames >= 0] + part.start, frames[frames >= 0]))
    rows, frames = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, frames


def _parts(rows: int, long: bool) -> list[slice]:
    """Return ranges of rows; all at once unless there are many."""
    return [slice(at, min(at + BLOCK, rows)) for at in range(0, rows, BLOCK)] if long else [slice(0, rows)][: rows > 0]


def _read(record: Any, rows: slice | Ints, names: Sequence[str] = ()) -> dict[str, Ints]:
    """Return rows of the columns of a record."""
    return {name: np.asarray(getattr(record, name)[rows], np.int64) for name in names or type(record).__slots__}


def _rounded(times: Ints) -> Ints:
    """Return times with `_SIGNIFICANT` bits, rounded down."""
    left = np.maximum(np.frexp(np.abs(times).astype(np.float64))[1].astype(np.int64) - _SIGNIFICANT, 0)
    return times >> left << left


def _pairs(first: Ints, second: Ints) -> tuple[list[tuple[int, int]], Ints]:
    """Return the distinct pairs of numbers, and which of them each is."""
    ones, one = encode_values(first)
    others, other = encode_values(second)
    found, which = encode_values(one * max(len(others), 1) + other)
    return [(int(ones[k // len(others)]), int(others[k % len(others)])) for k in found.tolist()], which


def _alike(codes: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each code with the rows that have it."""
    found, which = encode_values(codes)
    order = np.argsort(which.astype(np.uint16), kind="stable")
    ends = np.cumsum(np.bincount(which, minlength=len(found)))
    for place, code in enumerate(found.tolist()):
        yield code, order[ends[place - 1] if place else 0 : ends[place]]


# Parts of packets


def slot(field: int, name: str, values: Values) -> list[Part]:
    """Return an integer field with one of `values`, nothing if it is not among them."""
    return number(field, Slot(name, values[name].dtype.itemsize)) if name in values else []


def _argument(name: str, values: Values, field: int = 4) -> list[Part]:
    """Return a debug annotation: an integer, or with field 17 an interned string."""
    own = slot(field, name, values)
    return message(4, [*number(1, _ARGUMENTS.index(name) + 1), *own]) if own else []


def _flows(count: int) -> list[Part]:
    return [part for i in range(count) for part in fixed64(47, Slot(f"flow{i}", 8))]


def _entries(field: int, names: Mapping[str, int]) -> list[Part]:
    return [part for name, at in names.items() for part in message(field, [*number(1, at + 1), *text(2, name)])]


def _packet(body: Sequence[Part], sequence: int | Values, rows: Rows, field: int = 11) -> list[Part]:
    own = slot(10, "sequence", sequence) if isinstance(sequence, Mapping) else number(10, sequence)
    time = number(8, Slot("time", rows.gap))
    return message(1, [*own, *number(13, _NEEDS_START), *message(field, body), *time])


def packet(parts: Sequence[Part], flags: int = 0, sequence: int = _MAIN) -> bytes:
    """Return a packet; `flags` are its ``sequence_flags``."""
    return plain(message(1, [*number(10, sequence), *(number(13, flags) if flags else []), *parts]))


def started(sequence: int, tables: Sequence[Part] = (), uuid: int = 0) -> bytes:
    """Return the packets that start a sequence, its tables and clock; `uuid`: the track of events that state none."""
    of_events = message(11, number(11, uuid)) if uuid else []
    content = [*(message(12, tables) if tables else []), *message(59, [*of_events, *number(58, _CLOCK)])]
    both = [
        *message(1, [*number(1, _BOOT), *number(2, 0)]),
        *message(1, [*number(1, _CLOCK), *number(2, 0), *number(3, 1)]),
    ]
    first = packet(content, flags=_STARTS, sequence=sequence)
    return first + packet(message(6, both), flags=_NEEDS_START, sequence=sequence)


def described(kind: str, name: str, uuid: int, multiplier: int = 1) -> list[Part]:
    """Return the descriptor of a track; `multiplier`: what the values of a counter are multiples of."""
    own = [*number(1, uuid), *number(12, uuid)]  # sibling_order_rank
    if kind == "lane":
        return own + message(4, [*number(1, _PID), *number(2, _PID + uuid), *text(5, name)])
    shown, of = ("bandwidth", "B/s") if name == TRAFFIC else (name, unit(name))
    own += [*number(5, PROCESS), *text(2, shown)]
    return own + (message(8, [*number(4, multiplier), *text(6, of)]) if kind == "counter" else [])


_LEVEL = 7
"""Compression level: higher ones take two and a half times as long for three per cent."""


def write_perfetto(trace: Trace, plan: Plan, path: str | Path, kind: str = "") -> None:
    """Write `trace` of `plan` to `path` (``.pftrace``), gzipped, as Perfetto reads it; equal traces give equal bytes.

    `kind` replaces "simulated" or "measured" in the title.  A long trace is read and written in parts.
    """
    # imported here, so that numpy is loaded only when a trace is written

    events = Events(trace.columns, plan, f"{plan.platform} ({plan.mode}), {kind or trace.kind}")
    with replacing(path) as target:
        file = GzipWriter(target, _LEVEL)
        for data in events.packets(derived=trace.kind == "simulated"):
            file.write(data)
        file.finish()
