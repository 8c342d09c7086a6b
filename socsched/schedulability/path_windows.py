"""Windows of whole paths: a job delays a path at most once, however many of the path's tasks it could delay.

A path is a sequence of tasks that trigger each other.  At each instant between its release and its end, its current job
runs or another job holds a lane that it needs; so the path takes its own execution times plus those of all jobs that
may do so within the window.  Sources with one phase are evaluated together, as the transactions of Tindell, "Adding
time-offsets to schedulability analysis", YCS 221, University of York 1994, and Palencia and González Harbour, RTSS
1998; paying a delay once along a path is due to Jayachandran and Abdelzaher, ECRTS 2007, and Schlatow and Ernst, RTAS
2016.  Bounds hold for any phases of sources that trigger no common task (docs/proofs.md, "Windows of paths").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from socsched.schedulability.path_last_delay import by_last_delay
from socsched.schedulability.path_rivals import Path, System, Window
from socsched.schedulability.tasks import Arrival, Response, RtTask, activation, topological

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
    tasks: Mapping[str, RtTask], deadlines: Mapping[str, int] | None, responses: Mapping[str, Response]
) -> dict[str, Response]:
    """Return the responses, shortened where windows of paths are shorter; `deadlines` (ns): under EDF, else None.

    All `responses` must hold together; those without a bound stay without.
    """
    system = System.of(tasks, deadlines)
    found = dict(responses)
    for _ in range(PASSES):
        finish = {name: response.value for name, response in found.items() if response.bounded}
        longest = _Longest(system, finish)
        least = _least(system, finish, longest)
        windows = least if least else finish
        for name in list(finish):
            answer = longest.of(name, windows)
            found[name] = _response(system, answer[1].tasks, answer[0], found, found[name]) if answer else found[name]
        if least or all(found[name].value == value for name, value in finish.items()):
            break  # a further pass would only confirm the least times
    finish = {name: response.value for name, response in found.items() if response.bounded}
    return {name: _settled(_since(system, name, response, finish), found) for name, response in found.items()}


def _since(system: System, name: str, response: Response, finish: Mapping[str, int]) -> Response:
    """Return a response with its bounds from the releases at its sources, if they are later than the nominal one."""
    task = system.tasks[name]
    if not task.release_jitter or not response.bounded:
        return response
    ends = []
    for path in paths_to(system, name):
        first = task.offset + response.value - path.source.offset  # what is known from the nominal arrival
        window = _window(system, replace(path, late=False), finish, first)
        ends.append((path.source, first if window is None else min(window + path.source.jitter, first), window))
    sources = {source.source for source, _, _ in ends}
    # Beside a sporadic or closed-loop source, frames of a join drift apart: nothing bounds how long one waits.
    if not ends or len(ends) > PATHS or (task.sporadic and len(sources) > 1):
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

    def __init__(self, system: System, most: Mapping[str, int]) -> None:
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


def _least(system: System, most: Mapping[str, int], longest: _Longest) -> dict[str, int] | None:
    """Return the least finish times that windows of paths confirm; None if they reach `most` nowhere below it."""
    finish: dict[str, int] = {}
    for name in topological(system.tasks):
        if name in most:
            finish[name] = activation(system.tasks[name], system.tasks, finish).jitter + system.tasks[name].wcet
    for _ in range(ROUNDS):
        before = dict(finish)
        for name in finish:
            found = longest.of(name, finish)
            finish[name] = most[name] if found is None else max(found[0], finish[name])
        if finish == before:
            return finish
    return None


def bounds(response: Response) -> bool:
    """Return whether a response is the window of a path."""
    return any(term == WITHIN for term, _ in response.terms)


def paths_to(system: System, name: str) -> list[Path]:
    """Return the paths from a source to a task, at most one more than `PATHS`."""
    if name not in system.paths:
        system.paths[name] = _paths_to(system, name)
    return system.paths[name]


def _paths_to(system: System, name: str) -> list[Path]:
    task = system.tasks[name]
    before = [other for other in task.after if other in system.tasks]
    arrivals = task.arrivals
    if not arrivals and len(before) < max(len(task.after), 1):
        arrivals = (Arrival("".join(o for o in task.after if o not in before), task.offset, task.release_jitter),)
    found = [Path((name,), arrival) for arrival in arrivals]
    for other in before:
        found += [replace(path, tasks=(*path.tasks, name)) for path in paths_to(system, other)]
        if len(found) > PATHS:
            break
    return found


def _longest(system: System, name: str, finish: Mapping[str, int], limit: int) -> tuple[int, Path] | None:
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


def _window(system: System, path: Path, finish: Mapping[str, int], limit: int) -> int | None:
    """Return the longest window of a path as it names it (ns), None from `limit` on."""
    whole = Window.of(system, path, finish)
    if whole is None:
        return None
    window = whole.end(limit)
    last = by_last_delay(system, path, finish, whole, limit if window is None else window)
    return window if last is None else last


def _response(
    system: System, path: tuple[str, ...], value: int, known: Mapping[str, Response], mine: Response
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
