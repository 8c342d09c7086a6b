"""The simulation kernel: events, dispatching, progress and contention over flat int64 tables.

One source in the Python that Cython understands: compiled if a C compiler is available (`sim.build`), interpreted
otherwise, with identical results to the nanosecond.  `sim.lower` makes the tables, `sim.results` reads the outcome.

Semantics.  All events of one instant are handled before any dispatching: first faults begin and end, then jobs complete
(by task), sensors release, timers release, the controllers of the board and of policies run, jobs are aborted, budgets
and quanta expire, and time-dependent laxities are re-evaluated.  A task serves its frames in order, one job at a time.

Layers.  One class per subject, each derived from the previous: `tables`, `job_pool`, `state`, `accounting`,
`reservations`, `fair_share`, `progress`, `orders`, `slots`, `jobs`, `queues`, `corunning`, `dispatching`,
`slack_stealing`, `controllers`, and the loop here.  Each layer creates the state it adds; its .pxd declares the types,
and which methods may raise (because they call Python or write a row).
"""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import equal
    from cython.cimports.socsched_kernel.codes import ABORTED, FAR, LATE_ABORT, LOST_FRAME, SEGMENT, UNFINISHED
    from cython.cimports.socsched_kernel.controllers import Controllers
    from cython.cimports.socsched_kernel.events import EventQueue
else:
    from .arithmetic import equal
    from .codes import ABORTED, FAR, LATE_ABORT, LOST_FRAME, SEGMENT, UNFINISHED
    from .controllers import Controllers
    from .events import EventQueue


