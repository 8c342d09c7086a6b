"""The simulation kernel: events, dispatching, progress and contention over flat int64 tables.

One source in the Python that Cython understands: compiled if a C compiler is available (`sim.build`), interpreted
otherwise, with identical results to the nanosecond.  `sim.lower` makes the tables, `sim.results` reads the outcome.

Semantics.  All events of one instant are handled before any dispatching: first faults begin and end, then jobs complete
(by task), sensors release, timers release, the controllers of the board and of policies run, jobs are aborted, budgets
and quanta expire, and time-dependent laxities are re-evaluated.  A task serves its frames in order, one job at a time.

Layers.  One class per subject, each derived from the previous: `tables`, `slots`, `state`, `books`, `reservations`,
`credits`, `progress`, `orders`, `places`, `jobs`, `queues`, `guests`, `dispatching`, `slack`, `steering`, and the loop
here.  Each layer creates the state it adds; its .pxd declares the types, and which methods may raise (because they call
Python or write a row).
"""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import equal
    from cython.cimports.socsched_kernel.codes import ABORTED, FAR, LATE_ABORT, LOST_FRAME, SEGMENT, UNFINISHED
    from cython.cimports.socsched_kernel.events import EventQueue
    from cython.cimports.socsched_kernel.steering import Steered
else:
    from .arithmetic import equal
    from .codes import ABORTED, FAR, LATE_ABORT, LOST_FRAME, SEGMENT, UNFINISHED
    from .events import EventQueue
    from .steering import Steered


