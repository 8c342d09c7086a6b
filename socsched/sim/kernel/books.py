"""Accounting of a simulation: figures kept always, rows recorded for a trace on request, power and traffic."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import image, word
    from cython.cimports.socsched_kernel.codes import DONE, DROPPED, FAR
    from cython.cimports.socsched_kernel.records import Log
    from cython.cimports.socsched_kernel.state import State
    from cython.cimports.socsched_kernel.totals import Chains, Histograms
else:
    from .arithmetic import image, word
    from .codes import DONE, DROPPED, FAR
    from .records import Log
    from .state import State
    from .totals import Chains, Histograms

_COUNTS = ("done", "dropped", "aborted", "late", "released", "preempted", "migrated", "blocked")


class Books(State):
    """Counts per task, histograms, chains, and the meters of engines and memory."""

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        numbers = tables["numbers"]
        self.scale, self.picojoule, self.static = numbers["scale"], numbers["picojoule"], numbers["static"]
        self.books = {name: array("q", bytes(8 * max(self.tasks, 1))) for name in _COUNTS}
        self.books["spent"] = array("q", bytes(8 * max(self.engines * self.levels, 1)))
        self.done = self.own(self.books["done"])
        self.dropped = self.own(self.books["dropped"])
        self.aborted = self.own(self.books["aborted"])
        self.late = self.own(self.books["late"])
        self.released = self.own(self.books["released"])
        self.preempted = self.own(self.books["preempted"])
        self.migrated = self.own(self.books["migrated"])
        self.most_blocked = self.own(self.books["blocked"])
        self.spent = self.own(self.books["spent"])
        self.busy = self.fill(self.engines, 0)
        self.mark = self.fill(self.engines, 0)
        self.noted = self.fill(self.engines, self.levels - 1)
        self.load_now = self.shown_load = self.read_at = self.samples_made = 0
        self.guest_energy = 0.0
        self.rate = self.shown_rate = self.peak_rate = self.traffic = self.most_power = 0.0
        self.chains = Chains(tables)
        self.chained = self.chains.count > 0
        self.execs, self.responses = Histograms(self.tasks), Histograms(self.tasks)
        self.job_log, self.slice_log, self.note_log = Log(13), Log(6 + self.words), Log(5)
        self.step_log, self.depth_log, self.sample_log, self.release_log = Log(3), Log(3), Log(1), Log(2)
        self.level_log = Log(3)

    def charge(self, e: i64, now: i64) -> None:
        """Charge the lanes' busy time up to now at the present clock."""
        self.spent[e * self.levels + self.n_level[e]] += self.busy[e] * (now - self.mark[e])
        self.mark[e] = now

    def occupy(self, e: i64, lanes: i64, now: i64) -> None:
        """Mark lanes of an engine as busy from now on, or as idle if negative."""
        self.charge(e, now)
        self.busy[e] += lanes
        self.load_now += self.n_power[e * self.levels + self.n_level[e]] * lanes

    def read_meters(self, now: i64) -> None:
        """Account for power and traffic up to now, and record changes at this instant."""
        if now > self.read_at:
            self.traffic += self.shown_rate * (now - self.read_at)
            power: cython.double = self.static + self.shown_load / self.scale + self.shown_rate * self.picojoule
            if power > self.most_power:
                self.most_power = power
            if self.shown_rate > self.peak_rate:
                self.peak_rate = self.shown_rate
            self.read_at = now
        if self.record and (self.load_now != self.shown_load or self.rate != self.shown_rate):
            row: i64 = self.step_log.row()
            self.step_log.block[row] = now
            self.step_log.block[row + 1] = self.load_now
            self.step_log.block[row + 2] = image(self.rate)
        self.shown_load = self.load_now
        self.shown_rate = self.rate

    def note(self, now: i64, code: i64, subject: i64, frame: i64, value: i64) -> None:
        """Record an instant for the trace."""
        if self.record:
            row: i64 = self.note_log.row()
            self.note_log.block[row] = now
            self.note_log.block[row + 1] = code
            self.note_log.block[row + 2] = subject
            self.note_log.block[row + 3] = frame
            self.note_log.block[row + 4] = value

    def write_job(self, t: i64, slot: i64, finish: i64, status: i64) -> None:
        """Record a job for the trace (`sim.results`)."""
        log: Log = self.job_log
        at: i64 = log.row()
        log.block[at] = self.j_number[slot]
        log.block[at + 1] = t
        log.block[at + 2] = self.j_frame[slot]
        log.block[at + 3] = self.j_activation[slot]
        log.block[at + 4] = self.j_deadline[slot]
        log.block[at + 5] = self.j_start[slot]
        log.block[at + 6] = finish
        log.block[at + 7] = self.j_exec[slot]
        log.block[at + 8] = self.j_blocked[slot]
        log.block[at + 9] = self.j_preempted[slot]
        log.block[at + 10] = self.j_migrated[slot]
        log.block[at + 11] = status
        log.block[at + 12] = self.j_sample[slot]

    def write_sample(self, t: i64, slot: i64, latest: cython.p_longlong) -> None:
        """Record for the trace which frames a job samples from its task's inputs."""
        i: i64
        self.j_sample[slot] = self.samples_made
        for i in range(self.t_reads0[t], self.t_reads0[t] + self.t_reads[t]):
            row: i64 = self.sample_log.row()
            self.sample_log.block[row] = latest[self.reads[i]]
            self.samples_made += 1

    def write_slice(self, c: i64, number: i64, name: i64, slot: i64, now: i64) -> None:
        """Record a claim's execution interval up to now for the trace."""
        log: Log = self.slice_log
        at: i64 = log.row()
        log.block[at] = number
        log.block[at + 1] = self.u_engine[self.unit[c]]
        log.block[at + 2] = self.j_number[slot]
        log.block[at + 3] = name
        log.block[at + 4] = self.slice_from[c]
        log.block[at + 5] = now
        i: i64
        for i in range(self.words):
            log.block[at + 6 + i] = word(self.lanes[c], i)

    def write_depth(self, t: i64, depth: i64, now: i64) -> None:
        """Record the length of a queue for the trace."""
        row: i64 = self.depth_log.row()
        self.depth_log.block[row] = now
        self.depth_log.block[row + 1] = t
        self.depth_log.block[row + 2] = depth

    def write_level(self, e: i64, level: i64, now: i64) -> None:
        """Record an engine's operating point for the trace."""
        row: i64 = self.level_log.row()
        self.level_log.block[row] = now
        self.level_log.block[row + 1] = e
        self.level_log.block[row + 2] = level

    def write_release(self, source: i64, at: i64) -> None:
        """Record a release for the trace."""
        row: i64 = self.release_log.row()
        self.release_log.block[row] = source
        self.release_log.block[row + 1] = at

    def finish(self, t: i64, slot: i64, now: i64, status: i64) -> None:
        """Account for a job that ended, and free its slot."""
        if status == DONE:
            self.done[t] += 1
            self.execs.add(t, self.j_exec[slot])
            self.responses.add(t, now - self.j_release[slot])
        elif status == DROPPED:
            self.dropped[t] += 1
            if self.chained:
                self.chains.lost(t, self.j_frame[slot])
        else:
            self.aborted[t] += 1
        self.add_up(t, slot)
        if self.t_loop[t] >= 0 and (status != DONE or self.t_closes[t]):
            self.ended(self.t_loop[t], now)
        if self.record:
            self.write_job(t, slot, now if status == DONE else -1, status)
        self.free_slot(slot)

    def ended(self, source: i64, now: i64) -> None:
        """Handle the end or loss of a closed loop's frame: release the next one now, or at its instant if later."""
        self.s_ended[source] += 1
        if self.s_waits[source] and self.s_ended[source] >= self.s_frame[source]:
            self.s_waits[source] = 0
            if self.s_due[source] < now:
                self.s_due[source] = now
            if self.s_last[source] < now:
                self.s_last[source] = now
            self.events.set(self.tasks + source, self.s_last[source] if self.s_last[source] < self.end else FAR)

    def add_up(self, t: i64, slot: i64) -> None:
        """Add a job's counters to its task's totals."""
        self.preempted[t] += self.j_preempted[slot]
        self.migrated[t] += self.j_migrated[slot]
        if self.j_blocked[slot] > self.most_blocked[t]:
            self.most_blocked[t] = self.j_blocked[slot]

    def all_figures(self, end: i64) -> dict[str, Any]:
        """Return all figures by name, with the simulation ending at `end` (ns)."""
        found: dict[str, Any] = dict(self.books)
        found.update({f"chain_{name}": counts for name, counts in self.chains.close(end).items()})
        found["execs"], found["responses"] = self.execs.found(), self.responses.found()
        found["chains"] = self.chains.figures.found()
        found["guest_energy"] = self.guest_energy
        found["power_peak"], found["traffic"], found["rate_peak"] = self.most_power, self.traffic, self.peak_rate
        found["jobs"], found["slices"], found["notes"] = (
            self.job_log.flush(), self.slice_log.flush(), self.note_log.flush(),
        )  # fmt: skip
        found["steps"] = self.step_log.flush()
        found["depths"], found["samples"] = self.depth_log.flush(), self.sample_log.flush()
        found["releases"], found["levels"] = self.release_log.flush(), self.level_log.flush()
        return found
