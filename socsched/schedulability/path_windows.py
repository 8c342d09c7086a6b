"""Windows of whole paths: a job delays a path at most once, however many of the path's tasks it could delay.

A path is a sequence of tasks that trigger each other.  At each instant between its release and its end, its current job
runs or another job holds a lane that it needs; so the path takes its own execution times plus those of all jobs that
may do so within the window.  Sources with one phase are evaluated together, as the transactions of Tindell, "Adding
time-offsets to schedulability analysis", YCS 221, University of York 1994, and Palencia and González Harbour, RTSS
1998; paying a delay once along a path is due to Jayachandran and Abdelzaher, ECRTS 2007, and Schlatow and Ernst, RTAS
2016.  Bounds hold for any phases of sources that trigger no common task (docs/proofs.md, "Windows of paths").

One function covers gangs, accelerators and both policies, and starts from any bounds that hold.  Not done: exploring
schedules over a hyperperiod (valid for the planned phases of sensors only, which drift), per-task offsets with
best-case times (these are 0 here), blocking once a task in a run on one engine (the job that follows is already
pending).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import add
from typing import Any

from socsched.schedulability import native_windows
from socsched.schedulability.tasks import (
    Arrival,
    Response,
    RtTask,
    activation,
    components,
    descendants,
    joined,
    single_resource,
    topological,
)

NAME = "windows of paths"
SOURCE = "after Tindell, YCS 221 1994; Palencia & González Harbour, RTSS 1998; Jayachandran & Abdelzaher, ECRTS 2007"
WITHIN = "interference within the window of its path"
"""Term of a response that is the window of a path: all delays less the slack of its predecessor's own bound."""
PATHS = 16
"""Paths to a task that are examined; a task with more keeps its bound."""
ROUNDS = 40
"""Rounds of an iteration over all tasks after which known bounds stay."""
PASSES = 4
"""Passes over all tasks; the result of each is a bound."""


def tighten(
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None,
    responses: Mapping[str, Response],
    like: PathSystem | None = None,
) -> dict[str, Response]:
    """Return the responses, shortened where windows of paths are shorter; `deadlines` (ns): under EDF, else None.

    All `responses` must hold together; those without a bound stay without.  `like`: a system of tasks that differ in
    lanes and times alone.
    """
    system = PathSystem.of(tasks, deadlines, like)
    found = dict(responses)
    finish = {name: response.value for name, response in found.items() if response.bounded}
    numbers = {"rounds": ROUNDS, "steps": STEPS, "own_spans": OWN_SPANS, "own_jobs": OWN_JOBS}
    windows = native_windows.Windows.of(system, finish, numbers) or Windows(system)
    for _ in range(PASSES):
        finish = {name: found[name].value for name in finish}
        confirmed, longest = windows.longest(finish, _shortest(system, finish))
        for name, answer in longest.items():
            if answer:
                found[name] = _response(system, answer[1], answer[0], found, found[name])
        if confirmed or all(found[name].value == value for name, value in finish.items()):
            break  # a further pass would only confirm the least times
    finish = {name: found[name].value for name in finish}
    return {name: _settled(_since(windows, system, name, response, finish), found) for name, response in found.items()}


def _shortest(system: PathSystem, most: Mapping[str, int]) -> dict[str, int]:
    """Return the finish times (ns) of the tasks in `most` if nothing delays them."""
    finish: dict[str, int] = {}
    for name in topological(system.tasks):
        if name in most:
            finish[name] = activation(system.tasks[name], system.tasks, finish).jitter + system.tasks[name].wcet
    return finish


def _since(
    windows: Windows | native_windows.Windows,
    system: PathSystem,
    name: str,
    response: Response,
    finish: Mapping[str, int],
) -> Response:
    """Return a response with its bounds from the releases at its sources, if they are later than the nominal one."""
    task = system.tasks[name]
    if not task.release_jitter or not response.bounded:
        return response
    ends, paths = [], paths_to(system, name)
    if len(paths) > PATHS:
        return response
    for path in paths:
        first = task.offset + response.value - path.source.offset  # what is known from the nominal arrival
        window = windows.since(path, finish, first)
        ends.append((path.source, first if window is None else min(window + path.source.jitter, first), window))
    sources = {source.source for source, _, _ in ends}
    # Beside a sporadic or closed-loop source, frames of a join drift apart: nothing bounds how long one waits.
    if not ends or (task.sporadic and len(sources) > 1):
        return response
    since = []
    for one in {source.source: source for source, _, _ in ends}.values():
        bounds = [
            window if source == one and window is not None and not one.timer else end + source.offset - one.offset
            for source, end, window in ends
        ]
        since.append((one.source, max(bounds)))
    return replace(response, since=tuple(since))


