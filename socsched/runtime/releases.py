"""Releases at absolute times, so that lateness does not accumulate, or as soon as there is room."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from socsched.planning.plan import Plan
from socsched.runtime import realtime, timetable
from socsched.runtime.arrivals import Arrivals
from socsched.runtime.executor_state import LOOK_S, Hub
from socsched.runtime.frames import FrameSource
from socsched.runtime.injector import Injector
from socsched.runtime.options import Options
from socsched.runtime.overheads import RELEASE
from socsched.runtime.prewake import REHEARSAL_NS

_PRIORITY = 90
"""SCHED_FIFO priority of the release thread: it only sleeps and releases, and no running job may delay a release."""
_LOOK_NS = int(LOOK_S * 1e9)
_YIELD_S = 1e-4
"""Time for workers to start the released jobs before this thread takes the interpreter lock for bookkeeping."""


class Releases:
    """The thread that releases the frames of a run until `horizon_ns`; with `asap`, as soon as there is room.

    With `alone` and `asap` it does its bookkeeping only when no frame is in progress.
    """

    def __init__(
        self,
        hub: Hub,
        plan: Plan,
        feeds: Mapping[str, FrameSource],
        options: Options,
        injector: Injector,
        horizon_ns: int,
        asap: bool,
        alone: bool = False,
    ) -> None:
        self.broken: BaseException | None = None
        self._hub, self._plan, self._feeds, self._options, self._injector = hub, plan, feeds, options, injector
        self._horizon, self._asap, self._alone = horizon_ns, asap, alone
        self._groups: deque[list[Any]] = deque()
        self._late = {name: RELEASE + name for name in timetable.names(plan)}
        self._ended = threading.Event()
        self._allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        self._thread = threading.Thread(target=self._run, name="release", daemon=True)

    def run(self, meanwhile: Callable[[], None]) -> None:
        """Release all frames in a separate thread, and call `meanwhile` in this one periodically."""
        self._thread.start()
        while not self._ended.wait(LOOK_S / 2) and not self._hub.over:
            meanwhile()
        self._thread.join()

    def _run(self) -> None:
        try:
            realtime.fine_timers()
            if self._options.realtime not in ("off", "auto"):
                realtime.set_fifo(_PRIORITY)
            realtime.short_turns()
            if self._options.arrivals is not None:
                self._arriving(self._options.arrivals)
                return
            for group in timetable.releases(self._plan, self._horizon):
                if not self._group(group):
                    break
        except BaseException as error:
            self.broken = error
        finally:
            self._ended.set()

    def _arriving(self, arrivals: Arrivals) -> None:
        """Release frames as they arrive, until there are no more; their deadlines count from their arrival."""
        hub = self._hub
        while not hub.over and not arrivals.closed:
            arrival = arrivals.next(LOOK_S)
            if arrival is None:
                continue
            name, number, frame = arrival.sensor, arrival.number, arrival.frame
            nominal = arrival.time_ns - hub.origin_ns
            with hub.guard:
                now = hub.now()
                if frame.problem:
                    hub.dispatcher.lose(name, number, nominal, frame.problem)
                else:
                    hub.dispatcher.release(name, number, nominal, now, frame.outputs)
                hub.dispatch()
            time.sleep(_YIELD_S)
            hub.write()
            self._note(name, number, nominal, now, frame)

    def _group(self, group: list[timetable.Release]) -> bool:
        """Release the frames of one instant; return False if the run must end now."""
        hub, injector = self._hub, self._injector
        names = [name for _, name, _ in group]
        frames = {name: self._feeds[name].frame(number) for _, name, number in group if name in self._feeds}
        lost = {name for nominal, name, _ in group if not self._asap and injector.loses(name, nominal)}
        if not (self._wait_for_room() if self._asap else self._sleep(group[0][0], names)):
            return False
        if self._asap and self._options.in_flight == 1 and hub.collector is not None:
            hub.collector.drain()
        with hub.guard:
            now = hub.now()
            known = set(hub.dispatcher.ledger.open) if self._asap else ()
            for nominal, name, number in group:
                frame, nominal = frames.get(name), now if self._asap else nominal
                if frame is not None and frame.problem:
                    hub.dispatcher.lose(name, number, nominal, frame.problem)
                elif name in lost or (self._asap and injector.loses(name, nominal)):
                    hub.dispatcher.lose(name, number, nominal, "dropout, as specified in the faults file")
                else:
                    hub.dispatcher.release(name, number, nominal, now, frame.outputs if frame else {})
            hub.dispatch()
            if self._asap:
                self._groups.append([t for t in hub.dispatcher.ledger.open if t not in known])
        if self._alone and self._asap:
            self._wait_for_room()  # a measured stage must not wait for the interpreter lock while this thread writes
        else:
            time.sleep(_YIELD_S)
        hub.write()
        for nominal, name, number in group:
            self._note(name, number, now if self._asap else nominal, now, frames.get(name))
        return True

    def _note(self, name: str, number: int, nominal: int, now: int, frame: Any) -> None:
        """Record the lateness of a release and the contents of its frame."""
        hub = self._hub
        if now > nominal:
            hub.dispatcher.trace.counters.setdefault(self._late[name], []).append((nominal, float(now - nominal)))
        if frame is not None and hub.collector is not None and ("points" in frame.outputs or frame.problem):
            points = {"points": len(frame.outputs["points"])} if frame.outputs else {"problem": frame.problem}
            hub.collector.note(number, input=frame.title, **points)

    def _sleep(self, until_ns: int, names: list[str]) -> bool:
        """Sleep until the release of `names` at `until_ns` of this run; return False if the run must end now."""
        hub, rehearsed = self._hub, False
        while not hub.over:
            now = hub.now()
            left = until_ns - now
            if left <= 0:
                return True
            if not rehearsed and left <= _LOOK_NS and (anticipation := hub.anticipation) is not None:
                rehearsed = True
                realtime.sleep_until(hub.origin_ns + until_ns - REHEARSAL_NS)
                at = hub.origin_ns + until_ns
                # awake or running workers keep their cores busy: on one of those this thread would miss the release
                awake = {cpu for name in names for cpu in anticipation.released(name, at, hub.dispatcher.seats)}
                realtime.stay_off((awake | hub.busy(), awake), self._allowed)
                for name in names:
                    if hub.rehearsal is not None:
                        hub.rehearsal.of(name, until_ns)
                continue
            realtime.sleep_until(hub.origin_ns + (until_ns if left <= _LOOK_NS else now + _LOOK_NS))
        return False

    def _wait_for_room(self) -> bool:
        """Wait until fewer frames than allowed are in progress; return False if the run must end now."""
        hub, most = self._hub, max(self._options.in_flight, 1)
        with hub.guard:
            while not hub.over:
                still = hub.dispatcher.ledger.open
                for group in [g for g in self._groups if not any(ticket in still for ticket in g)]:
                    self._groups.remove(group)
                if len(self._groups) < most:
                    return True
                hub.wait()
        return False
