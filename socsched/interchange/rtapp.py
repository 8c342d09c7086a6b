"""Task sets of rt-app (JSON): tried on the examples of scheduler-tools/rt-app, 2024, and on its older `exec` form.

Times are in us.  A thread of one phase that runs and then waits for its timer is periodic; one that sleeps instead is
sporadic, with run and sleep as its shortest distance.  `instance` makes several threads of one object, and a key may be
there several times.  Threads of SCHED_OTHER never delay those of real-time policies and are left out.

The JSON is that which json-c and workgen take: comments, commas before brackets, one key several times, keys without a
value.

Values keep their positions; an object is a list of keys and values in the order of the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from socsched.bounded import read_text
from socsched.errors import DescriptorError, Finding, InputError
from socsched.interchange.taskset_import import MOST_BYTES, ImportedTaskSet, TaskNames, set_of
from socsched.lexer import Lexer
from socsched.planning.export.linux import refused

DEEPEST = 64
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)|(?P<text>\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)|(?P<word>true|false|null)|(?P<mark>[{}\[\],:])",
    re.DOTALL,
)


@dataclass(slots=True)
class Value:
    """A value and where it starts; `plain` of numbers, texts and words, `items` of objects, `listed` of lists."""

    line: int
    column: int
    kind: str
    plain: Decimal | str | bool | None = None
    items: list[tuple[str, Value]] = field(default_factory=list)
    listed: list[Value] = field(default_factory=list)

    def get(self, key: str) -> Value | None:
        """Return the last value of a key, as JSON readers take it; None if there is none."""
        return next((value for name, value in reversed(self.items) if name == key), None)


def read_loose_json(path: Path, what: str, hint: str, most: int) -> Value:
    """Return the object in a file; DescriptorError with the position of the first fault."""
    reader = _Reader(read_text(path, what, hint, most), str(path), _TOKEN, "valid JSON", 20, hint)
    document = reader.value(0)
    if document.kind != "object":
        raise reader.fault((document.line, document.column), f"expected an object, got a {document.kind}")
    reader.expect("")
    return document


class _Reader(Lexer):
    def expect(self, token: str) -> None:
        if self.token != token or (token and self.kind != "mark"):
            got = repr(self.token[:40]) if self.token else "the end of the file"
            raise self.fault(self.place, f"expected {token or 'the end of the file'}, got {got}")
        if token:
            self.next()

    def value(self, depth: int) -> Value:
        line, column = self.place
        if depth > DEEPEST:
            raise self.fault((line, column), f"expected at most {DEEPEST} levels")
        if self.takes("{"):
            found = Value(line, column, "object")
            while not self.takes("}"):
                place, key = self.place, self.text_()
                if self.kind == "mark" and self.token in (",", "}"):  # workgen's events without a value
                    found.items.append((key, Value(*place, "word")))
                else:
                    self.expect(":")
                    found.items.append((key, self.value(depth + 1)))
                if not self.takes(",") and self.token != "}":
                    self.expect(",")
            return found
        if self.takes("["):
            found = Value(line, column, "list")
            while not self.takes("]"):
                found.listed.append(self.value(depth + 1))
                if not self.takes(",") and self.token != "]":
                    self.expect(",")
            return found
        if self.kind == "text":
            return Value(line, column, "text", self.text_())
        if self.kind in ("number", "word"):
            plain = Decimal(self.token) if self.kind == "number" else {"true": True, "false": False}.get(self.token)
            found = Value(line, column, self.kind, plain)
            self.next()
            return found
        raise self.fault((line, column), f"expected a value, got {self.token[:40]!r}")

    def text_(self) -> str:
        if self.kind != "text":
            raise self.fault(self.place, f"expected text in quotes, got {self.token[:40]!r}")
        try:
            text: str = json.loads(self.token)
        except ValueError:
            raise self.fault(self.place, "expected a JSON string") from None
        self.next()
        return text


_HINT = "expected a workload of rt-app (JSON) with tasks"
_REAL_TIME = ("SCHED_DEADLINE", "SCHED_FIFO", "SCHED_RR")
_OTHERS = ("SCHED_OTHER", "SCHED_BATCH", "SCHED_IDLE")
_RUNS = ("run", "runtime", "exec")
_WAITS = ("lock", "unlock", "wait", "sync", "signal", "broad", "barrier", "suspend", "resume", "fork", "lock_order")
_UNTIMED = ("mem", "iorun")
MOST_THREADS = 10_000
_LARGEST = Decimal(10) ** 10


@dataclass(frozen=True, slots=True)
class _Thread:
    name: str
    policy: str
    priority: int
    cpus: tuple[int, ...]
    row: dict[str, Any]
    place: tuple[int, int]
    instances: int


def read_rtapp(path: Path, processors: int = 0) -> ImportedTaskSet:
    """Return the task set; `processors`: those of the machine.  DescriptorError or InputError for faulty files."""
    root = read_loose_json(path, "workload", _HINT, MOST_BYTES)
    tasks, settings = root.get("tasks"), root.get("global")
    if tasks is None or not tasks.items:
        raise InputError(f"{path}: expected tasks", _HINT)
    default = _text(settings.get("default_policy"), "SCHED_OTHER") if settings else "SCHED_OTHER"
    reader = _Threads(str(path), default)
    threads = [thread for name, value in tasks.items if (thread := reader.thread(name, value))]
    if sum(thread.instances for thread in threads) > MOST_THREADS:
        raise InputError(f"{path}: more than {MOST_THREADS} threads", "leave out instances")
    notes = [f"Imported from {path.name}. A thread runs what its run events state.", *reader.notes]
    kept = [thread for thread in threads if thread.policy in _REAL_TIME]
    left = [thread.name for thread in threads if thread.policy not in _REAL_TIME]
    if left:
        notes.append(f"Left out, as they have no real-time policy: {', '.join(left)}.")
    if not kept:
        why = " ".join(reader.notes) or f"nothing bounds when a thread of {default} runs"
        raise InputError(
            f"{path}: no thread of a real-time policy with one pattern: {why}",
            "expected threads of SCHED_DEADLINE, SCHED_FIFO or SCHED_RR that run and wait for a timer",
        )
    rule = _rule(path, kept)
    count = processors or max((cpu for thread in kept for cpu in thread.cpus), default=0) + 1
    if not processors:
        notes.append(f"Processors assumed, from cpus: {count}; others with --processors.")
    scheme = _place(path, kept, count)
    names, rows, places = TaskNames(), list[dict[str, Any]](), list[tuple[int, int]]()
    for thread in kept:
        for _ in range(thread.instances):
            row = {"name": names.take(thread.name), **thread.row}
            if rule == "FP":
                row["prio"] = -thread.priority
            if scheme == "P_":
                row["cpu"] = thread.cpus[0]
            rows.append(row)
            places.append(thread.place)
    mapping = set_of(path, "rt-app", "us", f"{scheme}{rule}", count, rows)
    length = settings.get("duration") if settings else None
    if length is not None and isinstance(length.plain, Decimal) and 0 < length.plain <= 10**6:
        mapping["horizon"] = length.plain * 10**6
    return ImportedTaskSet(mapping, tuple(places), tuple(notes))


def _rule(path: Path, kept: list[_Thread]) -> str:
    """Return EDF, FP or FIFO; InputError for policies whose threads task sets cannot order among each other."""
    kinds = {thread.policy for thread in kept}
    if "SCHED_DEADLINE" in kinds:
        if len(kinds) > 1:
            raise InputError(
                f"{path}: threads of SCHED_DEADLINE and of {', '.join(sorted(kinds - {'SCHED_DEADLINE'}))}",
                "analyse one policy at a time: leave the others out",
            )
        return "EDF"
    ranks = [thread.priority for thread in kept for _ in range(thread.instances)]
    if len(set(ranks)) == len(ranks):
        return "FP"
    if len(set(ranks)) == 1 and kinds == {"SCHED_FIFO"}:
        return "FIFO"
    raise InputError(
        f"{path}: threads with one priority run in the order of their arrival, or by turns, which is not analysed",
        "give every thread a priority of its own, or all of them the same under SCHED_FIFO",
    )


def _place(path: Path, kept: list[_Thread], count: int) -> str:
    """Return the scheme, "P_", "G_" or "" for one processor; InputError for sets of processors."""
    if count == 1:
        return ""
    sets = {thread.cpus for thread in kept}
    if all(len(cpus) == 1 for cpus in sets):
        return "P_"
    if all(not cpus or len(cpus) == count for cpus in sets):
        return "G_"
    raise InputError(
        f"{path}: cpus that are neither one processor each nor all of {count}", "state one for each, or all"
    )


class _Threads:
    """The reading of thread objects."""

    def __init__(self, file: str, default: str) -> None:
        self.file, self.default = file, default
        self.notes: list[str] = []

    def refuse(self, at: Value, name: str, expected: str) -> DescriptorError:
        return DescriptorError([Finding(self.file, at.line, at.column, name, expected)], _HINT)

    def thread(self, name: str, value: Value) -> _Thread | None:
        """Return a thread; None, with a note, if it has no single pattern or runs nothing."""
        if value.kind != "object":
            raise self.refuse(value, name, f"expected an object, got a {value.kind}")
        phases = value.get("phases")
        body = value
        if phases is not None:
            if len(phases.items) != 1:
                self.notes.append(f"Left out, as it has {len(phases.items)} phases, not one pattern: {name}.")
                return None
            body = phases.items[0][1]
        policy = _text(body.get("policy") or value.get("policy"), self.default)
        if policy not in (*_REAL_TIME, *_OTHERS):
            raise self.refuse(value, f"{name}.policy", f"expected one of {', '.join((*_REAL_TIME, *_OTHERS))}")
        priority = self._priority(body.get("priority") or value.get("priority"), name, policy)
        stated = value.get("instance")
        instances = self._whole(stated, f"{name}.instance", MOST_THREADS, "a whole number") if stated else 1
        place = (value.line, value.column)
        listed = (body.get("cpus") or value.get("cpus") or _NONE).listed
        cpus = tuple(sorted(self._whole(one, f"{name}.cpus", 1023, "CPU numbers") for one in listed))
        if policy in _OTHERS:
            return _Thread(name, policy, priority, cpus, {}, place, instances)
        row = self._pattern(name, value, body, policy)
        delay = value.get("delay")
        if delay is not None:
            row["offset"] = self._time(delay, f"{name}.delay")
        return _Thread(name, policy, priority, cpus, row, place, instances) if instances else None

    def _pattern(self, name: str, value: Value, body: Value, policy: str) -> dict[str, Any]:
        """Return times of a thread: what it runs in a loop, and how often the loop begins."""
        old = body.get("exec") is not None
        run = sleep = Decimal(0)
        timers: list[Decimal] = []
        for key, item in body.items:
            event = key.rstrip("0123456789")
            if (
                event in _RUNS
                and item.kind == "number"
                and not (policy == "SCHED_DEADLINE" and old and event != "exec")
            ):
                run += self._time(item, f"{name}.{key}")
            elif event == "sleep" and item.kind == "number":
                sleep += self._time(item, f"{name}.{key}")
            elif event == "timer":
                timers.append(self._time(item.get("period") or item, f"{name}.{key}.period"))
            elif event in _WAITS:
                raise self.refuse(item, f"{name}.{key}", "expected threads that do not wait for each other")
            elif event in _UNTIMED:
                raise self.refuse(item, f"{name}.{key}", "expected run events: this one states no time")
        if not run:
            raise self.refuse(body, name, "expected a run event")
        row: dict[str, Any] = {"wcet": run}
        if len(timers) == 1 and not sleep:
            row["period"] = timers[0]
        elif not timers and sleep:
            row["period"], row["arrivals"] = run + sleep, "sporadic"
            self.notes.append(f"{name} sleeps between its loops: its shortest distance is {row['period']} us.")
        elif not timers and body.get("period") is not None and old:
            row["period"] = self._time(body.get("period") or body, f"{name}.period")
        else:
            raise self.refuse(body, name, f"expected one timer, or sleeps alone; got {len(timers)} timers")
        if policy == "SCHED_DEADLINE":
            self._budget(name, value, body, row)
        elif old and (due := body.get("deadline")) is not None:
            row["deadline"] = self._time(due, f"{name}.deadline")
        return row

    def _budget(self, name: str, value: Value, body: Value, row: dict[str, Any]) -> None:
        """Take the deadline of a reservation, which the kernel must accept."""
        budget, period, due = (body.get(f"dl-{n}") or value.get(f"dl-{n}") for n in ("runtime", "period", "deadline"))
        runtime = self._time(budget, f"{name}.dl-runtime") if budget else row["wcet"]
        every = self._time(period, f"{name}.dl-period") if period else row["period"] if not budget else runtime
        limit = self._time(due, f"{name}.dl-deadline") if due else every
        fault = refused(int(runtime * 1000), int(limit * 1000), int(every * 1000))
        if fault:
            at = {"runtime": budget, "deadline": due, "period": period}[fault[0]] or body
            raise self.refuse(at, f"{name}.dl-{fault[0]}", fault[1])
        row["deadline"] = limit
        if every < row["period"]:
            self.notes.append(f"{name}: its budget is renewed every {every} us, which is taken as its period.")
            row["period"] = every
        if row["wcet"] > runtime:
            self.notes.append(
                f"{name} runs {row['wcet']} us on a budget of {runtime} us: it is throttled; the budget is analysed."
            )
            row["wcet"] = runtime

    def _priority(self, value: Value | None, name: str, policy: str) -> int:
        if value is None:
            return 10 if policy in ("SCHED_FIFO", "SCHED_RR") else 0
        low, high = (1, 99) if policy in ("SCHED_FIFO", "SCHED_RR") else (-20, 19)
        if policy != "SCHED_DEADLINE" and not (isinstance(value.plain, Decimal) and low <= value.plain <= high):
            raise self.refuse(value, f"{name}.priority", f"expected {low} to {high} under {policy}, got {value.plain}")
        return int(value.plain) if isinstance(value.plain, Decimal) else 0

    def _time(self, value: Value, name: str) -> Decimal:
        number = value.plain
        if not isinstance(number, Decimal) or not 0 <= number <= _LARGEST:
            raise self.refuse(value, name, f"expected a time in us from 0 to {_LARGEST:f}")
        return number

    def _whole(self, value: Value, name: str, most: int, what: str) -> int:
        if not isinstance(value.plain, Decimal) or not 0 <= value.plain <= most or value.plain % 1:
            raise self.refuse(value, name, f"expected {what} from 0 to {most}")
        return int(value.plain)


_NONE = Value(1, 1, "list")


def _text(value: Value | None, default: str) -> str:
    return value.plain if value is not None and isinstance(value.plain, str) else default