def _settled(response: Response, found: Mapping[str, Response]) -> Response:
    """Return a response whose terms begin at its predecessor's final value; the bound itself stays."""
    start = found[response.via].value if response.via else 0
    rest = response.value - start - sum(value for _, value in response.terms)
    if not rest or not response.bounded:
        return response
    return replace(response, terms=(*response.terms, ("release jitter from predecessor", rest)))


class _Longest:
    """The longest windows of paths below known finish times `most` (ns), computed anew where they may have changed."""

    def __init__(self, system: PathSystem, most: Mapping[str, int]) -> None:
        self._system, self._most = system, most
        upstream = {name: [name, *(other for other in most if name in system.later[other])] for name in most}
        self._rests_on = {
            name: sorted({task.name for other in upstream[name] for task in system.groups[other]}) for name in most
        }
        self._known: dict[str, tuple[list[int | None], tuple[int, Path] | None]] = {}

    def of(self, name: str, finish: Mapping[str, int]) -> tuple[int, Path] | None:
        """Return the longest window of a path to a task (ns) and the path; None if none is below the known time."""
        read = [finish.get(other) for other in self._rests_on[name]]
        if name not in self._known or self._known[name][0] != read:
            self._known[name] = read, _longest(self._system, name, finish, self._most[name])
        return self._known[name][1]


class Windows:
    """The windows of the paths of a system; `native_windows.Windows` has the same methods."""

    def __init__(self, system: PathSystem) -> None:
        self._system = system

    def longest(
        self, most: Mapping[str, int], least: Mapping[str, int]
    ) -> tuple[bool, dict[str, tuple[int, tuple[str, ...]] | None]]:
        """Return whether least finish times are confirmed, and for each task the longest window (ns) below `most`.

        `least`: finish times (ns) below which none are; None for a task without a window below `most`.
        """
        longest = _Longest(self._system, most)
        confirmed = _least(most, dict(least), longest, [name for name in self._system.order() if name in least])
        answers = {name: longest.of(name, confirmed or most) for name in most}
        return bool(confirmed), {name: (each[0], each[1].tasks) if each else None for name, each in answers.items()}

    def since(self, path: Path, finish: Mapping[str, int], limit: int) -> int | None:
        """Return the longest window of a path from the arrival at its source (ns), None from `limit` on."""
        return _window(self._system, replace(path, late=False), finish, limit)


def _least(
    most: Mapping[str, int], finish: dict[str, int], longest: _Longest, order: Sequence[str]
) -> dict[str, int] | None:
    """Return the least finish times that windows of paths confirm; None if they reach `most` nowhere below it."""
    for _ in range(ROUNDS):
        before = dict(finish)
        for name in order:
            found = longest.of(name, finish)
            finish[name] = most[name] if found is None else max(found[0], finish[name])
        if finish == before:
            return finish
    return None


def bounds(response: Response) -> bool:
    """Return whether a response is the window of a path."""
    return any(term == WITHIN for term, _ in response.terms)


def paths_to(system: PathSystem, name: str) -> list[Path]:
    """Return the paths from a source to a task, at most one more than `PATHS`."""
    if name not in system.paths:
        for other in topological(system.tasks):  # predecessors first: a long chain would exceed the stack
            system.paths[other] = _paths_to(system, other)
    return system.paths[name]


def _paths_to(system: PathSystem, name: str) -> list[Path]:
    task = system.tasks[name]
    before = [other for other in task.after if other in system.tasks]
    arrivals = task.arrivals
    if not arrivals and len(before) < max(len(task.after), 1):
        arrivals = (Arrival("".join(o for o in task.after if o not in before), task.offset, task.release_jitter),)
    found = [Path((name,), arrival) for arrival in arrivals]
    for other in before:
        found += [replace(path, tasks=(*path.tasks, name)) for path in system.paths[other]]
        if len(found) > PATHS:
            break
    return found