class Kernel(Steered):
    """One simulation: call `run_on` until its end, then `close`.

    `tables`: flat arrays by name (`sim.lower`).  `hooks`: infrequent calls from the kernel into Python: `stretch(uids,
    hog)` (duration in ns of each co-running segment), `draws(stream)` (random numbers), `edge(now)` and `control(now,
    books, traffic)` (faults; control by the board and by policies; both change the tables and return the changed
    engines), `asked(task, now, ...)` (keys of policies written in Python).  `record`: whether rows are kept for a
    trace; figures always are.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.s_nominal = self.fill(self.sources, 0)
        self.s_base = self.fill(self.sources, 0)
        self.s_held = self.fill(self.sources, 0)
        self.now = self.events_seen = 0
        self.edge_at = tables["numbers"]["first_edge"]
        source: i64
        for source in range(self.sources):
            self.s_base[source] = self.s_offset[source]
            self.expect(source, 0)
        if tables["numbers"]["first_control"] < FAR:
            self.events.set(self.from_control, tables["numbers"]["first_control"])

    def run_on(self, most: i64) -> bool:
        """Handle up to about `most` events; return whether any remain."""
        events: EventQueue = self.events
        until: i64 = self.events_seen + most
        while self.events_seen < until:
            now: i64 = events.times[0]
            if self.edge_at < now:
                now = self.edge_at
            if self.look_at < now and self.look_at <= self.end:
                # nothing else is due, and samples by controllers seldom change anything
                self.now = self.look_at
                self.events_seen += 1
                self.look(self.now)
                if self.dirts and self.now < self.end:
                    self.settle(self.now)
                continue
            if now > self.end:
                return False
            self.now = now
            if self.edge_at == now:
                self.edge(now)
            while events.times[0] == now:
                if self.look_at == now and events.heap[0] > self.from_control:
                    self.events_seen += 1
                    self.look(now)
                self.events_seen += 1
                self.handle(events.heap[0], now)
            if self.look_at == now:
                self.events_seen += 1
                self.look(now)
            if now < self.end:
                self.settle(now)
        return True

    def handle(self, source: i64, now: i64) -> None:
        """Dispatch the event of a source to its handler."""
        if source < self.tasks:
            if self.u_beside[self.unit[source]] and self.guest[self.unit[source]] == source:
                self.leave(source, now)
            else:
                self.complete(source, now)
        elif source < self.from_control:
            self.release(source - self.tasks, now)
        elif source == self.from_control:
            self.control(now)
        elif source < self.from_budget:
            self.expire(source - self.from_abort, now)
        elif source < self.from_turn:
            self.withhold(source - self.from_budget, now)
        elif source < self.from_tick:
            self.pass_on(source - self.from_turn, now)
        elif self.wakes[source - self.from_tick] > now:
            self.events.set(source, self.wakes[source - self.from_tick])
        else:
            self.events.set(source, FAR)
            self.soil(source - self.from_tick)

    def ready(self, u: i64) -> list[tuple[int, ...]]:
        """Return the jobs at a unit in the present order, each as the fields of `sim.policies.Ready`."""
        found: list[tuple[int, ...]] = []
        i: i64
        for i in range(self.ordered[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            if t < self.tasks:
                slot: i64 = self.job[t]
                ran: i64 = self.now - self.slice_from[t] if self.sliced[t] else 0
                found.append((
                    t, self.j_frame[slot], self.j_activation[slot], self.j_release[slot], self.j_deadline[slot],
                    self.j_start[slot], self.j_exec[slot] + ran, self.remaining(t, self.now), self.running[t],
                ))  # fmt: skip
        return found

    def expected(self, source: i64) -> tuple[int, int]:
        """Return the nominal instant (ns) and the number of a source's next frame."""
        return self.s_due[source], self.s_frame[source]

    def time(self) -> int:
        """Return the last instant handled (ns)."""
        return self.now

    def expect(self, source: i64, frame: i64) -> None:
        """Schedule the release of a frame: its nominal instant plus jitter, never before its predecessor."""
        if self.s_loop[source] and frame:
            nominal: i64 = self.s_due[source] + self.s_period[source]
            if self.s_gap[source]:
                nominal += self.draw(self.s_stream[source]) % (self.s_gap[source] + 1)
        elif self.s_gap[source] and frame:
            nominal = (
                self.s_nominal[source]
                + self.s_period[source]
                + self.draw(self.s_stream[source]) % (self.s_gap[source] + 1)
            )
        else:
            nominal = self.s_base[source] + frame * self.s_period[source]
        self.s_nominal[source] = nominal
        instant: i64 = nominal
        if self.s_jitter[source]:
            instant += self.draw(self.s_stream[source]) % (self.s_jitter[source] + 1)
        if instant < self.s_last[source]:
            instant = self.s_last[source]
        self.s_last[source] = instant
        # arrival jitter moves the release; release jitter after it leaves deadlines unchanged
        self.s_due[source] = nominal if self.s_behind[source] else instant
        # after a delayed frame, the next one may be due already
        if instant < self.now:
            instant = self.now
        self.s_frame[source] = frame
        if self.s_loop[source] and self.s_ended[source] < frame:
            self.s_waits[source] = 1
            instant = FAR
        self.events.set(self.tasks + source, instant if instant < self.end else FAR)

    def release(self, source: i64, now: i64) -> None:
        """Release the frame that is due, or delay it once because of a fault."""
        if self.s_delay[source] and not self.s_held[source]:
            self.s_held[source] = 1
            instant: i64 = now + self.s_delay[source]
            self.events.set(self.tasks + source, instant if instant < self.end else FAR)
        else:
            self.s_held[source] = 0
            self.emit(source, now)

    def emit(self, source: i64, now: i64) -> None:
        """Release a frame of a sensor or timer, or several in a burst."""
        extra: i64 = self.s_burst[source]
        at: i64 = self.s_due[source]
        i: i64
        while True:
            frame: i64 = self.s_frame[source]
            lost: i64 = self.s_lost[source] > 0
            if self.chained:
                self.chains.released(source, at, lost)
            if self.record:
                self.write_release(source, at)
            if lost:
                self.note(now, LOST_FRAME, self.tasks + source, frame, 0)
            else:
                self.latest[self.tasks + source] = frame
                for i in range(self.s_next0[source], self.s_next0[source] + self.s_next[source]):
                    self.deliver(self.nexts[i], frame, at, now)
            if extra <= 0:
                break
            extra -= 1
            # one extra frame: later frames keep their instants, and their numbers increase by one
            self.s_frame[source] = frame + 1
            self.s_base[source] -= self.s_period[source]
        self.s_burst[source] = 0
        self.expect(source, self.s_frame[source] + 1)

    def complete(self, t: i64, now: i64) -> None:
        """Handle the end of a task's prefix (such as a switch) or of its segment."""
        self.events.set(t, FAR)
        self.end_slice(t, now)
        u: i64 = self.unit[t]
        if self.u_beside[u]:
            self.part(u, now)
            self.sated[u] = 0
            self.soil(u)
        if self.prefix[t]:
            self.prefix[t] = 0
            self.begin(t, now)
        else:
            if self.drawing[t]:
                self.leave_memory(t)
            self.place[t] += 1
            if self.place[t] == self.count[t]:
                self.retire(t, now)
            else:
                self.go_on(t, self.first[t] + self.place[t], now)

    def go_on(self, t: i64, g: i64, now: i64) -> None:
        """Continue a job with its next segment."""
        u: i64 = self.unit[t]
        self.load(t, g)
        if self.g_unit[g] != u or (self.wide[t] == 0 and not equal(self.g_mask[g], self.mask[t])):
            self.hand_over(t, g, now)
        elif self.u_kind[u] == SEGMENT:
            if self.u_flight[u] <= 1 or 0 <= self.stop[t] <= self.place[t]:
                self.unlock(t)
            else:
                self.begin(t, now)
            self.soil(u)
            if self.u_quantum[u] and self.turn[t] <= now:
                self.turn[t] = 0
                self.requeue(t, now)
        else:
            self.begin(t, now)

    def expire(self, t: i64, now: i64) -> None:
        """Abort a job that reaches its deadline."""
        self.events.set(self.from_abort + t, FAR)
        if self.job[t] >= 0:
            self.note(now, LATE_ABORT, t, self.j_frame[self.job[t]], 0)
            self.kill(t, now, ABORTED)

    def pass_on(self, t: i64, now: i64) -> None:
        """Pass the turn to another job at the end of a quantum."""
        self.events.set(self.from_turn + t, FAR)
        self.turn[t] = 0
        if self.running[t] and self.listed[t]:
            u: i64 = self.unit[t]
            if self.ordered[u] > self.runs[u]:
                self.requeue(t, now)
            # with no job waiting, turns elapse unrecorded; they are brought up to date when lanes are assigned
            # (`resume_turns`)
            self.turn[t] = now + self.u_quantum[u]

    def withhold(self, t: i64, now: i64) -> None:
        """Throttle a task that has used up its budget until its reservation's deadline; then replenish the budget."""
        self.events.set(self.from_budget + t, FAR)
        waits: i64 = 0
        if not self.throttled[t]:
            self.throttled[t] = 1
            if self.running[t]:
                self.preempt(t, now)
            if self.listed[t]:
                self.unlist(t)
            waits = self.server[t] > now
        if waits:
            self.events.set(self.from_budget + t, self.server[t])
        else:
            self.throttled[t] = 0
            self.server[t] = (self.server[t] if self.server[t] > 0 else now) + self.t_server[t]
            self.budget[t] = self.t_budget[t]
            if self.job[t] >= 0 and not self.listed[t]:
                self.enlist(t, now)

    def edge(self, now: i64) -> None:
        """Handle the start or end of a fault: Python changes the tables, running jobs adapt."""
        e: i64
        following, engines, hog, hog_rate = self.hooks.edge(now)
        self.edge_at = following
        self.hog = hog
        self.hog_rate = hog_rate
        self.memory_changed = 1
        for e in engines:
            self.charge(e, now)
            self.adapt(e, now)

    def control(self, now: i64) -> None:
        """Run the due controllers of the board and of policies in Python."""
        e: i64
        for e in range(self.engines):
            self.charge(e, now)
        self.read_meters(now)
        following, engines = self.hooks.control(now, self.books, self.traffic)
        self.events.set(self.from_control, following)
        for e in engines:
            self.adapt(e, now)

    def close(self, end: i64) -> dict[str, Any]:
        """End the simulation at `end` (ns) and return its results, as plain arrays and numbers by name."""
        t: i64
        c: i64
        e: i64
        overdue = array("q", bytes(8 * max(self.tasks, 1)))
        for t in range(self.tasks):
            for c in (t, self.tasks + t):
                self.end_slice(c, end)
            slot: i64 = self.job[t]
            if slot >= 0 and self.blocked[t] >= 0:
                self.j_blocked[slot] += end - self.blocked[t]
            while slot >= 0:
                if self.j_deadline[slot] <= end:
                    overdue[t] += 1
                    self.note(self.j_deadline[slot], UNFINISHED, t, self.j_frame[slot], 0)
                self.add_up(t, slot)
                if self.record:
                    self.write_job(t, slot, -1, 0)
                slot = self.head[t] if slot == self.job[t] else self.j_next[slot]
            while self.mates[t] >= 0:
                slot = self.mates[t]
                self.mates[t] = self.j_next[slot]
                if self.j_deadline[slot] <= end:
                    overdue[t] += 1
                    self.note(self.j_deadline[slot], UNFINISHED, t, self.j_frame[slot], 0)
                self.add_up(t, slot)
                if self.record:
                    self.write_job(t, slot, -1, 0)
        for e in range(self.units):
            self.part(e, end)
        for e in range(self.engines):
            self.charge(e, end)
        self.load_now, self.rate = self.shown_load, self.shown_rate
        self.read_meters(end)
        return {**self.all_figures(end), "overdue": overdue, "events": self.events_seen}
