"""A plan as the scheduler configuration of Apollo CyberRT (choreography); such a file, and one of `classic`, read.

Format: `scheduler_conf` in text-format protocol buffers (cyber/proto/scheduler_conf.proto, choreography_conf.proto,
classic_conf.proto; the examples of Apollo 5.0 to 9.0 in cyber/conf).  Under `choreography` a task is pinned to a
processor, an index into choreography_cpuset; coroutines of a processor run in the order of `prio` and do not preempt
each other.  Under `classic`, the default, the tasks of a group share the threads and CPUs of that group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from socsched.bounded import read_text
from socsched.errors import DescriptorError, Finding, UsageError
from socsched.lexer import Lexer
from socsched.planning.export.linux import TOP, ExportRequest, Thread, fixed_priorities, proof, remarks, spare


def write(request: ExportRequest) -> str:
    """Return the configuration; UsageError for a plan of EDF, since CyberRT has priorities alone."""
    listed = fixed_priorities(request, "cyberrt")
    if not listed:
        raise UsageError("nothing to export: no task runs on a CPU that Linux schedules", "use --export xsched")
    owners = [thread for thread in listed if not thread.worker]
    cpus = sorted({cpu for thread in owners for cpu in thread.processors})
    every = sorted({cpu for thread in listed for cpu in thread.processors})
    pool = spare(request, listed) or every
    lines = [f"# {line}" for line in remarks(request, listed)]
    lines.append(
        "# Coroutines of a processor do not preempt each other: the bounds above hold only for tasks alone on theirs."
    )
    lines += ["scheduler_conf {", '  policy: "choreography"']
    lines.append(f'  process_level_cpuset: "{_cpuset(sorted({*every, *pool}))}"')
    for thread in (thread for thread in listed if thread.worker):
        name = request.names.get(thread.task, thread.task) + thread.name.removeprefix(thread.task)
        lines.append(f'  threads {{ name: {quoted(name)} cpuset: "{thread.processors[0]}"')
        lines.append(f'            policy: "SCHED_FIFO" prio: {thread.priority} }}')
    lines += [
        "  choreography_conf {",
        f"    choreography_processor_num: {len(cpus)}",
        '    choreography_affinity: "1to1"',
        f'    choreography_cpuset: "{_cpuset(cpus)}"',
        '    choreography_processor_policy: "SCHED_FIFO"',
        f"    choreography_processor_prio: {TOP}",
        f"    pool_processor_num: {len(pool)}",
        '    pool_affinity: "range"',
        f'    pool_cpuset: "{_cpuset(pool)}"',
        '    pool_processor_policy: "SCHED_OTHER"',
        "    pool_processor_prio: 0",
    ]
    for thread in owners:
        name = quoted(request.names.get(thread.task, thread.task))
        lines.append(f"    # {proof(request, thread.task)}")
        place = f"processor: {cpus.index(thread.processors[0])} prio: {thread.priority}"
        lines.append(f"    tasks {{ name: {name} {place} }}")
    return "\n".join([*lines, "  }", "}"]) + "\n"


def load(path: str | Path) -> list[Thread]:
    """Return the tasks of the policy, then the named threads; DescriptorError with position for a fault.

    choreography: a task without a processor runs in the pool, on all of its processors.  classic: `scope` is the group.
    """
    conf = read_message(path, "CyberRT configuration").message("scheduler_conf")
    stated = conf.text("policy", "choreography" if conf.messages("choreography_conf") else "classic")
    if stated not in ("classic", "choreography"):
        raise conf.fault("policy", f"expected classic or choreography, got {stated!r}")
    tasks = _classic(conf) if stated == "classic" else _choreography(conf.message("choreography_conf"))
    for thread in conf.messages("threads"):
        kind, where = _policy(thread, "policy"), tuple(_numbers(thread, "cpuset"))
        tasks.append(Thread(thread.text("name"), kind, where, priority=_priority(thread, "prio", kind, 1)))
    return tasks


def _choreography(conf: Message) -> list[Thread]:
    cpus, pool = _numbers(conf, "choreography_cpuset"), _numbers(conf, "pool_cpuset")
    _check_processors(conf, "choreography_")
    _check_processors(conf, "pool_")
    tasks = []
    for task in _once(conf.messages("tasks")):
        index = task.number("processor", -1)
        if index >= len(cpus):
            raise task.fault("processor", f"expected an index below {len(cpus)}, the CPUs of choreography_cpuset")
        fixed = index >= 0
        where = (cpus[index],) if fixed else tuple(pool)
        tasks.append(Thread(task.text("name"), "fifo" if fixed else "other", where, priority=task.number("prio", 1)))
    return tasks


def _classic(conf: Message) -> list[Thread]:
    groups = [group for classic in conf.messages("classic_conf") for group in classic.messages("groups")]
    tasks = []
    for group in groups:
        kind = _check_processors(group, "")
        where = tuple(_numbers(group, "cpuset"))
        scope = f"group {group.text('name', '')}".rstrip()
        for task in group.messages("tasks"):
            tasks.append((task, kind, where, scope))
    _once([task for task, *_ in tasks])
    return [
        Thread(task.text("name"), kind, where, priority=task.number("prio", 1), scope=scope)
        for task, kind, where, scope in tasks
    ]


def _once(tasks: list[Message]) -> list[Message]:
    """Return the tasks; DescriptorError for one that is there twice, of which CyberRT takes the last in silence."""
    seen: set[str] = set()
    for task in tasks:
        name = task.text("name")
        if name in seen:
            raise task.fault("name", f"expected every task once, got {name!r} again")
        seen.add(name)
    return tasks


def _check_processors(conf: Message, prefix: str) -> str:
    """Return the policy of the threads of a group or pool, whose priority must be one that Linux takes."""
    kind = _policy(conf, f"{prefix}processor_policy", "SCHED_OTHER")
    _priority(conf, f"{prefix}processor_prio", kind, 1 if kind in ("fifo", "rr") else 0)
    return kind


def _policy(message: Message, field: str, default: str | None = None) -> str:
    kinds = {"SCHED_FIFO": "fifo", "SCHED_RR": "rr", "SCHED_OTHER": "other"}
    kind = kinds.get(message.text(field, default))
    if kind is None:
        raise message.fault(field, f"expected one of {', '.join(kinds)}")
    return kind


def _priority(message: Message, field: str, kind: str, default: int) -> int:
    """Return a priority (fifo, rr) or nice value (other) in the range of Linux."""
    low, high = (1, 99) if kind in ("fifo", "rr") else (-20, 19)
    value = message.number(field, default)
    if not low <= value <= high:
        raise message.fault(field, f"expected {low} to {high}, got {value}")
    return value


def _cpuset(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))


def _numbers(message: Message, field: str) -> list[int]:
    """Return the CPUs of a set such as ``0-3, 6``."""
    found: list[int] = []
    for part in message.text(field, "").replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not part:
            continue
        if not (first.isdecimal() and first.isascii() and len(first) < 5) or (
            dash and not (last.isdecimal() and last.isascii() and len(last) < 5)
        ):
            raise message.fault(field, "expected CPU numbers and ranges such as 0-3,6")
        found += range(int(first), int(last or first) + 1)
        if len(found) > 4096:
            raise message.fault(field, "expected at most 4096 CPUs")
    return found


CHANNEL = "/socsched/"
_MS = 10**6


def write_dag(request: ExportRequest) -> str:
    """Return a DAG file: the activation of every task, with channels named `/socsched/TASK`.

    Format: cyber/proto/dag_conf.proto and component_conf.proto.  Library and class of a component are the user's: they
    are named after the task.  A component runs on every message of its first reader; a task that waits for several
    predecessors cannot be stated, nor can a period that is no whole number of milliseconds: UsageError.
    """
    lines = [f"# {request.plan.pipeline}, as planned by socsched. Library and class are to be replaced."]
    for task in request.plan.tasks:
        name = request.names.get(task.name, task.name)
        if len(task.after) > 1:
            raise UsageError(
                f"{task.name} waits for {', '.join(task.after)}: a CyberRT component is triggered by one channel",
                "let it read all but the last one: `reads` in place of `after`",
            )
        if task.timer and task.period_ns % _MS:
            raise UsageError(
                f"{task.name}: {task.period_ns} ns is no whole number of milliseconds", "change the period"
            )
        kind = "timer_components" if task.timer else "components"
        lines += [
            f"# {proof(request, task.name)}",
            "module_config {",
            f"  module_library: {quoted(f'lib{name}.so')}",
        ]
        lines += [
            f"  {kind} {{",
            f"    class_name: {quoted(name)}",
            "    config {",
            f"      name: {quoted(name)}",
        ]
        if task.timer:
            lines.append(f"      interval: {task.period_ns // _MS}")
        for source in (*task.after, *task.reads):
            channel = quoted(CHANNEL + request.names.get(source, source))
            lines.append(f"      # reads {channel}" if task.timer else f"      readers {{ channel: {channel} }}")
        lines += ["    }", "  }", "}"]
    return "\n".join(lines) + "\n"


MOST_BYTES = 4 * 2**20
DEEPEST = 32
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f\v]+|\#[^\n]*)|(?P<text>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<number>-?(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?))"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<mark>[{}<>\[\],;:])"
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_PLAIN = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


# Text-format protocol buffers (protobuf.dev/reference/protobuf/textformat-spec), the subset that configuration files
# use: fields, messages, lists, comments.


@dataclass(slots=True)
class Message:
    """The fields of a message in file order; `file`, `line` and `column` say where it starts."""

    file: str
    line: int
    column: int
    fields: list[tuple[str, int, int, object]] = field(default_factory=list)

    def fault(self, name: str, expected: str) -> DescriptorError:
        """Return the error for a field, at its position or at that of the message if it is absent."""
        line, column = next(((ln, col) for key, ln, col, _ in self.fields if key == name), (self.line, self.column))
        return DescriptorError([Finding(self.file, line, column, name, expected)])

    def messages(self, name: str) -> list[Message]:
        """Return the messages of a repeated field."""
        found = [value for key, _, _, value in self.fields if key == name]
        if not all(isinstance(value, Message) for value in found):
            raise self.fault(name, "expected a message in braces")
        return [value for value in found if isinstance(value, Message)]

    def message(self, name: str) -> Message:
        """Return the only message of a field."""
        found = self.messages(name)
        if len(found) != 1:
            raise self.fault(name, f"expected one message, got {len(found)}")
        return found[0]

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text field; required without a default."""
        value = self._last(name, default)
        if not isinstance(value, str):
            raise self.fault(name, "expected text in quotes")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a field with a whole number of at most 32 bits; required without a default."""
        value = self._last(name, default)
        if not isinstance(value, int) or abs(value) >= 2**32:
            raise self.fault(name, "expected a whole number")
        return value

    def _last(self, name: str, default: object) -> object:
        return next((value for key, _, _, value in reversed(self.fields) if key == name), default)


def quoted(text: str) -> str:
    """Return text as a string literal; everything but printable ASCII is escaped."""
    raw = text.encode("utf-8", "surrogatepass")
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
    return "".join(plain).join('""')


def read_message(path: str | Path, what: str) -> Message:
    """Return a file as a message; DescriptorError with the position of the first fault."""
    text = read_text(path, what, "give a text-format protobuf file", MOST_BYTES, "replace")
    reader = _Reader(text, str(path), _TOKEN, "a field, a value or a bracket", 1)
    root = Message(str(path), 1, 1)
    reader.message(root, "", 0)
    return root


class _Reader(Lexer):
    def fail(self, expected: str) -> DescriptorError:
        got = repr(self.token[:40]) if self.token else "the end of the file"
        return self.fault(self.place, f"expected {expected}, got {got}")

    def message(self, found: Message, end: str, depth: int) -> None:
        if depth > DEEPEST:
            raise self.fail("less nesting")
        while not (self.takes(end) if end else self.kind == ""):
            if self.kind != "name":
                raise self.fail("the name of a field" + (f" or {end}" if end else ""))
            name, (line, column) = self.token, self.place
            self.next()
            colon = self.takes(":")
            if self.takes("["):
                while not self.takes("]"):
                    found.fields.append((name, line, column, self.value(depth)))
                    if not self.takes(",") and self.token != "]":
                        raise self.fail(", or ]")
            else:
                if not colon and self.token not in ("{", "<"):
                    raise self.fail(": or {")
                found.fields.append((name, line, column, self.value(depth)))
            _ = self.takes(",") or self.takes(";")

    def value(self, depth: int) -> object:
        if self.kind == "mark" and self.token in ("{", "<"):
            message = Message(self.file, *self.place)
            end = {"{": "}", "<": ">"}[self.token]
            self.next()
            self.message(message, end, depth + 1)
            return message
        kind, token = self.kind, self.token
        if kind == "text":
            parts = b""
            while self.kind == "text":  # adjacent literals are one text
                parts += _ESCAPE.sub(_unescaped, self.token[1:-1].encode("utf-8"))
                self.next()
            return parts.decode("utf-8", "replace")
        if kind not in ("number", "name") or len(token) > 200:
            raise self.fail("a value")
        self.next()
        if kind == "name":
            return {"true": True, "false": False}.get(token, token)
        if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)", token):
            return int(token, 8) if re.fullmatch("-?0[0-7]+", token) else int(token, 0)
        return float(token) if not re.fullmatch("-?[0-9]+", token) else float("nan")


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, plain = match.groups()
    if octal:
        return bytes([int(octal, 8) & 255])
    return bytes([int(hexadecimal, 16)]) if hexadecimal else _PLAIN.get(plain, plain)