def _longest(system: PathSystem, name: str, finish: Mapping[str, int], limit: int) -> tuple[int, Path] | None:
    """Return the longest window of a path to a task (ns from its release) and the path; None from `limit` on."""
    paths = paths_to(system, name)
    if len(paths) > PATHS:
        return None
    windows = []
    for path in paths:
        window = _window(system, path, finish, limit)
        if path.source.jitter:
            later = path.source.offset + path.source.jitter - system.tasks[name].offset
            arrived = _window(system, replace(path, late=False), finish, (limit if window is None else window) - later)
            window = window if arrived is None else arrived + later
        if window is None:
            return None
        windows.append((window, path))
    return max(windows, key=lambda each: (each[0], each[1].tasks))


def _window(system: PathSystem, path: Path, finish: Mapping[str, int], limit: int) -> int | None:
    """Return the longest window of a path as it names it (ns), None from `limit` on."""
    whole = Window.of(system, path, finish)
    if whole is None:
        return None
    window = whole.end(limit)
    last = by_last_delay(system, path, finish, whole, limit if window is None else window)
    return window if last is None else last


def _response(
    system: PathSystem, path: tuple[str, ...], value: int, known: Mapping[str, Response], mine: Response
) -> Response:
    task, via = system.tasks[path[-1]], path[-2] if len(path) > 1 else ""
    start = task.release_jitter
    terms = [("release jitter", task.release_jitter)] if start and not via else []
    if via:
        later = system.tasks[via].offset - task.offset
        start = known[via].value + later
        terms += [(f"offset of {via}", later)] if later else []
    terms += [("wcet", task.wcet), (WITHIN, value - start - task.wcet)]
    return replace(mine, value=value, terms=tuple(terms), via=via)


RUNS = 3
"""Runs of a path whose blocking is evaluated together with the interference of the same sources."""
STEPS = 200
"""Steps of an iteration after which a path keeps its bound."""
NEVER = -(1 << 62)


@dataclass(frozen=True, slots=True)
class PathSystem:
    """Tasks with their resources, and the sources of every task; `deadlines` (ns) under EDF, None: fixed priorities.

    `single`: whether the resource of a task is one processor, `single_resource`; the rest keeps results: `loads` of
    `_load`, as windows of many paths meet the same rivals, and what does not depend on finish times, which change from
    one round of an iteration to the next: `paths` to a task, `views` of rivals, tasks that a rival goes `ahead` of; and
    `columns` of `native_windows` that depend on paths alone.
    """

    tasks: Mapping[str, RtTask]
    deadlines: Mapping[str, int] | None
    groups: Mapping[str, Sequence[RtTask]]
    single: Mapping[str, bool]
    sources: Mapping[str, str]
    later: Mapping[str, Set[str]]
    loads: dict[tuple[Rival, ...], dict[tuple[int, int], list[int]]] = field(default_factory=dict)
    views: dict[tuple[Path, int], tuple[int, list[_View]]] = field(default_factory=dict)
    paths: dict[str, list[Path]] = field(default_factory=dict)
    ahead: dict[tuple[str, Path], list[tuple[int, int, str]]] = field(default_factory=dict)
    columns: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        tasks: Mapping[str, RtTask], deadlines: Mapping[str, int] | None, like: PathSystem | None = None
    ) -> PathSystem:
        """Return the system of these tasks; `like`: one of tasks with the same releases and triggers."""
        parts = components(tasks.values())
        groups = {task.name: group for group in parts for task in group}
        single = {task.name: one for group in parts for one in [single_resource(group)] for task in group}
        system = PathSystem(tasks, deadlines, groups, single, sources_of(tasks), descendants(tasks))
        return replace(system, paths=like.paths, columns=like.columns) if like else system

    def order(self) -> list[str]:
        """Return the tasks in an order in which few rest on later ones: by priority, under EDF as they trigger."""
        found = topological(self.tasks)
        return list(found) if self.deadlines is not None else sorted(found, key=lambda name: self.tasks[name].priority)

    def paths_to(self, name: str) -> list[Path] | None:
        """Return the paths from a source to a task, None if they are too many to be examined."""
        found = paths_to(self, name)
        return found if len(found) <= PATHS else None