class Kernel(Controllers):
    """One simulation: call `run_events` until its end, then `close`.

    `tables`: flat arrays by name (`sim.lower`).  `hooks`: infrequent calls from the kernel into Python
    (`sim.callbacks.Callbacks`): `resolve_contention(key)` (durations in ns of segments that draw on the DRAM together),
    `draw_numbers(stream)` (random numbers), `apply_faults(now)` and `run_controllers(now, counters, traffic)` (faults;
    control by the board and by policies; both change the tables and return the next instant and the changed engines),
    `compute_keys(unit, task, ...)` (keys of policies written in Python).  `record`: whether rows are kept for a trace;
    figures always are.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.s_nominal = self.fill(self.sources, 0)
        self.s_base = self.fill(self.sources, 0)
        self.s_delayed = self.fill(self.sources, 0)
        self.now = self.event_count = 0
        self.next_fault = tables["numbers"]["first_fault"]
        source: i64
        for source in range(self.sources):
            self.s_base[source] = self.s_offset[source]
            self.schedule_release(source, 0)
        if tables["numbers"]["first_control"] < FAR:
            self.events.set(self.control_event, tables["numbers"]["first_control"])

    def run_events(self, most: i64) -> bool:
        """Handle up to about `most` events; return whether any remain."""
        events: EventQueue = self.events
        until: i64 = self.event_count + most
        while self.event_count < until:
            now: i64 = events.times[0]
            if self.next_fault < now:
                now = self.next_fault
            if self.next_sample < now and self.next_sample <= self.end:
                # nothing else is due, and samples by controllers seldom change anything
                self.now = self.next_sample
                self.event_count += 1
                self.sample_controllers(self.now)
                if self.dirty_count and self.now < self.end:
                    self.settle(self.now)
                continue
            if now > self.end:
                return False
            self.now = now
            if self.next_fault == now:
                self.apply_faults(now)
            while events.times[0] == now:
                if self.next_sample == now and events.heap[0] > self.control_event:
                    self.event_count += 1
                    self.sample_controllers(now)
                self.event_count += 1
                self.handle_event(events.heap[0], now)
            if self.next_sample == now:
                self.event_count += 1
                self.sample_controllers(now)
            if now < self.end:
                self.settle(now)
        return True

    def handle_event(self, source: i64, now: i64) -> None:
        """Dispatch the event of a source to its handler."""
        if source < self.tasks:
            if self.u_corun[self.unit[source]] and self.corunner[self.unit[source]] == source:
                self.end_corun_segment(source, now)
            else:
                self.complete_segment(source, now)
        elif source < self.control_event:
            self.release_frame(source - self.tasks, now)
        elif source == self.control_event:
            self.run_controllers(now)
        elif source < self.budget_event0:
            self.abort_late(source - self.abort_event0, now)
        elif source < self.quantum_event0:
            self.expire_budget(source - self.budget_event0, now)
        elif source < self.tick_event0:
            self.expire_quantum(source - self.quantum_event0, now)
        elif self.dispatch_at[source - self.tick_event0] > now:
            self.events.set(source, self.dispatch_at[source - self.tick_event0])
        else:
            self.events.set(source, FAR)
            self.mark_dirty(source - self.tick_event0)

    def list_ready(self, u: i64) -> list[tuple[int, ...]]:
        """Return the jobs at a unit in the present order, each as the fields of `sim.policies.ReadyJob`."""
        found: list[tuple[int, ...]] = []
        i: i64
        for i in range(self.order_length[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            if t < self.tasks:
                job: i64 = self.job[t]
                found.append((
                    t, self.j_frame[job], self.j_activation[job], self.j_release[job], self.j_deadline[job],
                    self.j_start[job], self.get_executed(t, self.now), self.get_remaining(t, self.now), self.running[t],
                ))  # fmt: skip
        return found

    def get_next_release(self, source: i64) -> tuple[int, int]:
        """Return the nominal instant (ns) and the number of a source's next frame."""
        return self.s_due[source], self.s_frame[source]

    def get_time(self) -> int:
        """Return the last instant handled (ns)."""
        return self.now

    def schedule_release(self, source: i64, frame: i64) -> None:
        """Schedule the release of a frame: its nominal instant plus jitter, never before its predecessor."""
        if self.s_loop[source] and frame:
            nominal: i64 = self.s_due[source] + self.s_period[source]
            if self.s_gap[source]:
                nominal += self.draw_random(self.s_stream[source]) % (self.s_gap[source] + 1)
        elif self.s_gap[source] and frame:
            nominal = (
                self.s_nominal[source]
                + self.s_period[source]
                + self.draw_random(self.s_stream[source]) % (self.s_gap[source] + 1)
            )
        else:
            nominal = self.s_base[source] + frame * self.s_period[source]
        self.s_nominal[source] = nominal
        instant: i64 = nominal
        if self.s_jitter[source]:
            instant += self.draw_random(self.s_stream[source]) % (self.s_jitter[source] + 1)
        if instant < self.s_last[source]:
            instant = self.s_last[source]
        self.s_last[source] = instant
        # arrival jitter moves the release; release jitter after it leaves deadlines unchanged
        self.s_due[source] = nominal if self.s_jitter_after[source] else instant
        # after a delayed frame, the next one may be due already
        if instant < self.now:
            instant = self.now
        self.s_frame[source] = frame
        if self.s_loop[source] and self.s_ended[source] < frame:
            self.s_waits[source] = 1
            instant = FAR
        self.events.set(self.tasks + source, instant if instant < self.end else FAR)

    def release_frame(self, source: i64, now: i64) -> None:
        """Release the frame that is due, or delay it once because of a fault."""
        if self.s_delay[source] and not self.s_delayed[source]:
            self.s_delayed[source] = 1
            instant: i64 = now + self.s_delay[source]
            self.events.set(self.tasks + source, instant if instant < self.end else FAR)
        else:
            self.s_delayed[source] = 0
            self.emit_frames(source, now)

    def emit_frames(self, source: i64, now: i64) -> None:
        """Release a frame of a sensor or timer, or several in a burst."""
        if self.high and self.live == 0:
            self.high = 0
        extra: i64 = self.s_burst[source]
        at: i64 = self.s_due[source]
        i: i64
        while True:
            frame: i64 = self.s_frame[source]
            lost: i64 = self.s_lost[source] > 0
            if self.has_chains:
                self.chains.record_release(source, at, lost)
            if self.record:
                self.write_release(source, at)
            if lost:
                self.record_instant(now, LOST_FRAME, self.tasks + source, frame, 0)
            else:
                self.latest[self.tasks + source] = frame
                for i in range(self.s_successors0[source], self.s_successors0[source] + self.s_successors[source]):
                    self.deliver(self.successors[i], frame, at, now)
            if extra <= 0:
                break
            extra -= 1
            # one extra frame: later frames keep their instants, and their numbers increase by one
            self.s_frame[source] = frame + 1
            self.s_base[source] -= self.s_period[source]
        self.s_burst[source] = 0
        self.schedule_release(source, self.s_frame[source] + 1)

    def complete_segment(self, t: i64, now: i64) -> None:
        """Handle the end of a task's overhead (such as a switch) or of its segment."""
        self.events.set(t, FAR)
        self.close_slice(t, now)
        u: i64 = self.unit[t]
        if self.u_corun[u]:
            self.stop_corunning(u, now)
            self.corun_closed[u] = 0
            self.mark_dirty(u)
        if self.overhead[t]:
            self.overhead[t] = 0
            self.begin_segment(t, now)
        else:
            if self.on_dram[t]:
                self.leave_dram(t)
            self.current[t] += 1
            if self.current[t] == self.count[t]:
                self.complete_job(t, now)
            else:
                self.continue_job(t, self.first[t] + self.current[t], now)

    def continue_job(self, t: i64, g: i64, now: i64) -> None:
        """Continue a job with its next segment."""
        u: i64 = self.unit[t]
        if self.t_over[t] and self.current[t] == self.t_count[t] and self.first[t] == self.t_first[t]:
            self.up[t], self.down[t] = self.over_up[t], self.over_down[t]
            self.raise_level(t, now)
        self.load_segment(t, g)
        if self.g_unit[g] != u or (self.width[t] == 0 and not equal(self.g_mask[g], self.mask[t])):
            self.move_job(t, g, now)
        elif self.u_preemption[u] == SEGMENT:
            if self.u_in_flight[u] <= 1 or 0 <= self.launch_limit[t] <= self.current[t]:
                self.unlock(t)
            else:
                self.begin_segment(t, now)
            self.mark_dirty(u)
            if self.u_quantum[u] and self.quantum_end[t] <= now:
                self.quantum_end[t] = 0
                self.requeue(t, now)
        else:
            self.begin_segment(t, now)

    def abort_late(self, t: i64, now: i64) -> None:
        """Abort a job that reaches its deadline."""
        self.events.set(self.abort_event0 + t, FAR)
        if self.job[t] >= 0:
            self.record_instant(now, LATE_ABORT, t, self.j_frame[self.job[t]], 0)
            self.remove_job(t, now, ABORTED)

    def expire_quantum(self, t: i64, now: i64) -> None:
        """Pass the slots to another job at the end of a quantum."""
        self.events.set(self.quantum_event0 + t, FAR)
        self.quantum_end[t] = 0
        if self.running[t] and self.queued[t]:
            u: i64 = self.unit[t]
            if self.order_length[u] > self.running_count[u]:
                self.requeue(t, now)
            # with no job waiting, quanta elapse unrecorded; they are brought up to date when slots are assigned
            # (`resume_quanta`)
            self.quantum_end[t] = now + self.u_quantum[u]

    def expire_budget(self, t: i64, now: i64) -> None:
        """Throttle a task that has used up its budget until its reservation's deadline; then replenish the budget."""
        self.events.set(self.budget_event0 + t, FAR)
        waits: i64 = 0
        if not self.throttled[t]:
            self.throttled[t] = 1
            if self.running[t]:
                self.preempt_claim(t, now)
            if self.queued[t]:
                self.remove_claim(t)
            waits = self.server_deadline[t] > now
        if waits:
            self.events.set(self.budget_event0 + t, self.server_deadline[t])
        else:
            self.throttled[t] = 0
            self.server_deadline[t] = (
                self.server_deadline[t] if self.server_deadline[t] > 0 else now
            ) + self.t_server_period[t]
            self.budget[t] = self.t_budget[t]
            if self.job[t] >= 0 and not self.queued[t]:
                self.enqueue(t, now)

    def apply_faults(self, now: i64) -> None:
        """Handle the start or end of a fault: Python changes the tables, running jobs adapt."""
        e: i64
        following, engines, hog, hog_rate = self.hooks.apply_faults(now)
        self.next_fault = following
        self.hog = hog
        self.hog_rate = hog_rate
        self.dram_changed = 1
        for e in engines:
            self.charge_busy(e, now)
            self.adapt_engine(e, now)

    def run_controllers(self, now: i64) -> None:
        """Run the due controllers of the board and of policies in Python."""
        e: i64
        for e in range(self.engines):
            self.charge_busy(e, now)
        self.update_meters(now)
        following, engines = self.hooks.run_controllers(now, self.counters, self.traffic)
        self.events.set(self.control_event, following)
        for e in engines:
            self.adapt_engine(e, now)

    def close(self, end: i64) -> dict[str, Any]:
        """End the simulation at `end` (ns) and return its results, as plain arrays and numbers by name."""
        t: i64
        c: i64
        e: i64
        overdue = array("q", bytes(8 * max(self.tasks, 1)))
        for t in range(self.tasks):
            for c in (t, self.tasks + t):
                self.close_slice(c, end)
            job: i64 = self.job[t]
            if job >= 0 and self.blocked_since[t] >= 0:
                self.j_blocked[job] += end - self.blocked_since[t]
            while job >= 0:
                if self.j_deadline[job] <= end:
                    overdue[t] += 1
                    self.record_instant(self.j_deadline[job], UNFINISHED, t, self.j_frame[job], 0)
                self.add_totals(t, job)
                if self.record:
                    self.write_job(t, job, -1, 0)
                job = self.head[t] if job == self.job[t] else self.j_next[job]
            while self.batch[t] >= 0:
                job = self.batch[t]
                self.batch[t] = self.j_next[job]
                if self.j_deadline[job] <= end:
                    overdue[t] += 1
                    self.record_instant(self.j_deadline[job], UNFINISHED, t, self.j_frame[job], 0)
                self.add_totals(t, job)
                if self.record:
                    self.write_job(t, job, -1, 0)
        for e in range(self.units):
            self.stop_corunning(e, end)
        for e in range(self.engines):
            self.charge_busy(e, end)
        self.power_now, self.rate = self.metered_power, self.metered_rate
        self.update_meters(end)
        return {**self.collect_figures(end), "overdue": overdue, "events": self.event_count}
