"""Accounting of a simulation: figures kept always, rows recorded for a trace on request, power and traffic."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import float_bits, word
    from cython.cimports.socsched_kernel.codes import DONE, DROPPED, FAR
    from cython.cimports.socsched_kernel.records import Log
    from cython.cimports.socsched_kernel.state import State
    from cython.cimports.socsched_kernel.totals import Chains, Histograms
else:
    from .arithmetic import float_bits, word
    from .codes import DONE, DROPPED, FAR
    from .records import Log
    from .state import State
    from .totals import Chains, Histograms

_COUNTS = ("done", "dropped", "aborted", "late", "released", "preempted", "migrated", "blocked")


class Accounting(State):
    """Counts per task, histograms, chains, and the meters of engines and memory."""

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        numbers = tables["numbers"]
        self.scale, self.energy_per_byte, self.static_power = (
            numbers["scale"],
            numbers["energy_per_byte"],
            numbers["static_power"],
        )
        self.counters = {name: array("q", bytes(8 * max(self.tasks, 1))) for name in _COUNTS}
        self.counters["busy_time"] = array("q", bytes(8 * max(self.engines * self.levels, 1)))
        self.done = self.own(self.counters["done"])
        self.dropped = self.own(self.counters["dropped"])
        self.aborted = self.own(self.counters["aborted"])
        self.late = self.own(self.counters["late"])
        self.released = self.own(self.counters["released"])
        self.preempted = self.own(self.counters["preempted"])
        self.migrated = self.own(self.counters["migrated"])
        self.max_blocked = self.own(self.counters["blocked"])
        self.busy_time = self.own(self.counters["busy_time"])
        self.busy = self.fill(self.engines, 0)
        self.charged_until = self.fill(self.engines, 0)
        self.recorded_level = self.fill(self.engines, self.levels - 1)
        self.power_now = self.metered_power = self.metered_at = self.sample_count = 0
        self.corun_energy = 0.0
        self.rate = self.metered_rate = self.peak_rate = self.traffic = self.peak_power = 0.0
        self.chains = Chains(tables)
        self.has_chains = self.chains.count > 0
        self.exec_times, self.response_times = Histograms(self.tasks), Histograms(self.tasks)
        self.job_log, self.slice_log, self.instant_log = Log(13), Log(6 + self.words), Log(5)
        self.meter_log, self.depth_log, self.sample_log, self.release_log = Log(3), Log(3), Log(1), Log(2)
        self.level_log = Log(3)

    def charge_busy(self, e: i64, now: i64) -> None:
        """Charge the slots' busy time up to now at the present clock."""
        self.busy_time[e * self.levels + self.n_level[e]] += self.busy[e] * (now - self.charged_until[e])
        self.charged_until[e] = now

    def occupy_engine(self, e: i64, slots: i64, now: i64) -> None:
        """Mark slots of an engine as busy from now on, or as idle if negative."""
        self.charge_busy(e, now)
        self.busy[e] += slots
        self.power_now += self.n_power[e * self.levels + self.n_level[e]] * slots

    def update_meters(self, now: i64) -> None:
        """Account for power and traffic up to now, and record changes at this instant."""
        if now > self.metered_at:
            self.traffic += self.metered_rate * (now - self.metered_at)
            power: cython.double = (
                self.static_power + self.metered_power / self.scale + self.metered_rate * self.energy_per_byte
            )
            if power > self.peak_power:
                self.peak_power = power
            if self.metered_rate > self.peak_rate:
                self.peak_rate = self.metered_rate
            self.metered_at = now
        if self.record and (self.power_now != self.metered_power or self.rate != self.metered_rate):
            row: i64 = self.meter_log.add_row()
            self.meter_log.block[row] = now
            self.meter_log.block[row + 1] = self.power_now
            self.meter_log.block[row + 2] = float_bits(self.rate)
        self.metered_power = self.power_now
        self.metered_rate = self.rate

    def record_instant(self, now: i64, code: i64, subject: i64, frame: i64, value: i64) -> None:
        """Record an instant for the trace."""
        if self.record:
            row: i64 = self.instant_log.add_row()
            self.instant_log.block[row] = now
            self.instant_log.block[row + 1] = code
            self.instant_log.block[row + 2] = subject
            self.instant_log.block[row + 3] = frame
            self.instant_log.block[row + 4] = value

    def write_job(self, t: i64, job: i64, finish: i64, status: i64) -> None:
        """Record a job for the trace (`sim.results`)."""
        log: Log = self.job_log
        at: i64 = log.add_row()
        log.block[at] = self.j_number[job]
        log.block[at + 1] = t
        log.block[at + 2] = self.j_frame[job]
        log.block[at + 3] = self.j_activation[job]
        log.block[at + 4] = self.j_deadline[job]
        log.block[at + 5] = self.j_start[job]
        log.block[at + 6] = finish
        log.block[at + 7] = self.j_exec[job]
        log.block[at + 8] = self.j_blocked[job]
        log.block[at + 9] = self.j_preempted[job]
        log.block[at + 10] = self.j_migrated[job]
        log.block[at + 11] = status
        log.block[at + 12] = self.j_sample[job]

    def write_sample(self, t: i64, job: i64, latest: cython.p_longlong) -> None:
        """Record for the trace which frames a job samples from its task's inputs."""
        i: i64
        self.j_sample[job] = self.sample_count
        for i in range(self.t_reads0[t], self.t_reads0[t] + self.t_reads[t]):
            row: i64 = self.sample_log.add_row()
            self.sample_log.block[row] = latest[self.reads[i]]
            self.sample_count += 1

    def write_slice(self, c: i64, number: i64, name: i64, job: i64, now: i64) -> None:
        """Record a claim's execution interval up to now for the trace."""
        log: Log = self.slice_log
        at: i64 = log.add_row()
        log.block[at] = number
        log.block[at + 1] = self.u_engine[self.unit[c]]
        log.block[at + 2] = self.j_number[job]
        log.block[at + 3] = name
        log.block[at + 4] = self.slice_start[c]
        log.block[at + 5] = now
        i: i64
        for i in range(self.words):
            log.block[at + 6 + i] = word(self.slots[c], i)

    def write_depth(self, t: i64, depth: i64, now: i64) -> None:
        """Record the length of a queue for the trace."""
        row: i64 = self.depth_log.add_row()
        self.depth_log.block[row] = now
        self.depth_log.block[row + 1] = t
        self.depth_log.block[row + 2] = depth

    def write_level(self, e: i64, level: i64, now: i64) -> None:
        """Record an engine's operating point for the trace."""
        row: i64 = self.level_log.add_row()
        self.level_log.block[row] = now
        self.level_log.block[row + 1] = e
        self.level_log.block[row + 2] = level

    def write_release(self, source: i64, at: i64) -> None:
        """Record a release for the trace."""
        row: i64 = self.release_log.add_row()
        self.release_log.block[row] = source
        self.release_log.block[row + 1] = at

    def end_job(self, t: i64, job: i64, now: i64, status: i64) -> None:
        """Account for a job that ended, and free its record."""
        if status == DONE:
            self.done[t] += 1
            self.exec_times.add(t, self.j_exec[job])
            self.response_times.add(t, now - self.j_release[job])
        elif status == DROPPED:
            self.dropped[t] += 1
            if self.has_chains:
                self.chains.record_loss(t, self.j_frame[job])
        else:
            self.aborted[t] += 1
        self.add_totals(t, job)
        if self.t_loop_source[t] >= 0 and (status != DONE or self.t_closes_loop[t]):
            self.end_loop_frame(self.t_loop_source[t], now)
        if self.record:
            self.write_job(t, job, now if status == DONE else -1, status)
        self.free_job(job)

    def end_loop_frame(self, source: i64, now: i64) -> None:
        """Handle the end or loss of a closed loop's frame: release the next one now, or at its instant if later."""
        self.s_ended[source] += 1
        if self.s_waits[source] and self.s_ended[source] >= self.s_frame[source]:
            self.s_waits[source] = 0
            if self.s_due[source] < now:
                self.s_due[source] = now
            if self.s_last[source] < now:
                self.s_last[source] = now
            self.events.set(self.tasks + source, self.s_last[source] if self.s_last[source] < self.end else FAR)

    def add_totals(self, t: i64, job: i64) -> None:
        """Add a job's counters to its task's totals."""
        self.preempted[t] += self.j_preempted[job]
        self.migrated[t] += self.j_migrated[job]
        if self.j_blocked[job] > self.max_blocked[t]:
            self.max_blocked[t] = self.j_blocked[job]

    def collect_figures(self, end: i64) -> dict[str, Any]:
        """Return all figures by name, with the simulation ending at `end` (ns)."""
        found: dict[str, Any] = dict(self.counters)
        found.update({f"chain_{name}": counts for name, counts in self.chains.close(end).items()})
        found["execs"], found["responses"] = self.exec_times.export(), self.response_times.export()
        found["chains"] = self.chains.histograms.export()
        found["corun_energy"] = self.corun_energy
        found["power_peak"], found["traffic"], found["rate_peak"] = self.peak_power, self.traffic, self.peak_rate
        found["jobs"], found["slices"], found["notes"] = (
            self.job_log.flush(), self.slice_log.flush(), self.instant_log.flush(),
        )  # fmt: skip
        found["steps"] = self.meter_log.flush()
        found["depths"], found["samples"] = self.depth_log.flush(), self.sample_log.flush()
        found["releases"], found["levels"] = self.release_log.flush(), self.level_log.flush()
        return found