def sources_of(tasks: Mapping[str, RtTask]) -> dict[str, str]:
    """Return a name for the sources of each task, the same for tasks whose sources have a fixed phase to each other."""
    sets = (
        (f"task {name}", *(f"task {other}" if other in tasks else f"source {other}" for other in task.after))
        for name, task in tasks.items()
    )
    names = {member: min(group) for group in joined(sets) for member in group}
    return {name: names[f"task {name}"] for name in tasks}


@dataclass(frozen=True, slots=True)
class Path:
    """Tasks that trigger each other, the first of them by frames of a source; `late`: the window it is taken in.

    With `late`, a window begins with the nominal arrival of a frame at the source and ends with its job of the last
    task, which it names by the time after that task's nominal release; otherwise it begins with the actual arrival.
    """

    tasks: tuple[str, ...]
    source: Arrival
    late: bool = True

    @property
    def later(self) -> int:
        """Return by how much the window may begin later than the nominal arrival (ns)."""
        return 0 if self.late else self.source.jitter


@dataclass(frozen=True, slots=True)
class Rival:
    """Jobs of a task as a path sees them (ns): frame m is released `shift` + m `period` after the path's arrival.

    A job delays the path by at most `wcet`, and by `switch` more through preemptions, if it is released `latest` after
    the path or earlier, and ends `finish` after its release; one released later blocks `blocks`: runs,
    times, and the latest begins of the runs.  Frames
    from `first` on do not compete, nor does frame 0 if `own`.
    """

    name: str = field(compare=False)
    wcet: int
    switch: int
    period: int
    shift: int
    finish: int
    latest: int
    blocks: tuple[tuple[int, int, int], ...]
    own: bool = False
    first: int | None = None


@dataclass(slots=True)
class Window:
    """The window of a path: its own time (ns), and rivals by source, `aligned` ones with the path's phase.

    `origin`: from the end of the window to the time it stands for; `later`: as in `Path`, for aligned rivals, whose
    releases count from the nominal arrival.
    """

    origin: int
    later: int
    alone: int
    runs: int
    foreign: list[tuple[Rival, ...]]
    aligned: list[Rival]
    loads: list[dict[tuple[int, int], list[int]]]
    _known: dict[int, list[int]] = field(default_factory=dict)
    _blocked: dict[int, list[int]] = field(default_factory=dict)
    _rest: int | None = None

    @staticmethod
    def of(system: PathSystem, path: Path, finish: Mapping[str, int], start: int = 0) -> Window | None:
        """Return the window of a path from its task `start` on, None if a rival has no bound."""
        key = path, start
        if key not in system.views:
            system.views[key] = _views(system, path, start)
        alone, views = system.views[key]
        rivals: dict[str, list[Rival]] = {}
        for view in views:
            end = finish.get(view.name)
            if end is None:
                return None
            if view.latest > -end or view.blocks:  # else its jobs have ended or yield
                rivals.setdefault(view.source, []).append(view.rival(system, path, finish))
        aligned = rivals.pop("", [])
        runs = 1 + max((run for rival in chain(aligned, *rivals.values()) for run, _, _ in rival.blocks), default=-1)
        foreign = [tuple(each) for each in rivals.values()]
        loads = [system.loads.setdefault(each, {}) for each in foreign]
        origin = path.source.offset - system.tasks[path.tasks[-1]].offset if path.late else 0
        return Window(origin, path.later, alone, runs, foreign, aligned, loads)

    def end(self, limit: int) -> int | None:
        """Return the longest response of the path after its last task's release, None from `limit` on."""
        window = self.alone
        for _ in range(STEPS):
            if self.origin + window >= limit:
                return None
            longer = self.alone + self._others(window)
            if longer <= window:
                return self.origin + window
            window = longer
        return None

    def length(self, charged: int, span: int, limit: int, least: int = 0) -> int | None:
        """Return the longest time the path takes, None from `limit` on; it is known not to be below `least`.

        Jobs of its own sources take `charged`, and those released within `span` may block it.
        """
        window = max(self.alone + charged, least)
        blocking = self._blocking(span)
        for _ in range(STEPS):
            if window >= limit:
                return None
            longer = self.alone + charged + self._others(window, blocking)
            if longer <= window:
                return window
            window = longer
        return None

    def _blocking(self, span: int) -> list[int]:
        """Return what jobs of the path's own sources released within a `span` block, for each set of runs."""
        if span not in self._blocked:
            self._blocked[span] = _at(self.aligned, span + self.later, min(self.runs, RUNS), False)
        return self._blocked[span]

    def _others(self, window: int, blocking: Sequence[int] = ()) -> int:
        """Return the most that other jobs can delay the path within a window: interference and blocking.

        Of the path's own sources, `blocking` counts in place of all jobs released within the window.
        """
        joint = min(self.runs, RUNS)
        mine = blocking or _at(self.aligned, window + self.later, joint)
        foreign = self._foreign(window, joint)
        if self._rest is None:
            every = [(number, time) for rival in chain(self.aligned, *self.foreign) for number, time, _ in rival.blocks]
            runs = range(joint, self.runs)
            self._rest = sum(max((time for number, time in every if number == run), default=0) for run in runs)
        # only the set of all runs counts here
        longest: int = max(map(add, reversed(foreign), mine))
        return longest + self._rest

    def _foreign(self, window: int, joint: int) -> list[int]:
        """Return the most that sources of other phases delay the path, for each set of runs that they block."""
        if window not in self._known:
            best = [0] * (1 << joint)
            for rivals, loads in zip(self.foreign, self.loads, strict=True):
                if (window, joint) not in loads:
                    loads[window, joint] = _load(rivals, window, joint)
                best = _joined(best, loads[window, joint])
            self._known[window] = best
        return self._known[window]


