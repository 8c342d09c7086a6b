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

from socsched.planning.schedulability.path_last_delay import by_last_delay
from socsched.planning.schedulability.path_rivals import System, Window
from socsched.planning.schedulability.tasks import Response, RtTask, activation, topological

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
            found[name] = _response(system, answer[1], answer[0], found, found[name]) if answer else found[name]
        if least or all(found[name].value == value for name, value in finish.items()):
            break  # a further pass would only confirm the least times
    return {name: _settled(response, found) for name, response in found.items()}


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
        self._known: dict[str, tuple[list[int | None], tuple[int, tuple[str, ...]] | None]] = {}

    def of(self, name: str, finish: Mapping[str, int]) -> tuple[int, tuple[str, ...]] | None:
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


def paths_to(system: System, name: str) -> list[tuple[str, ...]]:
    """Return the paths from a source or timer to a task, at most one more than `PATHS`."""
    task = system.tasks[name]
    before = [other for other in task.after if other in system.tasks]
    found: list[tuple[str, ...]] = [] if before and len(before) == len(task.after) else [(name,)]
    for other in before:
        found += [(*path, name) for path in paths_to(system, other)]
        if len(found) > PATHS:
            break
    return found


def _longest(system: System, name: str, finish: Mapping[str, int], limit: int) -> tuple[int, tuple[str, ...]] | None:
    """Return the longest window of a path to a task (ns from its release) and the path; None from `limit` on."""
    paths = paths_to(system, name)
    if len(paths) > PATHS:
        return None
    windows = []
    for path in paths:
        found = Window.of(system, path, finish)
        if found is None:
            return None
        window = found.end(limit)
        last = by_last_delay(system, path, finish, found, limit if window is None else window)
        window = window if last is None else last
        if window is None:
            return None
        windows.append((window, path))
    return max(windows)


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