_PARTS = [[part for part in range(mask + 1) if part & mask == part] for mask in range(1 << RUNS)]
"""The subsets (bits) of each set of runs."""


def _joined(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the largest sums of two delays for each set of runs, every run being blocked by one of them."""
    if len(one) == 1:
        return [one[0] + other[0]]
    return [max(one[mask ^ part] + other[part] for part in _PARTS[mask]) for mask in range(len(one))]


def _runs(system: PathSystem, path: Sequence[str]) -> dict[str, int]:
    """Return the number of the run of each task: consecutive tasks on a resource that segments may block."""
    found: dict[str, int] = {}
    number, before = -1, 0
    for name in path:
        group = system.groups[name]
        if system.single[name] and any(task.segment for task in group):
            number += id(group) != before
            found[name] = number
        before = id(group)
    return found


@dataclass(slots=True)
class _View:
    """A rival before finish times are known: fields as of `Rival`, blocks with the names of the tasks that they delay.

    `source`: the group of sources of one phase that it belongs to, empty for the path's own.
    """

    name: str
    source: str
    wcet: int
    switch: int
    period: int
    shift: int
    latest: int
    blocks: list[tuple[int, int, str]]
    own: bool
    first: int | None
    _rivals: dict[tuple[int, ...], Rival] = field(default_factory=dict)

    def rival(self, system: PathSystem, path: Path, finish: Mapping[str, int]) -> Rival:
        """Return the rival with these finish times."""
        begins = [-NEVER if self.source else ends(system, path, name, finish) for _, _, name in self.blocks]
        key = (finish[self.name], *begins)
        if key not in self._rivals:
            blocks = tuple((run, time, begin) for (run, time, _), begin in zip(self.blocks, begins, strict=True))
            ways = (self.wcet, self.switch, self.period, self.shift, key[0], self.latest)
            self._rivals[key] = Rival(self.name, *ways, blocks, self.own, self.first)
        return self._rivals[key]


def _views(system: PathSystem, path: Path, start: int) -> tuple[int, list[_View]]:
    """Return a path's own time (ns) from its task `start` on, and all tasks of the resources that it takes there."""
    tasks = system.tasks
    head = tasks[path.tasks[0]]
    hops: dict[int, list[str]] = {}
    for name in path.tasks[start:]:
        hops.setdefault(id(system.groups[name]), []).append(name)
    alone, run_of = path.source.jitter if path.late and not start else 0, _runs(system, path.tasks[start:])
    found = []
    for names in hops.values():
        group = system.groups[names[0]]
        lanes = max(len(tasks[name].lanes) for name in names)
        events = 1 if system.single[names[0]] else 2 * lanes
        switch = max(task.switch for task in group)
        alone += sum(tasks[name].wcet for name in names) + (len(names) - 1) * events * switch
        for task in group:
            same = system.sources[task.name] == system.sources[head.name] and task.period == head.period
            fixed = same and (not task.sporadic or task.offset == head.offset)
            loose = not fixed and (same or task.sporadic)
            key = "" if fixed else f"task {task.name}" if loose else f"{system.sources[task.name]} {task.period}"
            found.append(_view(system, task, path, names, run_of, key, events * switch))
    return alone, found


def _view(
    system: PathSystem,
    task: RtTask,
    path: Path,
    names: Sequence[str],
    run_of: Mapping[str, int],
    source: str,
    switch: int,
) -> _View:
    """Return a task of a resource as the path's tasks `names` on it see it."""
    group, fixed = system.groups[task.name], not source
    hops = [system.tasks[name] for name in names]
    one = system.single[task.name]
    near = hops if one else [hop for hop in hops if hop.lanes & task.lanes]
    ordered = one or all(other.preemption == "full" for other in group)
    latest = latest_release(system, task, hops if one else near or hops, path, fixed) if ordered else -NEVER
    blocks: dict[int, str] = {}
    if one and task.segment:
        for hop in reversed([hop for hop in hops if hop.name in run_of]):
            blocks[run_of[hop.name]] = hop.name
    end = path.tasks[-1]
    return _View(
        name=task.name,
        source=source,
        wcet=task.wcet if near else 0,
        switch=switch,
        period=task.period,
        shift=task.offset - path.source.offset,
        latest=latest,
        blocks=[(run, task.segment + task.switch, name) for run, name in blocks.items()],
        own=fixed and task.name in path.tasks,
        first=0 if fixed and (task.name == end or task.name in system.later[end]) else None,
    )


def latest_release(system: PathSystem, task: RtTask, hops: Sequence[RtTask], path: Path, fixed: bool) -> int:
    """Return the latest release, after the path's, of a job that goes before one of `hops`; `NEVER` if none does.

    `fixed`: counted from the nominal arrival at the path's source, else from the begin of its window.
    """
    if system.deadlines is None:
        return -NEVER if any(task.priority <= hop.priority for hop in hops) else NEVER
    source = path.source
    lateness = 0 if source.timer or not (path.late or fixed) else source.jitter
    due = max(
        # a job is due by the latest of its releases, and counts from the oldest, which may be the path's
        system.deadlines[hop.name] + min(hop.offset - source.offset + hop.release_jitter, hop.due_later + lateness)
        for hop in hops
    )
    return due - system.deadlines[task.name]


def frames(rival: Rival, phase: int, window: int) -> Iterator[tuple[int, int]]:
    """Yield the frames of a rival that may run within a window, and their releases after its begin (ns)."""
    at, period = phase + rival.shift, rival.period
    frame = -((at + rival.finish - 1) // period)
    at += frame * period
    while at < window and (rival.first is None or frame < rival.first):
        if frame or not rival.own:
            yield frame, at
        at, frame = at + period, frame + 1


def _at(rivals: Sequence[Rival], window: int, joint: int, counted: bool = True) -> list[int]:
    """Return the delay by the path's own sources, for each set (bits) of runs of which they block the longest.

    Unless `counted`, only blocking.
    """
    total, blocked = 0, [0] * joint
    for rival in rivals:
        last = window - 1 if rival.first is None else min(window - 1, rival.shift + (rival.first - 1) * rival.period)
        if counted:
            total += _interference(rival, rival.shift, window, last)
            if rival.own and -rival.finish < rival.shift <= min(rival.latest, last):  # frame 0 is the path's
                total -= min(rival.wcet, rival.shift + rival.finish, window - rival.shift) + rival.switch
        if joint and rival.blocks:
            at = _after(rival, max(rival.latest, -rival.finish))
            for run, time, begin in rival.blocks:
                if run < joint and at <= last and at < begin:
                    blocked[run] = max(blocked[run], time)
    return _by_set(total, blocked)


def _after(rival: Rival, at: int) -> int:
    """Return the first release of a competing frame of a rival after `at`, with the path at 0 (ns)."""
    found = at + 1 + (rival.shift - at - 1) % rival.period
    return found + rival.period if rival.own and found == rival.shift else found


def _by_set(total: int, blocked: Sequence[int]) -> list[int]:
    """Return `total` and what blocks the runs of a set, for every set (bits)."""
    found = [total]
    for time in blocked:
        found += [value + time for value in found]
    return found


def _load(rivals: Sequence[Rival], window: int, joint: int) -> list[int]:
    """Return the largest delay by sources of any phase, for each set of runs of which they block the longest.

    The delay is piecewise linear in the phase; its maximum lies where a piece begins or ends.
    """
    period = rivals[0].period
    phases = {(at - rival.shift) % period for rival in rivals for at in _steps(rival, window)}
    most: dict[tuple[int, ...], int] = {}  # by what blocks each run
    for phase in phases:
        total, blocked = 0, [0] * joint
        for rival in rivals:
            total += _interference(rival, phase + rival.shift, window, window - 1)
            if joint and rival.blocks:
                newest = window - 1 - (window - 1 - phase - rival.shift) % period
                if newest > max(rival.latest, -rival.finish):
                    for run, time, _ in rival.blocks:
                        if run < joint:
                            blocked[run] = max(blocked[run], time)
        key = tuple(blocked)
        most[key] = max(most.get(key, 0), total)
    best = [0] * (1 << joint)
    for key, total in most.items():
        best = list(map(max, best, _by_set(total, key)))
    return best


def _steps(rival: Rival, window: int) -> list[int]:
    """Return the releases of a rival's job at which its delay may stop growing, or begins to fall."""
    last = min(rival.latest, window - 1)
    steps = []
    if last > -rival.finish:
        steps = [last]
        steps += [at for at in (rival.wcet - rival.finish, window - rival.wcet) if at < last]
        if rival.switch:
            steps.append(1 - rival.finish)
    if rival.blocks:
        steps += [window - 1, max(rival.latest, -rival.finish) + 1]
    return steps


def _interference(rival: Rival, at: int, window: int, last: int) -> int:
    """Return how long jobs of a rival, one released at `at`, none after `last`, run before the path within a window.

    All take their WCET but those that end soon after the window's begin or are released shortly before its end.
    """
    period, wcet, finish = rival.period, rival.wcet, rival.finish
    last = min(rival.latest, last)
    at -= (at + finish - 1) // period * period  # the oldest that may not have ended
    if at > last:
        return 0
    total = ((last - at) // period + 1) * (wcet + rival.switch)
    newest = last - (last - at) % period
    while at <= newest and at + finish < wcet:
        total -= wcet - min(at + finish, window - at)
        at += period
    while newest >= at and window - newest < wcet:
        total -= wcet - (window - newest)
        newest -= period
    return total


def ends(system: PathSystem, path: Path, name: str, finish: Mapping[str, int]) -> int:
    """Return the latest end (ns) of a task of the path after the arrival of the path; the last is not known yet."""
    later = system.tasks[name].offset - path.source.offset
    return -NEVER if name == path.tasks[-1] else finish[name] + later


OWN_SPANS = 20
"""Steps of the iteration over the jobs of a path's own sources after which it keeps its bound."""
OWN_JOBS = 48
"""Jobs of a path's own sources in a window that are examined one by one; a longer window keeps its bound."""


def by_last_delay(system: PathSystem, path: Path, finish: Mapping[str, int], whole: Window, limit: int) -> int | None:
    """Return the longest response of a path by the job of its own sources that delays it last; None from `limit` on.

    That job ends at a known time after the release, and what follows is delayed by other jobs only.  Jobs for which
    this is worse than their execution times are charged with these, one after the other.
    """
    most, span = limit - whole.origin, whole.alone + 1
    if not any(True for rival in whole.aligned for _ in frames(rival, 0, most + whole.later)):
        return None  # the same equation as for `whole`
    rivals = [_aligned_rival(system, path, finish, rival) for rival in whole.aligned]
    parts: dict[int, Window | None] = {0: whole}
    for _ in range(OWN_SPANS):
        jobs = _aligned_jobs(rivals, span + whole.later)
        if len(jobs) > OWN_JOBS:
            return None
        found = _last_delay(system, path, finish, parts, jobs, span, most)
        if found is None or found <= span:
            return None if found is None else found + whole.origin
        span = found
    return None


def _last_delay(
    system: PathSystem,
    path: Path,
    finish: Mapping[str, int],
    parts: dict[int, Window | None],
    jobs: Sequence[_OwnJob],
    span: int,
    most: int,
) -> int | None:
    """Return the longest window if only `jobs` of its own sources, all within a `span`, delay it; None from `most`."""
    fixed = sum(job.switch for job in jobs)
    free, best, charged = [job for job in jobs if job.wcet], most, 0
    lengths: dict[int, int] = {}  # they grow with what is charged
    while True:
        for start in sorted({0, *(job.first for job in free)}):
            if start not in parts:
                parts[start] = Window.of(system, path, finish, start)
            part = parts[start]
            length = part.length(fixed + charged, span, most, lengths.get(start, 0)) if part else None
            lengths[start] = most if length is None else length
            if lengths[0] >= best:
                return best if best < most else None
        worst, by = lengths[0], None
        for job in free:
            if job.end + lengths[job.first] > worst:
                worst, by = job.end + lengths[job.first], job
        best = min(best, worst)
        if by is None:
            return best if best < most else None
        charged += min(by.wcet, by.end)
        free.remove(by)


@dataclass(frozen=True, slots=True)
class _OwnJob:
    """A job of the path's own sources that may delay it: its latest end (ns), and the first of the tasks it delays."""

    end: int
    wcet: int
    switch: int
    first: int


@dataclass(frozen=True, slots=True)
class _Aligned:
    """A rival of the path's own sources.

    `hops`: of each task that it may delay, the index, the latest release of a job that goes before it, the latest end
    (ns), and the first frame that does not compete, as the task triggers it; `preempts`: it may preempt jobs that hold
    other lanes; `blocks`: one that has begun holds its lanes for a segment.
    """

    rival: Rival
    hops: tuple[tuple[int, int, int, float], ...]
    preempts: bool
    blocks: bool


def _aligned_rival(system: PathSystem, path: Path, finish: Mapping[str, int], rival: Rival) -> _Aligned:
    key = rival.name, path
    one = system.single[rival.name]
    if key not in system.ahead:
        task, group = system.tasks[rival.name], system.groups[rival.name]
        full = all(other.preemption == "full" for other in group)
        system.ahead[key] = [
            (index, latest_release(system, task, [system.tasks[name]], path, True) if one or full else -NEVER, name)
            for index, name in enumerate(path.tasks)
            if system.groups[name] is group and (one or system.tasks[name].lanes & task.lanes)
        ]
    hops = tuple(
        # Frames of a task come in order: frame 0, or a later one, of what `name` triggers starts after the path's own
        # job of `name` has ended.
        (index, latest, ends(system, path, name, finish), 0 if rival.name in {name, *system.later[name]} else math.inf)
        for index, latest, name in system.ahead[key]
    )
    return _Aligned(rival, hops, not one, one and bool(system.tasks[rival.name].segment))


def _aligned_jobs(rivals: Sequence[_Aligned], span: int) -> list[_OwnJob]:
    """Return the jobs released within a `span` that may delay the path."""
    found = []
    for each in rivals:
        rival = each.rival
        for frame, at in frames(rival, 0, span):
            near = [(index, latest) for index, latest, end, done in each.hops if at < end and frame < done]
            first = next((index for index, latest in near if at <= latest), None)
            if first is not None and each.blocks:  # tasks before that one are delayed, too, if it has begun
                first = near[0][0]
            if first is not None:
                found.append(_OwnJob(at + rival.finish, rival.wcet, rival.switch, first))
            elif at <= rival.latest and each.preempts:
                found.append(_OwnJob(at + rival.finish, 0, rival.switch, 0))
    return found
