"""The simulation kernel: events, dispatching, progress and contention over flat int64 tables.

One source in the Python that Cython understands: compiled if a C compiler is available (`sim.build`), interpreted
otherwise, with identical results to the nanosecond.  `sim.lower` makes the tables, `sim.results` reads the outcome.

Semantics.  All events of one instant are handled before any dispatching: first faults begin and end, then jobs complete
(by task), sensors release, timers release, the controllers of clocks run, jobs are aborted, budgets
and quanta expire, and time-dependent laxities are re-evaluated.  A task serves its frames in order, one job at a time.

Sections follow each other as they build on each other: tables, jobs and claims, accounting, reservations and shares,
progress and contention, orders, slots, queues, co-running, dispatching, and the loop.
Each has a `make_` method for the state it adds.  kernel.pxd declares the types, and which methods may raise (because
they call Python or write a row).  It is one class in one C file because calls between classes would go through tables.
"""

# ruff: noqa: F405 - named numbers and arithmetic: every name of values.py is C in the compiled kernel

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if not cython.compiled:  # the compiled kernel has these from kernel.pxd
    from socsched.sim.kernel.stores import Chains, Columns, Contention, EventQueue, Histograms, Log
    from socsched.sim.kernel.values import *  # noqa: F403

_COUNTS = ("done", "dropped", "aborted", "late", "released", "preempted", "migrated", "blocked")
"""Counters of jobs by task, by name."""


class Kernel(Columns):
    """One simulation: call `run_events` until its end, then `close`.

    `tables`: flat arrays by name (`sim.lower`).  `hooks`: infrequent calls from the kernel into Python
    (`sim.callbacks.Callbacks`): `resolve_contention(key)` (durations in ns of segments that draw on the DRAM together),
    `draw_numbers(stream)` (random numbers), `apply_faults(now)` and `run_controllers(now, counters, traffic)` (faults;
    control by the board and by policies; both change the tables and return the next instant and the changed engines),
    `compute_keys(unit, task, ...)` (keys of policies written in Python).  `record`: whether rows are kept for a trace;
    figures always are.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        Columns.__init__(self)
        self.hooks, self.end, self.record = hooks, end, record
        self.make_tables(tables)
        self.take_tasks(tables)
        self.take_segments(tables)
        self.take_units(tables)
        self.take_engines(tables)
        self.take_sources(tables)
        self.make_jobpool(tables)
        self.make_state(tables)
        self.make_accounting(tables)
        self.make_reservations(tables)
        self.make_fairshare(tables)
        self.make_progress(tables)
        self.make_orders(tables)
        self.make_slots(tables)
        self.make_jobs(tables)
        self.make_queues(tables)
        self.make_corunners(tables)
        self.make_dispatcher(tables)
        self.make_kernel(tables)

    # -- A plan as tables: the simulation's input, changed only by faults and clocks.
    #
    # The tables from `sim.lower`, by name: columns of tasks, segments, units, engines and sources of releases.
    #
    # `hooks`: calls into Python (`kernel.Kernel`).  `record`: whether rows are kept for a trace.

    def make_tables(self, tables: dict[str, Any]) -> None:
        numbers = tables["numbers"]
        self.tasks, self.units = len(tables["t_inputs"]), len(tables["u_engine"])
        self.engines, self.sources = len(tables["n_slots"]), len(tables["s_period"])
        self.levels, self.n_uneven = numbers["levels"], numbers["uneven"]
        self.claims = 2 * self.tasks
        self.words, self.order_size, self.join_size = numbers["words"], numbers["order_size"], numbers["join_size"]
        if self.words > WORDS:
            raise ValueError("the kernel is compiled for fewer slots")

    def take_tasks(self, tables: dict[str, Any]) -> None:
        self.t_inputs = self.own(tables["t_inputs"])
        self.t_queue = self.own(tables["t_queue"])
        self.t_overflow = self.own(tables["t_overflow"])
        self.t_deadline = self.own(tables["t_deadline"])
        self.t_priority = self.own(tables["t_priority"])
        self.t_period = self.own(tables["t_period"])
        self.t_criticality = self.own(tables["t_criticality"])
        self.t_first = self.own(tables["t_first"])
        self.t_count = self.own(tables["t_count"])
        self.t_cost = self.own(tables["t_cost"])
        self.t_reads0 = self.own(tables["t_reads0"])
        self.t_reads = self.own(tables["t_reads"])
        self.t_successors0 = self.own(tables["t_successors0"])
        self.t_successors = self.own(tables["t_successors"])
        self.t_on_late = self.own(tables["t_on_late"])
        self.t_degraded0 = self.own(tables["t_degraded0"])
        self.t_degraded = self.own(tables["t_degraded"])
        self.t_over = self.own(tables["t_over"])
        self.t_low = self.own(tables["t_low"])
        self.t_stream = self.own(tables["t_stream"])
        self.t_times0 = self.own(tables["t_times0"])
        self.t_times = self.own(tables["t_times"])
        self.t_interpolate = self.own(tables["t_interpolate"])
        self.t_overrun_stream = self.own(tables["t_overrun_stream"])
        self.t_overrun_chance = self.own(tables["t_overrun_chance"])
        self.t_overrun_up = self.own(tables["t_overrun_up"])
        self.t_overrun_down = self.own(tables["t_overrun_down"])
        self.t_budget = self.own(tables["t_budget"])
        self.t_server_period = self.own(tables["t_server_period"])
        self.t_weight_bytes = self.own(tables["t_weight_bytes"])
        self.t_loop_source = self.own(tables["t_loop_source"])
        self.t_closes_loop = self.own(tables["t_closes_loop"])
        self.t_process = self.own(tables["t_process"])
        self.t_weight = self.own(tables["t_weight"])
        self.t_join0 = self.own(tables["t_join0"])
        self.t_join = self.own(tables["t_join"])
        self.reads = self.own(tables["reads"])
        self.successors = self.own(tables["successors"])
        self.times = self.own(tables["times"])

    def take_segments(self, tables: dict[str, Any]) -> None:
        self.g_time = self.own(tables["g_time"])
        self.g_bytes = self.own(tables["g_bytes"])
        self.g_unit = self.own(tables["g_unit"])
        self.g_mask = self.own_sets(tables["g_mask"])
        self.g_width = self.own(tables["g_width"])
        self.g_hold = self.own(tables["g_hold"])
        self.g_name = self.own(tables["g_name"])
        self.g_rest = self.own(tables["g_rest"])
        self.g_class = self.own(tables["g_class"])
        self.g_waits0 = self.own(tables["g_waits0"])
        # pairs of co-running segments, host's class first
        self.classes, self.segments = tables["numbers"]["classes"], len(tables["g_time"])
        self.host_times = self.own(tables["host_times"])
        self.corunner_times = self.own(tables["corunner_times"])

    def take_units(self, tables: dict[str, Any]) -> None:
        self.u_engine = self.own(tables["u_engine"])
        self.u_order0 = self.own(tables["u_order0"])
        self.u_mask = self.own_sets(tables["u_mask"])
        self.u_preemption = self.own(tables["u_preemption"])
        self.u_in_flight = self.own(tables["u_in_flight"])
        self.u_reset = self.own(tables["u_reset"])
        self.u_term0 = self.own(tables["u_term0"])
        self.u_term1 = self.own(tables["u_term1"])
        self.u_dynamic = self.own(tables["u_dynamic"])
        self.u_quantum = self.own(tables["u_quantum"])
        self.u_tick = self.own(tables["u_tick"])
        self.u_across = self.own(tables["u_across"])
        self.u_reservations = self.own(tables["u_reservations"])
        self.u_global = self.own(tables["u_global"])
        self.u_save = self.own(tables["u_save"])
        self.u_restore = self.own(tables["u_restore"])
        self.u_restart_job = self.own(tables["u_restart_job"])
        self.u_drain = self.own(tables["u_drain"])
        self.u_tokens = self.own(tables["u_tokens"])
        self.u_fair = self.own(tables["u_fair"])
        self.u_margin = self.own(tables["u_margin"])
        self.u_corun_once = self.own(tables["u_corun_once"])
        self.u_corun = self.own(tables["u_corun"])
        self.waits = self.own(tables["waits"])

    def take_engines(self, tables: dict[str, Any]) -> None:
        self.n_switch = self.own(tables["n_switch"])
        self.n_migrate = self.own(tables["n_migrate"])
        self.n_reshape = self.own(tables["n_reshape"])
        self.n_slot0 = self.own(tables["n_slot0"])
        self.n_slots = self.own(tables["n_slots"])
        self.n_power = self.own(tables["n_power"])
        self.n_clock = self.own(tables["n_clock"])
        self.n_level = self.own(tables["n_level"])
        self.n_top = self.own(tables["n_top"])
        self.n_governor = self.own(tables["n_governor"])
        self.n_slow = self.own(tables["n_slow"])
        self.n_fast = self.own(tables["n_fast"])
        self.n_stalled = self.own(tables["n_stalled"])
        self.n_memory = self.own(tables["n_memory"])
        self.n_swap_rate = self.own(tables["n_swap_rate"])
        self.n_linger = self.own(tables["n_linger"])
        self.n_quantum = self.own(tables["n_quantum"])
        self.slot_speed = self.own(tables["slot_speed"])

    def take_sources(self, tables: dict[str, Any]) -> None:
        self.s_period = self.own(tables["s_period"])
        self.s_offset = self.own(tables["s_offset"])
        self.s_jitter = self.own(tables["s_jitter"])
        self.s_gap = self.own(tables["s_gap"])
        self.s_stream = self.own(tables["s_stream"])
        self.s_lost = self.own(tables["s_lost"])
        self.s_delay = self.own(tables["s_delay"])
        self.s_burst = self.own(tables["s_burst"])
        self.s_jitter_after = self.own(tables["s_jitter_after"])
        self.s_loop = self.own(tables["s_loop"])
        self.s_successors0 = self.own(tables["s_successors0"])
        self.s_successors = self.own(tables["s_successors"])

    # -- Records of the jobs in progress, one each, allocated at the release and freed at the end.
    #
    # Columns of job records, all times in ns; free ones are linked by `j_next`, like the waiting ones of a task.
    #
    # `live`: the jobs in progress.

    def make_jobpool(self, tables: dict[str, Any]) -> None:
        self.pool_size = 0
        self.live = 0
        self.next_number = 0
        self.j_free = -1
        self.job_columns = [array("q") for _ in range(13)]
        self.grow_pool()

    def grow_pool(self) -> None:
        """Double the number of records."""
        more: i64 = max(self.pool_size, 64)
        self.job_columns = [column + array("q", bytes(8 * more)) for column in self.job_columns]
        self.j_frame = self.own(self.job_columns[0])
        self.j_activation = self.own(self.job_columns[1])
        self.j_release = self.own(self.job_columns[2])
        self.j_deadline = self.own(self.job_columns[3])
        self.j_start = self.own(self.job_columns[4])
        self.j_exec = self.own(self.job_columns[5])
        self.j_blocked = self.own(self.job_columns[6])
        self.j_preempted = self.own(self.job_columns[7])
        self.j_migrated = self.own(self.job_columns[8])
        self.j_number = self.own(self.job_columns[9])
        self.j_sample = self.own(self.job_columns[10])
        self.j_next = self.own(self.job_columns[11])
        self.j_previous = self.own(self.job_columns[12])
        self.pool_size += more
        self.live += more  # which `free_job` takes off again
        job: i64
        for job in range(self.pool_size - 1, self.pool_size - more - 1, -1):
            self.free_job(job)

    def allocate_job(self, frame: i64, activation: i64, release: i64, deadline: i64) -> i64:
        """Allocate the record of a new job and return its index."""
        if self.j_free < 0:
            self.grow_pool()
        job: i64 = self.j_free
        self.j_free = self.j_next[job]
        self.j_frame[job], self.j_activation[job], self.j_release[job] = frame, activation, release
        self.j_deadline[job] = deadline
        self.j_start[job] = self.j_sample[job] = self.j_next[job] = -1
        self.j_exec[job] = self.j_blocked[job] = self.j_preempted[job] = self.j_migrated[job] = 0
        self.j_number[job] = self.next_number
        self.next_number += 1
        self.live += 1
        return job

    def free_job(self, job: i64) -> None:
        self.live -= 1
        self.j_next[job] = self.j_free
        self.j_free = job

    # -- State shared by several layers of the kernel: each task's current job, its claimed slots, and pending events.
    #
    # Claims, current jobs and event sources of the kernel.
    #
    # A task claims slots with its current segment (claim `t`) and, while a segment runs elsewhere and the task
    # busy-waits, its home slots too (claim `tasks + t`).
    #
    # A claim wants `mask` of its unit's slots, all of them or any `width`; it has `slots` while `running`, and makes
    # progress while `slice_open`, from `slice_start` on.  A task works on `job` (a record of `JobPool`, or -1): segment
    # `current` of the `count` from `first`, after an `overhead` (ns, such as a switch), in `up` / `down` of the planned
    # times.
    #
    # A source releases its frame `s_frame` next, at `s_last`; its deadline counts from `s_due`.  Where frames wait for
    # others to end (`s_loop`), `s_ended` counts those that did, and `s_waits` is set while one is waiting.
    #
    # Event sources by number, which is their order at one instant: ends of tasks' segments, releases, the board's
    # control, aborts, budgets, quanta, and re-evaluations of units whose keys depend on time.

    def make_state(self, tables: dict[str, Any]) -> None:
        self.job = self.fill(self.tasks, -1)
        self.first = self.fill(self.tasks, 0)
        self.count = self.fill(self.tasks, 0)
        self.current = self.fill(self.tasks, 0)
        self.overhead = self.fill(self.tasks, 0)
        self.up = self.fill(self.tasks, 1)
        self.down = self.fill(self.tasks, 1)
        self.unit = self.fill(self.claims, 0)
        self.mask = self.fill_sets(self.claims)
        self.width = self.fill(self.claims, 0)
        self.slots = self.fill_sets(self.claims)
        self.running = self.fill(self.claims, 0)
        self.slice_open = self.fill(self.claims, 0)
        self.slice_start = self.fill(self.claims, 0)
        self.s_frame = self.fill(self.sources, 0)
        self.s_ended = self.fill(self.sources, 0)
        self.s_waits = self.fill(self.sources, 0)
        self.s_last = self.fill(self.sources, 0)
        self.s_due = self.fill(self.sources, 0)
        self.events = EventQueue(4 * self.tasks + self.sources + self.units + 1)
        self.control_event = self.tasks + self.sources
        self.abort_event0 = self.control_event + 1
        self.budget_event0 = self.abort_event0 + self.tasks
        self.quantum_event0 = self.budget_event0 + self.tasks
        self.tick_event0 = self.quantum_event0 + self.tasks

    # -- Accounting of a simulation: figures kept always, rows recorded for a trace on request, power and traffic.
    #
    # Counts per task, histograms, chains, and the meters of engines and memory.

    def make_accounting(self, tables: dict[str, Any]) -> None:
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
        self.traffic_now = self.jobs_written = 0
        self.chains = Chains(tables)
        self.has_chains = self.chains.count > 0
        self.exec_times, self.response_times = Histograms(self.tasks), Histograms(self.tasks)
        self.job_log, self.slice_log, self.instant_log = Log(13), Log(9 + self.words), Log(5)
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
            self.meter_log.block[row + 2] = self.traffic_now
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
        self.jobs_written += 1
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
        log.block[at + 6] = c if c < self.tasks else c - self.tasks
        log.block[at + 7] = self.j_frame[job]
        log.block[at + 8] = self.jobs_written
        i: i64
        for i in range(self.words):
            log.block[at + 9 + i] = word(self.slots[c], i)

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
        return found

    def take_rows(self) -> dict[str, Any]:
        """Return the rows recorded since the last call, as blocks by log."""
        return {
            "jobs": self.job_log.take(), "slices": self.slice_log.take(), "notes": self.instant_log.take(),
            "steps": self.meter_log.take(), "depths": self.depth_log.take(), "samples": self.sample_log.take(),
            "releases": self.release_log.take(), "levels": self.level_log.take(),
        }  # fmt: skip

    # -- Budgets and quanta: how long a task may run before it must yield.
    #
    # Constant bandwidth servers and round-robin.
    #
    # `budget[t]` ns are left until the deadline `server_deadline[t]` of a reservation; while `throttled`, the task
    # waits for that deadline.  `quantum_end[t]`: end of the current quantum.

    def make_reservations(self, tables: dict[str, Any]) -> None:
        self.budget = self.fill(self.tasks, 0)
        self.server_deadline = self.fill(self.tasks, 0)
        self.throttled = self.fill(self.tasks, 0)
        self.quantum_end = self.fill(self.tasks, 0)

    def start_budget(self, t: i64, now: i64) -> None:
        """Start the budget or quantum of a task that runs from now; a quantum's end is an event only if jobs wait."""
        u: i64 = self.unit[t]
        if self.u_reservations[u] and self.t_budget[t]:
            self.events.set(self.budget_event0 + t, now + self.budget[t])
        elif self.u_quantum[u] and not self.quantum_end[t]:
            self.quantum_end[t] = now + self.u_quantum[u]

    def end_quantum(self, t: i64) -> None:
        """Forfeit the rest of the quantum of a task that leaves its slots."""
        if self.quantum_end[t]:
            self.quantum_end[t] = 0
            self.events.set(self.quantum_event0 + t, FAR)

    def charge_budget(self, t: i64, now: i64) -> None:
        """Charge a task's budget for running until now."""
        u: i64 = self.unit[t]
        if self.u_reservations[u] and self.t_budget[t]:
            self.budget[t] -= now - self.slice_start[t]
            if not self.throttled[t]:
                self.events.set(self.budget_event0 + t, FAR)

    def replenish(self, t: i64, now: i64) -> None:
        """Wake up a reservation: new deadline unless the remaining budget fits before the old (CBS wake-up rule)."""
        if not self.t_budget[t] or self.throttled[t]:
            return
        if self.server_deadline[t] <= now or self.budget[t] > scale_floor(
            self.server_deadline[t] - now, self.t_budget[t], self.t_server_period[t]
        ):
            self.server_deadline[t] = now + self.t_server_period[t]
            self.budget[t] = self.t_budget[t]

    # -- Shares of an engine: tokens that jobs earn by waiting, and the virtual runtime of tasks.
    #
    # `waited[t]`: waiting time of a job as of `waiting_since[t]` (ns), which determines its tokens.
    #
    # `waits[waits_start[t] + i]`: waiting time to reach level i of its unit's tokens, followed by the waiting times to
    # be a candidate at level i (`g_waits0`: where those of a segment's unit start).  `sorted_waits` holds the same
    # times in ascending order, of which the job has passed `steps_passed[t]`.  `token_level[t]`: the job's level (-1:
    # none); `unit_level[u]`: the level reached on the unit.
    #
    # `vruntime[t]`, the virtual runtime: execution time of a task divided by its weight (as in Linux's CFS).
    # `min_vruntime[u]`: the least of the tasks present when another arrived, or that of the last task that left; no
    # returning task starts below it.  `inverse_weight[t]`: 2**26 divided by the weight.

    def make_fairshare(self, tables: dict[str, Any]) -> None:
        t: i64
        g: i64
        self.waited = self.fill(self.tasks, 0)
        self.waiting_since = self.fill(self.tasks, 0)
        self.vruntime = self.fill(self.tasks, 0)
        self.inverse_weight = self.fill(self.tasks, 0)
        self.waits_start = self.fill(self.tasks, 0)
        self.unit_level = self.fill(self.units, 0)
        self.token_level = self.fill(self.tasks, -1)
        self.steps_passed = self.fill(self.tasks, 0)
        self.sorted_waits = self.own(array("q", tables["waits"]))
        self.min_vruntime = self.fill(self.units, 0)
        for t in range(self.tasks):
            self.inverse_weight[t] = (1 << 26) // self.t_weight[t]
        for g in range(self.segments):
            self.sort_waits(self.g_waits0[g], 2 * self.u_tokens[self.g_unit[g]])

    def reset_waiting(self, t: i64, now: i64) -> None:
        """Reset the waiting time for a new job."""
        self.waited[t] = 0
        self.waiting_since[t] = now
        self.token_level[t] = -1
        self.steps_passed[t] = 0

    def reset_level(self, t: i64) -> None:
        """Reset the level of a job that moves to another unit; its waiting time counts there by that unit's levels."""
        self.token_level[t] = -1
        self.steps_passed[t] = 0

    def charge_vruntime(self, t: i64, ran: i64) -> None:
        """Charge a task for execution time."""
        self.vruntime[t] += self.scale_vruntime(t, ran)

    def scale_vruntime(self, t: i64, ran: i64) -> i64:
        """Return a time divided by a task's weight."""
        return scale_floor(ran, self.inverse_weight[t], 1 << SHIFT)

    def sort_waits(self, first: i64, count: i64) -> None:
        """Sort a range of `sorted_waits`."""
        i: i64
        for i in range(first, first + count):
            value: i64 = self.sorted_waits[i]
            at: i64 = i
            while at > first and self.sorted_waits[at - 1] > value:
                self.sorted_waits[at] = self.sorted_waits[at - 1]
                at -= 1
            self.sorted_waits[at] = value

    def update_level(self, u: i64, t: i64) -> i64:
        """Return the highest token level a job has reached, -1 for none."""
        level: i64 = self.token_level[t]
        while level + 1 < self.u_tokens[u] and self.waited[t] >= self.waits[self.waits_start[t] + level + 1]:
            level += 1
        self.token_level[t] = level
        return level

    def time_to_level(self, u: i64, t: i64) -> i64:
        """Return the waiting time left until a job's next token level (ns)."""
        at: i64 = self.waits_start[t] + self.steps_passed[t]
        end: i64 = self.waits_start[t] + 2 * self.u_tokens[u]
        while at < end and self.sorted_waits[at] <= self.waited[t]:
            at += 1
        self.steps_passed[t] = at - self.waits_start[t]
        return self.sorted_waits[at] - self.waited[t] if at < end else FAR

    def rank_candidate(self, u: i64, t: i64) -> i64:
        """Return 0 for a job with enough tokens, 1 for others, as an ordering key."""
        return self.waited[t] < self.waits[self.waits_start[t] + self.u_tokens[u] + self.unit_level[u]]

    # -- Progress of the segments of running jobs: their pace on the present slots, under contention for the DRAM.
    #
    # `work_left[t]` of a segment, in 2**-20 ns at pace `base_pace[t]`, is as of `updated_at[t]`; `pace[t]` since.
    #
    # A pace is the duration of the whole segment under present conditions (ns).
    #
    # Remaining work is rounded up when the pace changes, so nothing finishes early, and at constant pace a segment
    # takes exactly that long however often it is preempted.  `dram_tasks` lists the tasks that draw on the DRAM.
    #
    # `corun_time[t]`: duration in ns of its whole running segment with a co-runner (0: none).  `corunner[u]` (-1:
    # none): the task co-running there since `corun_since[u]`, without slots of its own; `corunner_count` counts them
    # over all units.

    def make_progress(self, tables: dict[str, Any]) -> None:
        self.work_left = self.fill(self.tasks, 0)
        self.pace = self.fill(self.tasks, 0)
        self.base_pace = self.fill(self.tasks, 0)
        self.updated_at = self.fill(self.tasks, 0)
        self.timed = self.fill(self.tasks, 0)
        self.uses_dram = self.fill(self.tasks, 0)
        self.on_dram = self.fill(self.tasks, 0)
        self.dram_tasks = self.fill(self.tasks, 0)
        self.corun_time = self.fill(self.tasks, 0)
        self.corunner = self.fill(self.units, -1)
        self.corun_since = self.fill(self.units, 0)
        self.corunner_count = 0
        self.slice_row = self.fill(self.claims, 0)
        self.slice_name = self.fill(self.claims, 0)
        self.dram_count = self.dram_changed = self.hog = self.slice_count = 0
        self.dram_limited = tables["numbers"]["dram_limited"]
        self.hog_rate = 0.0
        self.contention = Contention(self.hooks.resolve_contention, tables, self.tasks + 2)

    def load_segment(self, t: i64, g: i64) -> None:
        """Load a segment with its full remaining work."""
        time: i64 = self.get_segment_time(t, g)
        self.pace[t] = self.base_pace[t] = time
        self.work_left[t] = time << SHIFT
        self.uses_dram[t] = self.g_bytes[g] > 0 and time > 0
        self.timed[t] = 0

    def get_segment_time(self, t: i64, g: i64) -> i64:
        """Return the duration of a segment of this job (ns), alone and at full speed."""
        if self.up[t] == self.down[t]:
            return self.g_time[g]
        return scale_ceil(self.g_time[g], self.up[t], self.down[t])

    def begin_segment(self, t: i64, now: i64) -> None:
        """Continue from now on, starting with the overhead if there is any."""
        u: i64 = self.unit[t]
        if self.n_stalled[self.u_engine[u]]:
            return
        self.updated_at[t] = now
        self.start_budget(t, now)
        if self.overhead[t]:
            self.open_slice(t, now, 0)
            self.events.set(t, now + self.overhead[t])
            return
        self.open_slice(t, now, self.g_name[self.first[t] + self.current[t]])
        self.timed[t] = 0
        if self.uses_dram[t]:
            self.enter_dram(t)
        else:
            self.set_pace(t, self.apply_slowdown(t, self.get_segment_time(t, self.first[t] + self.current[t])), now)

    def apply_slowdown(self, t: i64, time: i64) -> i64:
        """Return the duration of a segment on its slots under present clocks and faults."""
        e: i64 = self.u_engine[self.unit[t]]
        if self.corun_time[t]:
            time = scale_ceil(time, self.corun_time[t], self.g_time[self.first[t] + self.current[t]])
        if self.n_slow[e] != self.n_fast[e]:
            time = scale_ceil(time, self.n_slow[e], self.n_fast[e])
        if self.n_level[e] != self.levels - 1:
            time = scale_ceil(
                time, self.n_clock[e * self.levels + self.levels - 1], self.n_clock[e * self.levels + self.n_level[e]]
            )
        if self.n_uneven:
            slowest: i64 = 1024
            rest: SlotSet = self.slots[t]
            while has_any(rest):
                slot: i64 = first_slot(rest)
                rest = subtract(rest, slot_set(slot))
                slot += self.n_slot0[e]
                if self.slot_speed[slot] < slowest:
                    slowest = self.slot_speed[slot]
            if slowest < 1024:
                time = scale_ceil(time, 1024, slowest)
        return time

    def set_pace(self, t: i64, pace: i64, now: i64) -> None:
        """Set the whole duration of the running segment to `pace` ns from now on, and schedule its end accordingly."""
        if self.timed[t]:
            if self.pace[t] == pace:
                return
            self.advance(t, now)
        self.pace[t] = pace
        self.timed[t] = 1
        left: i64 = self.work_left[t]
        if pace != self.base_pace[t]:
            left = scale_ceil(left, pace, self.base_pace[t])
        self.events.set(t, now + ((left + (1 << SHIFT) - 1) >> SHIFT))

    def advance(self, t: i64, now: i64) -> None:
        """Subtract the progress of a segment since its last update."""
        elapsed: i64 = now - self.updated_at[t]
        self.updated_at[t] = now
        # a pace that held for no time must not cause rounding
        if elapsed and self.timed[t]:
            if self.pace[t] != self.base_pace[t]:
                self.work_left[t] = scale_ceil(self.work_left[t], self.pace[t], self.base_pace[t])
                self.base_pace[t] = self.pace[t]
            self.work_left[t] -= elapsed << SHIFT
            if self.work_left[t] < 0:
                self.work_left[t] = 0

    def open_slice(self, c: i64, now: i64, name: i64) -> None:
        """Open a claim's execution interval; `name` is its activity (0 switch, 1 wait, or a segment)."""
        self.slice_open[c] = 1
        self.slice_name[c] = name
        self.slice_row[c] = self.slice_count
        self.slice_start[c] = now
        self.slice_count += 1

    def close_slice(self, c: i64, now: i64) -> None:
        """Close a claim's execution interval and account for its time."""
        if self.slice_open[c]:
            self.slice_open[c] = 0
            job: i64 = self.job[c if c < self.tasks else c - self.tasks]
            if c < self.tasks:
                self.j_exec[job] += now - self.slice_start[c]
                self.charge_budget(c, now)
                if self.u_fair[self.unit[c]]:
                    self.charge_vruntime(c, now - self.slice_start[c])
            if self.record:
                self.write_slice(c, self.slice_row[c], self.slice_name[c], job, now)

    def enter_dram(self, t: i64) -> None:
        at: i64 = self.dram_count
        while at > 0 and self.dram_tasks[at - 1] > t:
            self.dram_tasks[at] = self.dram_tasks[at - 1]
            at -= 1
        self.dram_tasks[at] = t
        self.dram_count += 1
        self.on_dram[t] = 1
        self.dram_changed = 1

    def leave_dram(self, t: i64) -> None:
        at: i64 = 0
        while self.dram_tasks[at] != t:
            at += 1
        self.dram_count -= 1
        while at < self.dram_count:
            self.dram_tasks[at] = self.dram_tasks[at + 1]
            at += 1
        self.on_dram[t] = 0
        self.dram_changed = 1

    def share_dram(self, now: i64) -> None:
        """Set the pace of every segment that draws on the DRAM under present contention."""
        contention: Contention = self.contention
        i: i64
        rate: i64 = 0
        if self.dram_limited:
            for i in range(self.dram_count):
                contention.row[i] = self.first[self.dram_tasks[i]] + self.current[self.dram_tasks[i]]
            contention.find_paces(self.dram_count, self.hog)
        for i in range(self.dram_count):
            t: i64 = self.dram_tasks[i]
            g: i64 = self.first[t] + self.current[t]
            size: cython.double = self.g_bytes[g]
            if self.up[t] != self.down[t]:
                size = scale_ceil(self.g_bytes[g], self.up[t], self.down[t])
            if self.dram_limited:
                pace: i64 = contention.pace[i]
                if self.up[t] != self.down[t]:
                    pace = scale_ceil(pace, self.up[t], self.down[t])
            else:
                pace = self.get_segment_time(t, g)
            self.set_pace(t, self.apply_slowdown(t, pace), now)
            rate += to_traffic(size / self.pace[t])
        if self.corunner_count:
            for i in range(self.units):
                t = self.corunner[i]
                if t >= 0 and self.pace[t] > 0:
                    size = self.g_bytes[self.first[t] + self.current[t]]
                    if self.up[t] != self.down[t]:
                        size = scale_ceil(self.g_bytes[self.first[t] + self.current[t]], self.up[t], self.down[t])
                    rate += to_traffic(size / self.pace[t])
        if self.hog:
            rate += to_traffic(contention.pace[self.dram_count] / 1e9 if self.dram_limited else self.hog_rate)
        self.dram_changed = 0
        self.traffic_now = rate
        self.rate = rate / 1e5

    # -- The order of a unit: the sequence in which the claims on its slots are served.
    #
    # Claims on the slots of unit u, `order[u_order0[u] + i]` for i below `order_length[u]`, by two keys and number.
    #
    # `running_claims[u_order0[u] + i]` are the running ones, `running_count[u]` of them.
    #
    # `dirty_units` lists the units to dispatch before this instant ends; `dispatch_at[u]` is the next dispatch of a
    # unit by time alone.  `latest_start[t]`: latest instant at which a job must resume to be in time (computed only if
    # the order uses it).

    def make_orders(self, tables: dict[str, Any]) -> None:
        self.key0 = self.fill(self.claims, 0)
        self.key1 = self.fill(self.claims, 0)
        self.queued = self.fill(self.claims, 0)
        self.latest_start = self.fill(self.tasks, 0)
        self.order = self.fill(self.order_size, 0)
        self.running_claims = self.fill(self.order_size, 0)
        self.running_count = self.fill(self.units, 0)
        self.order_length = self.fill(self.units, 0)
        self.dirty = self.fill(self.units, 0)
        self.dirty_units = self.fill(self.units, 0)
        self.dispatch_at = self.fill(self.units, 0)
        self.dirty_count = self.last_turn = 0

    def enqueue(self, t: i64, now: i64) -> None:
        """Insert a task's claim into the order of its unit."""
        u: i64 = self.unit[t]
        self.set_keys(t, now)
        if not (self.throttled[t] and self.u_reservations[u]):
            self.insert_claim(t)
            if self.u_quantum[u] and self.u_preemption[u] == FULL:
                self.resume_quanta(u, now)
        self.mark_dirty(u)

    def catch_up_vruntime(self, t: i64, now: i64) -> None:
        """Raise a returning task's virtual runtime to at least the smallest of the tasks on the unit."""
        u: i64 = self.unit[t]
        least: i64 = FAR
        i: i64
        for i in range(self.order_length[u]):
            c: i64 = self.order[self.u_order0[u] + i]
            if c < self.tasks:
                had: i64 = self.get_vruntime(c, now)
                if had < least:
                    least = had
        if least < FAR and least > self.min_vruntime[u]:
            self.min_vruntime[u] = least
        if self.vruntime[t] < self.min_vruntime[u]:
            self.vruntime[t] = self.min_vruntime[u]

    def resume_quanta(self, u: i64, now: i64) -> None:
        """Schedule the ends of running quanta, because a job waits."""
        i: i64
        for i in range(self.running_count[u]):
            c: i64 = self.running_claims[self.u_order0[u] + i]
            if c < self.tasks and self.quantum_end[c]:
                if self.quantum_end[c] < now:
                    passed: i64 = (now - self.quantum_end[c] + self.u_quantum[u] - 1) // self.u_quantum[u]
                    self.quantum_end[c] += passed * self.u_quantum[u]
                if self.events.position[self.quantum_event0 + c] < 0:
                    self.events.set(self.quantum_event0 + c, self.quantum_end[c])

    def set_claim(self, t: i64, g: i64) -> None:
        """Claim the slots of a segment."""
        self.unit[t], self.width[t], self.waits_start[t] = self.g_unit[g], self.g_width[g], self.g_waits0[g]
        self.mask[t] = self.g_mask[g]

    def insert_claim(self, c: i64) -> None:
        """Insert a claim at its place in the order."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = self.order_length[u]
        while at > 0:
            other: i64 = self.order[base + at - 1]
            if self.precedes(other, c):
                break
            self.order[base + at] = other
            at -= 1
        self.order[base + at] = c
        self.order_length[u] += 1
        self.queued[c] = 1

    def remove_claim(self, c: i64) -> None:
        """Remove a claim from the order."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = 0
        if not self.queued[c]:
            return
        order: cython.p_longlong = self.order
        while order[base + at] != c:
            at += 1
        last: i64 = base + self.order_length[u] - 1
        self.order_length[u] -= 1
        at += base
        while at < last:
            order[at] = order[at + 1]
            at += 1
        self.queued[c] = 0
        if c < self.tasks:
            # the next unit may not use quanta
            self.end_quantum(c)
            if self.u_fair[u] and not self.order_length[u] and self.vruntime[c] > self.min_vruntime[u]:
                self.min_vruntime[u] = self.vruntime[c]
        self.mark_dirty(u)

    def requeue(self, t: i64, now: i64) -> None:
        """Move a task whose quantum is over to the end of the round."""
        u: i64 = self.unit[t]
        if not self.queued[t]:
            pass
        elif self.u_term0[u] == T_TURN and not self.u_term1[u]:
            # no turn is later, so the end of the order is its place
            base: i64 = self.u_order0[u]
            at: i64 = 0
            while self.order[base + at] != t:
                at += 1
            while at < self.order_length[u] - 1:
                self.order[base + at] = self.order[base + at + 1]
                at += 1
            self.order[base + at] = t
            self.set_keys(t, now)
            self.end_quantum(t)
            self.mark_dirty(u)
        else:
            self.remove_claim(t)
            self.enqueue(t, now)

    def mark_dirty(self, u: i64) -> None:
        """Mark a unit for dispatching before this instant ends."""
        if not self.dirty[u]:
            self.dirty[u] = 1
            self.dirty_units[self.dirty_count] = u
            self.dirty_count += 1

    def schedule_dispatch(self, u: i64, instant: i64) -> None:
        """Schedule a dispatch of a unit at an instant, replacing the previous one."""
        position: i64 = self.events.position[self.tick_event0 + u]
        self.dispatch_at[u] = instant
        # a premature event is postponed when it fires: the instant moves far more often than it is reached
        if position < 0 or self.events.times[position] > instant:
            self.events.set(self.tick_event0 + u, instant)

    def precedes(self, a: i64, b: i64) -> i64:
        """Return whether claim `a` is served before claim `b`."""
        if self.key0[a] != self.key0[b]:
            return self.key0[a] < self.key0[b]
        if self.key1[a] != self.key1[b]:
            return self.key1[a] < self.key1[b]
        return a < b

    def sort_claims(self, u: i64, now: i64) -> None:
        """Re-sort a unit by time-dependent keys."""
        # columns in local names: the C compiler cannot know that writes to them move none of them
        order: cython.p_longlong = self.order
        key0: cython.p_longlong = self.key0
        key1: cython.p_longlong = self.key1
        running: cython.p_longlong = self.running
        base: i64 = self.u_order0[u]
        tasks: i64 = self.tasks
        code: i64 = self.u_term0[u]
        moving: i64 = self.u_dynamic[u] == MOVING
        # if keys change only for running claims, the second key mostly does not
        second: i64 = moving and self.u_term1[u] in (T_LAXITY, T_REMAINING, T_SERVICE)
        tokens: i64 = moving and self.u_tokens[u]
        edge: i64 = now + self.u_margin[u]
        last: i64 = -1
        last0: i64 = 0
        last1: i64 = 0
        i: i64
        if tokens:
            self.update_waiting(u, now)
        for i in range(self.order_length[u]):
            c: i64 = order[base + i]
            if c >= tasks:
                key0[c], key1[c] = key0[c - tasks], key1[c - tasks]
            elif not moving:
                self.set_keys(c, now)
            else:
                if tokens:
                    key0[c] = self.rank_candidate(u, c)
                elif running[c]:
                    key0[c] = self.get_vruntime(c, now) if code == T_SERVICE else self.compute_term(code, c, now)
                elif code == T_CRITICAL:
                    key0[c] = self.latest_start[c] >= edge
                if second and running[c]:
                    key1[c] = self.compute_term(self.u_term1[u], c, now)
            first: i64 = key0[c]
            then: i64 = key1[c]
            if last >= 0 and (first < last0 or (first == last0 and (then < last1 or (then == last1 and c < last)))):
                at: i64 = i
                while at > 0 and self.precedes(c, order[base + at - 1]):
                    order[base + at] = order[base + at - 1]
                    at -= 1
                order[base + at] = c
            else:
                last, last0, last1 = c, first, then

    def get_vruntime(self, t: i64, now: i64) -> i64:
        """Return the virtual runtime of a task until now."""
        if self.running[t] and self.slice_open[t]:
            return self.vruntime[t] + self.scale_vruntime(t, now - self.slice_start[t])
        return self.vruntime[t]

    def update_waiting(self, u: i64, now: i64) -> None:
        """Update the waiting times of jobs; candidates are those on the highest level reached."""
        order: cython.p_longlong = self.order
        waited: cython.p_longlong = self.waited
        since: cython.p_longlong = self.waiting_since
        base: i64 = self.u_order0[u]
        bar: i64 = 0
        i: i64
        for i in range(self.order_length[u]):
            t: i64 = order[base + i]
            if t < self.tasks:
                if not self.running[t]:
                    waited[t] += now - since[t]
                since[t] = now
                level: i64 = self.update_level(u, t)
                if level > bar:
                    bar = level
        self.unit_level[u] = bar

    def count_ticks(self, u: i64, now: i64) -> i64:
        """Return the number of ticks after which a unit's order may have changed by time alone, at least 1."""
        order: cython.p_longlong = self.order
        key0: cython.p_longlong = self.key0
        running: cython.p_longlong = self.running
        base: i64 = self.u_order0[u]
        count: i64 = self.order_length[u]
        tick: i64 = self.u_tick[u]
        code: i64 = self.u_term0[u]
        least: i64 = FAR // 4
        away: i64
        c: i64
        i: i64
        if self.u_dynamic[u] != MOVING:
            return 1
        if code in (T_LAXITY, T_SERVICE):
            # keys of running claims grow at most as fast as time; that of the first waiting claim is constant
            waits: i64 = FAR
            for i in range(count):
                if not running[order[base + i]]:
                    waits = key0[order[base + i]]
                    break
            most: i64 = FAR // (256 * tick)
            for i in range(self.running_count[u]):
                c = self.running_claims[base + i]
                step: i64 = tick
                if code == T_SERVICE:
                    step = self.scale_vruntime(c if c < self.tasks else c - self.tasks, tick) + 1
                if waits - key0[c] < most * step:
                    most = (waits - key0[c] + step - 1) // step
            return most if most > 0 else 1
        if code == T_CRITICAL:
            for i in range(count):
                c = order[base + i]
                if c < self.tasks and key0[c] and self.latest_start[c] < least:
                    least = self.latest_start[c]
            away = least - now - self.u_margin[u] + 1
        elif code == T_CANDIDATE:
            for i in range(count):
                c = order[base + i]
                if c < self.tasks and not running[c]:
                    away = self.time_to_level(u, c)
                    if away < least:
                        least = away
            away = least
        else:
            return 1
        return (away + tick - 1) // tick if away > tick else 1

    def set_keys(self, t: i64, now: i64) -> None:
        """Compute a task's ordering keys on its unit."""
        u: i64 = self.unit[t]
        if self.u_term0[u] == T_CUSTOM:
            job: i64 = self.job[t]
            keys = self.hooks.compute_keys(
                u, t, self.j_frame[job], self.j_activation[job], self.j_release[job], self.j_deadline[job],
                self.j_start[job], self.get_executed(t, now), self.get_remaining(t, now), self.running[t], now,
            )  # fmt: skip
            self.key0[t], self.key1[t] = keys
        else:
            self.key0[t] = self.compute_term(self.u_term0[u], t, now)
            self.key1[t] = self.compute_term(self.u_term1[u], t, now)

    def compute_term(self, code: i64, t: i64, now: i64) -> i64:
        """Return a term of the order (`sim.policies.Term`)."""
        job: i64 = self.job[t]
        if code == T_DEADLINE:
            return self.j_deadline[job]
        if code == T_ACTIVATION:
            return self.j_activation[job]
        if code == T_PRIORITY:
            return self.t_priority[t]
        if code == T_PERIOD:
            return self.t_period[t]
        if code == T_RELATIVE:
            return self.t_deadline[t]
        if code == T_CRITICALITY:
            return self.t_criticality[t]
        if code == T_LAXITY:
            return self.j_deadline[job] - self.get_remaining(t, now)
        if code == T_TURN:
            self.last_turn += 1
            return self.last_turn
        if code == T_SERVER:
            return self.server_deadline[t] if self.t_budget[t] else self.j_deadline[job]
        if code == T_REMAINING:
            return self.get_remaining(t, now)
        if code == T_COST:
            return self.t_cost[t]
        if code == T_CANDIDATE:
            return self.rank_candidate(self.unit[t], t)
        if code == T_CRITICAL:
            self.latest_start[t] = self.j_deadline[job] - self.get_remaining(t, now)
            return self.latest_start[t] - now >= self.u_margin[self.unit[t]]
        if code == T_BEST_EFFORT:
            return self.t_criticality[t] == 2
        if code == T_SERVICE:
            return self.get_vruntime(t, now)
        return 0

    def get_executed(self, t: i64, now: i64) -> i64:
        """Return the execution time of a task's job until now (ns)."""
        done: i64 = self.j_exec[self.job[t]]
        if self.slice_open[t]:
            return done + now - self.slice_start[t]
        if self.corunner[self.unit[t]] == t:
            return done + now - self.corun_since[self.unit[t]]
        return done

    def get_remaining(self, t: i64, now: i64) -> i64:
        """Return the remaining work of a task's job (ns), alone on the board."""
        g: i64 = self.first[t] + self.current[t]
        progresses: i64 = self.slice_open[t] and not self.overhead[t]
        runs: i64 = self.timed[t] and (progresses or self.corunner[self.unit[t]] == t)
        rest: i64 = self.work_left[t] + (1 << SHIFT) - 1 >> SHIFT
        if self.up[t] == self.down[t] and self.pace[t] == self.g_time[g] and self.base_pace[t] == self.g_time[g]:
            # common case: execution as planned, with nothing to scale
            if runs:
                rest -= now - self.updated_at[t]
            return (rest if rest > 0 else 0) + self.g_rest[g]
        if runs:
            if self.pace[t] != self.base_pace[t]:
                rest = scale_ceil(rest, self.pace[t], self.base_pace[t])
            rest -= now - self.updated_at[t]
            if rest < 0:
                rest = 0
            if self.get_segment_time(t, g) != self.pace[t]:
                rest = scale_ceil(rest, self.get_segment_time(t, g), self.pace[t])
        elif self.base_pace[t] > 0 and self.get_segment_time(t, g) != self.base_pace[t]:
            rest = scale_ceil(rest, self.get_segment_time(t, g), self.base_pace[t])
        if self.up[t] == self.down[t]:
            return rest + self.g_rest[g]
        return rest + scale_ceil(self.g_rest[g], self.up[t], self.down[t])

    # -- Engine slots: those that claims run on, and their state.
    #
    # `locked_slots[u]` are slots of a unit that cannot be preempted.
    #
    # `stalled[c]`: its engine is stalled, and its slots do not count as busy.  `last_slots[c]`: the slots a claim last
    # ran on.  `grouping`: the grouping in which each slot was last used.  `resident[t]`: when weights in the engine's
    # memory were last used (0: not in memory); `stored_bytes[e]`: bytes occupied there.
    #
    # A unit whose engine lingers stays in the context of the process `context[u]`, which has held it since
    # `context_since[u]` and last used it at `context_used_at[u]`, even while nothing runs there.
    #
    # The co-runner of a unit (`Progress`) runs with `host[u]`, and draws `corun_power[u]` more.

    def make_slots(self, tables: dict[str, Any]) -> None:
        self.resident = self.fill(self.tasks, 0)
        self.last_slots = self.fill_sets(self.claims)
        self.locked = self.fill(self.claims, 0)
        self.stalled = self.fill(self.claims, 0)
        self.locked_slots = self.fill_sets(self.units)
        self.grouping = self.fill_sets(len(tables["slot_speed"]))
        self.stored_bytes = self.fill(self.engines, 0)
        self.use_count = 0
        self.host = self.fill(self.units, 0)
        self.corun_power = self.fill(self.units, 0)
        self.context = self.fill(self.units, -1)
        self.context_since = self.fill(self.units, 0)
        self.context_used_at = self.fill(self.units, 0)

    def find_slots(self, c: i64, taken: SlotSet) -> SlotSet:
        """Return the slots for a claim while `taken` are unavailable, none if there are too few."""
        mask: SlotSet = self.mask[c]
        wanted: i64 = self.width[c]
        if wanted == 0:
            return no_slots() if overlap(mask, taken) else mask
        if self.running[c] and not overlap(self.slots[c], taken):
            held: SlotSet = self.slots[c]
            return held
        free: SlotSet = subtract(mask, taken)
        if count_slots(free) < wanted:
            return no_slots()
        return self.choose_slots(c, free, wanted)

    def choose_slots(self, c: i64, free: SlotSet, wanted: i64) -> SlotSet:
        """Choose slots: those it last ran on, then idle ones, then those of the least urgent; faster slots first."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        found: SlotSet = no_slots()
        idle: SlotSet = free
        rest: SlotSet
        i: i64
        for i in range(self.running_count[u]):
            if self.running_claims[base + i] != c:
                idle = subtract(idle, self.slots[self.running_claims[base + i]])
        if (
            not self.n_uneven
            and count_slots(self.last_slots[c]) == wanted
            and not has_any(subtract(self.last_slots[c], idle))
        ):
            found = self.last_slots[c]
            return found
        while wanted and has_any(idle):
            rest = slot_set(self.find_fastest(c, idle))
            found = unite(found, rest)
            idle = subtract(idle, rest)
            wanted -= 1
        i = self.order_length[u] - 1
        while wanted and i >= 0:
            other: i64 = self.order[base + i]
            i -= 1
            if other == c or not self.running[other]:
                continue
            rest = intersect(self.slots[other], subtract(free, found))
            while wanted and has_any(rest):
                slot: i64 = first_slot(rest)
                found = unite(found, slot_set(slot))
                rest = subtract(rest, slot_set(slot))
                wanted -= 1
        return no_slots() if wanted else found

    def find_fastest(self, c: i64, idle: SlotSet) -> i64:
        """Return the fastest of some slots; ties go to a slot the claim last ran on, then to the first."""
        best: i64 = -1
        rest: SlotSet = intersect(idle, self.last_slots[c])
        if not self.n_uneven:
            return first_slot(rest) if has_any(rest) else first_slot(idle)
        slot0: i64 = self.n_slot0[self.u_engine[self.unit[c]]]
        rest = idle
        while has_any(rest):
            slot: i64 = first_slot(rest)
            rest = subtract(rest, slot_set(slot))
            if (
                best < 0
                or self.slot_speed[slot0 + slot] > self.slot_speed[slot0 + best]
                or (
                    self.slot_speed[slot0 + slot] == self.slot_speed[slot0 + best]
                    and contains(self.last_slots[c], slot) > contains(self.last_slots[c], best)
                )
            ):
                best = slot
        return best

    def admit_context(self, u: i64, c: i64, now: i64) -> i64:
        """Return whether a lingering unit admits a claim; if not, schedule a dispatch for when it may."""
        process: i64 = self.t_process[c if c < self.tasks else c - self.tasks]
        e: i64 = self.u_engine[u]
        if self.context[u] < 0 or self.context[u] == process:
            return 1
        if self.running_count[u]:
            return 0
        spent: i64 = now - self.context_since[u]
        gives_up: i64 = self.context_used_at[u] + self.n_linger[e]
        if now >= gives_up or (spent > 0 and spent % self.n_quantum[e] == 0):
            return 1
        turn: i64 = self.context_since[u] + (spent // self.n_quantum[e] + 1) * self.n_quantum[e]
        self.schedule_dispatch(u, turn if turn < gives_up else gives_up)
        return 0

    def lock(self, c: i64) -> None:
        """Make a running claim's slots non-preemptible."""
        self.locked[c] = 1
        self.locked_slots[self.unit[c]] = unite(self.locked_slots[self.unit[c]], self.slots[c])

    def unlock(self, c: i64) -> None:
        """Make a claim's slots preemptible again."""
        self.locked[c] = 0
        self.locked_slots[self.unit[c]] = subtract(self.locked_slots[self.unit[c]], self.slots[c])

    def occupy_slots(self, c: i64, slots: SlotSet, now: i64) -> None:
        """Assign slots to a claim."""
        u: i64 = self.unit[c]
        self.running[c] = 1
        self.running_claims[self.u_order0[u] + self.running_count[u]] = c
        self.running_count[u] += 1
        self.slots[c] = slots
        if self.n_linger[self.u_engine[u]]:
            process: i64 = self.t_process[c if c < self.tasks else c - self.tasks]
            if self.context[u] != process:
                self.context[u], self.context_since[u] = process, now
            self.context_used_at[u] = now
        self.occupy_engine(self.u_engine[u], count_slots(slots), now)

    def release_slots(self, c: i64, now: i64) -> None:
        """Release a claim's slots."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = 0
        if not self.running[c]:
            return
        self.running[c] = 0
        self.context_used_at[u] = now
        if self.locked[c]:
            self.unlock(c)
        while self.running_claims[base + at] != c:
            at += 1
        self.running_count[u] -= 1
        while at < self.running_count[u]:
            self.running_claims[base + at] = self.running_claims[base + at + 1]
            at += 1
        if self.stalled[c]:
            self.stalled[c] = 0
        else:
            self.occupy_engine(self.u_engine[u], -count_slots(self.slots[c]), now)

    def busy_wait(self, t: i64, home: i64, now: i64) -> None:
        """Replace the working claim by the busy-waiting one on the home slots."""
        i: i64
        u: i64 = self.unit[t]
        self.unit[home], self.width[home] = u, self.width[t]
        self.mask[home] = self.mask[t]
        self.slots[home] = self.slots[t]
        self.last_slots[home] = self.last_slots[t]
        self.key0[home], self.key1[home] = self.key0[t], self.key1[t]
        self.running[home], self.locked[home], self.stalled[home] = 1, self.locked[t], self.stalled[t]
        self.running[t] = self.locked[t] = self.stalled[t] = 0
        self.remove_claim(t)
        self.insert_claim(home)
        for i in range(self.running_count[u]):
            if self.running_claims[self.u_order0[u] + i] == t:
                self.running_claims[self.u_order0[u] + i] = home
        self.open_slice(home, now, 1)
        self.mark_dirty(u)

    def return_to_engine(self, t: i64, home: i64, now: i64) -> None:
        """Replace the busy-waiting claim on the home slots by the working one."""
        i: i64
        u: i64 = self.unit[home]
        ran: i64 = self.running[home]
        self.close_slice(home, now)
        self.remove_claim(home)
        self.unit[t], self.width[t] = u, self.width[home]
        self.mask[t] = self.mask[home]
        self.slots[t] = self.slots[home]
        self.last_slots[t] = self.last_slots[home]
        self.key0[t], self.key1[t] = self.key0[home], self.key1[home]
        self.running[t], self.locked[t], self.stalled[t] = ran, self.locked[home], self.stalled[home]
        self.running[home] = self.locked[home] = self.stalled[home] = 0
        self.insert_claim(t)
        self.mark_dirty(u)
        if ran:
            for i in range(self.running_count[u]):
                if self.running_claims[self.u_order0[u] + i] == home:
                    self.running_claims[self.u_order0[u] + i] = t
            self.begin_segment(t, now)

    def stop_corunning(self, u: i64, now: i64) -> None:
        """Stop the co-runner of a unit."""
        c: i64 = self.corunner[u]
        if c < 0:
            return
        self.corunner[u] = -1
        self.corunner_count -= 1
        self.dram_changed = 1
        self.power_now -= self.corun_power[u]
        self.corun_energy += 1.0 * self.corun_power[u] * (now - self.corun_since[u])
        self.events.set(c, FAR)
        self.advance(c, now)
        self.timed[c] = 0
        self.j_exec[self.job[c]] += now - self.corun_since[u]
        if self.u_fair[u]:
            self.charge_vruntime(c, now - self.corun_since[u])
        host: i64 = self.host[u]
        if self.corun_time[host]:
            self.corun_time[host] = 0
            self.update_pace(host, now)

    def update_pace(self, t: i64, now: i64) -> None:
        """Update a job to the present pace of its slots."""
        if self.slice_open[t] and not self.overhead[t]:
            if self.on_dram[t]:
                self.dram_changed = 1
            else:
                self.set_pace(t, self.apply_slowdown(t, self.get_segment_time(t, self.first[t] + self.current[t])), now)

    def regroup_slots(self, e: i64, slots: SlotSet, t: i64) -> None:
        """Charge for regrouping slots that were last used in another grouping."""
        rest: SlotSet = slots
        changed: i64 = 0
        while has_any(rest):
            slot: i64 = first_slot(rest)
            rest = subtract(rest, slot_set(slot))
            slot += self.n_slot0[e]
            if has_any(self.grouping[slot]) and not equal(self.grouping[slot], slots):
                changed = 1
            self.grouping[slot] = slots
        if changed:
            self.overhead[t] += self.n_reshape[e]

    def load_weights(self, e: i64, t: i64) -> None:
        """Fetch weights that are not in the engine's memory, evicting the least recently used ones."""
        other: i64
        self.use_count += 1
        if self.resident[t]:
            self.resident[t] = self.use_count
            return
        while self.stored_bytes[e] + self.t_weight_bytes[t] > self.n_memory[e]:
            oldest: i64 = -1
            for other in range(self.tasks):
                if (
                    self.resident[other]
                    and self.u_engine[self.g_unit[self.t_first[other]]] == e
                    and (oldest < 0 or self.resident[other] < self.resident[oldest])
                ):
                    oldest = other
            if oldest < 0:
                break
            self.resident[oldest] = 0
            self.stored_bytes[e] -= self.t_weight_bytes[oldest]
        self.resident[t] = self.use_count
        self.stored_bytes[e] += self.t_weight_bytes[t]
        self.overhead[t] += scale_ceil(self.t_weight_bytes[t], 1000000000, self.n_swap_rate[e])

    # -- The life cycle of a job: promotion by its task, completion or removal, and the resulting clock changes and
    # stalls.
    #
    # Waiting jobs of a task are linked from `head[t]` to `tail[t]`, `waiting[t]` of them.
    #
    # `owes_switch[t]`: the job must pay for a switch when it resumes.  `launch_limit[t]`: the segment after which it
    # launches no more (-1: none); `launched_until[t]`: the same, due to a more urgent job on another engine.
    # `blocked_since[t]`: instant since which it waits for non-preemptible work (-1: it does not).  `resumed_at[t]`: the
    # segment at which it was last resumed.  `over_up[t]` / `over_down[t]`: how long its job runs beyond its time at the
    # low level of criticality, as a share of that time.  `utilization[t]`: its utilization of its engine in 2**-20, for
    # clocks following the load.

    def make_jobs(self, tables: dict[str, Any]) -> None:
        self.waiting = self.fill(self.tasks, 0)
        self.owes_switch = self.fill(self.tasks, 0)
        self.utilization = self.fill(self.tasks, 0)
        self.over_up = self.fill(self.tasks, 0)
        self.over_down = self.fill(self.tasks, 1)
        self.head = self.fill(self.tasks, -1)
        self.tail = self.fill(self.tasks, -1)
        self.launch_limit = self.fill(self.tasks, -1)
        self.launched_until = self.fill(self.tasks, -1)
        self.resumed_at = self.fill(self.tasks, 0)
        self.blocked_since = self.fill(self.tasks, -1)
        streams: i64 = tables["numbers"]["streams"]
        self.random_numbers = self.fill(streams * DRAWS, 0)
        self.random_next = self.fill(streams, DRAWS)

    def promote(self, t: i64, job: i64, now: i64) -> i64:
        """Make a waiting job its task's current one; return 0 if it would be late and is skipped instead."""
        late: i64 = self.t_on_late[t]
        self.job[t] = job
        self.first[t], self.count[t] = self.t_first[t], self.t_count[t]
        self.launch_limit[t] = self.launched_until[t] = -1
        self.up[t] = self.down[t] = 1
        if self.t_stream[t] >= 0:
            self.draw_time(t)
        if (
            self.t_overrun_stream[t] >= 0
            and (self.draw_random(self.t_overrun_stream[t]) >> 9) < self.t_overrun_chance[t]
        ):
            # an overrun multiplies the job's drawn execution time
            self.scale_time(t, self.t_overrun_up[t], self.t_overrun_down[t])
            self.record_instant(
                now, OVERRUN, t, self.j_frame[job], self.t_overrun_up[t] * 1000000 // self.t_overrun_down[t]
            )
        hopeless: i64 = late and now + scale_ceil(self.t_cost[t], self.up[t], self.down[t]) > self.j_deadline[job]
        if hopeless and late == SKIP:
            self.record_instant(now, SKIPPED, t, self.j_frame[job], 0)
            self.end_job(t, job, now, DROPPED)
            self.job[t] = -1
            return 0
        if hopeless and late == DEGRADE and self.t_degraded[t]:
            self.first[t], self.count[t] = self.t_degraded0[t], self.t_degraded[t]
        elif self.t_over[t] and self.up[t] > self.down[t]:
            # its planned work takes its time, and the excess is a segment after it
            self.over_up[t], self.over_down[t] = self.up[t] - self.down[t], self.down[t]
            self.up[t] = self.down[t] = 1
            self.count[t] += 1
        if late == ABORT:
            self.events.set(self.abort_event0 + t, self.j_deadline[job] if self.j_deadline[job] > now else now)
        self.current[t] = 0
        self.load_segment(t, self.first[t])
        self.set_claim(t, self.first[t])
        if self.n_governor[self.u_engine[self.unit[t]]]:
            self.set_clock(t, self.t_cost[t], now)
        if self.u_reservations[self.unit[t]]:
            self.replenish(t, now)
        self.reset_waiting(t, now)
        if self.u_fair[self.unit[t]]:
            self.catch_up_vruntime(t, now)
        self.resumed_at[t] = 0
        self.enqueue(t, now)
        return 1

    def draw_time(self, t: i64) -> None:
        """Draw this job's execution time: a sample, or a point between two quantiles."""
        drawn: i64 = self.draw_random(self.t_stream[t]) >> 30
        size: i64 = self.t_times[t]
        if self.t_interpolate[t]:
            at: i64 = drawn * (size - 1) >> 32
            rest: i64 = drawn * (size - 1) - (at << 32)
            value: i64 = self.times[self.t_times0[t] + at]
            # 2**12 steps between two quantiles keep the product small
            value += (self.times[self.t_times0[t] + at + 1] - value) * (rest >> 20) >> 12
        else:
            value = self.times[self.t_times0[t] + (drawn * size >> 32)]
        self.up[t], self.down[t] = value, self.t_cost[t]

    def scale_time(self, t: i64, up: i64, down: i64) -> None:
        """Scale this job's duration by `up` / `down`; rounded up if the fraction grows too large."""
        if self.up[t] < 2147483648 and self.down[t] < 2147483648 and up < 2147483648 and down < 2147483648:
            self.up[t] *= up
            self.down[t] *= down
        else:
            self.up[t] = scale_ceil(self.up[t], up, down)

    def draw_random(self, stream: i64) -> i64:
        """Return a random number from 0 to 2**62 - 1."""
        at: i64 = self.random_next[stream]
        i: i64
        base: i64 = stream * DRAWS
        if at == DRAWS:
            fresh = self.hooks.draw_numbers(stream)
            for i in range(DRAWS):
                self.random_numbers[base + i] = fresh[i]
            at = 0
        self.random_next[stream] = at + 1
        return self.random_numbers[base + at]

    def promote_next(self, t: i64, now: i64) -> None:
        """Promote the oldest waiting job of a task that is not skipped."""
        taken: i64 = 0
        self.blocked_since[t] = -1
        if self.t_on_late[t] == ABORT:
            self.events.set(self.abort_event0 + t, FAR)
        while self.head[t] >= 0 and not taken:
            job: i64 = self.head[t]
            self.head[t] = self.j_next[job]
            if self.head[t] >= 0:
                self.j_previous[self.head[t]] = -1
            else:
                self.tail[t] = -1
            self.waiting[t] -= 1
            taken = self.promote(t, job, now)

    def remove_job(self, t: i64, now: i64, status: i64) -> None:
        """Remove a task's current job, in whatever state it is."""
        job: i64 = self.job[t]
        home: i64 = self.tasks + t
        claim: i64
        self.stop_corunning(self.unit[t], now)
        for claim in (home, t):
            if self.queued[claim]:
                if self.running[claim]:
                    if self.slice_open[claim]:
                        self.close_slice(claim, now)
                    if claim == t and self.on_dram[t]:
                        self.leave_dram(t)
                    self.release_slots(claim, now)
                self.remove_claim(claim)
        self.events.set(t, FAR)
        self.mark_dirty(self.unit[t])
        self.owes_switch[t] = self.overhead[t] = self.timed[t] = 0
        self.end_job(t, job, now, status)
        self.job[t] = -1
        self.promote_next(t, now)

    def set_clock(self, t: i64, cost: i64, now: i64) -> None:
        """Set the slowest clock that still carries the load: cycle-conserving EDF (Pillai & Shin, SOSP 2001).

        A task counts with its worst case until it ends, then with its actual execution time until its next job.
        """
        e: i64 = self.u_engine[self.g_unit[self.t_first[t]]]
        within: i64 = self.t_deadline[t]
        if 0 < self.t_period[t] < within:
            within = self.t_period[t]
        u: i64
        level: i64 = 0
        need: i64 = 0
        base: i64 = e * self.levels
        top: i64 = self.n_clock[base + self.levels - 1]
        self.utilization[t] = scale_ceil(cost, 1 << SHIFT, within) if self.t_period[t] else 0
        # capped, since such a load is never attainable, so that sums over many tasks stay below 2**63
        if self.utilization[t] > 1099511627776:
            self.utilization[t] = 1099511627776
        for u in range(self.units):
            if self.u_engine[u] == e and self.find_required_speed(u) > need:
                need = self.find_required_speed(u)
        if need > 2 << SHIFT:
            need = 2 << SHIFT
        while level < self.n_top[e] and self.n_clock[base + level] << SHIFT < need * top:
            level += 1
        if level != self.n_level[e]:
            self.charge_busy(e, now)
            self.n_level[e] = level
            self.adapt_engine(e, now)

    def find_required_speed(self, u: i64) -> i64:
        """Return the speed at which a unit's slots carry its load under EDF, in 2**-20 of full speed.

        One slot: the sum U.  Several slots open to any job: (U + (m - 1) u_max) / m (Goossens, Funk & Baruah, RTS 25
        2003; their proof compares rates of work at every instant, so it holds for changing speeds).  Otherwise U again:
        the most urgent job always has its slots, so that work proceeds at least as fast as on one slot.
        """
        other: i64
        slot: i64
        sum: i64 = 0
        most: i64 = 0
        for other in range(self.tasks):
            if self.g_unit[self.t_first[other]] == u:
                sum += self.utilization[other]
                if self.utilization[other] > most:
                    most = self.utilization[other]
        count: i64 = count_slots(self.u_mask[u])
        if self.u_global[u]:
            sum = (sum + (count - 1) * most + count - 1) // count
        slowest: i64 = 1024
        first: i64 = self.n_slot0[self.u_engine[u]]
        for slot in range(self.n_slots[self.u_engine[u]] if self.n_uneven else 0):
            if contains(self.u_mask[u], slot) and self.slot_speed[first + slot] < slowest:
                slowest = self.slot_speed[first + slot]
        return sum if slowest == 1024 else scale_ceil(sum, 1024, slowest)

    def adapt_engine(self, e: i64, now: i64) -> None:
        """Adapt running jobs to changed clocks, faults or stalls of an engine."""
        u: i64
        engine: i64
        if self.record and self.n_level[e] != self.recorded_level[e]:
            self.recorded_level[e] = self.n_level[e]
            self.write_level(e, self.n_level[e], now)
        for u in range(self.units):
            if self.u_engine[u] == e:
                self.stop_corunning(u, now)
        self.power_now = 0
        for engine in range(self.engines):
            self.power_now += self.busy[engine] * self.n_power[engine * self.levels + self.n_level[engine]]
        for u in range(self.units):
            if self.corunner[u] >= 0:
                self.power_now += self.corun_power[u]
        for u in range(self.units):
            if self.u_engine[u] != e:
                continue
            self.mark_dirty(u)
            i: i64 = 0
            while i < self.running_count[u]:
                c: i64 = self.running_claims[self.u_order0[u] + i]
                t: i64 = c if c < self.tasks else c - self.tasks
                if self.n_stalled[e] == 2:
                    self.remove_job(t, now, ABORTED)
                    i = 0
                    continue
                i += 1
                if self.n_stalled[e]:
                    self.stall_claim(c, now)
                    continue
                if self.stalled[c]:
                    self.stalled[c] = 0
                    self.occupy_engine(e, count_slots(self.slots[c]), now)
                if not self.slice_open[c]:
                    if self.u_preemption[u] != SEGMENT or self.locked[c]:
                        if c < self.tasks:
                            self.begin_segment(c, now)
                        else:
                            self.open_slice(c, now, 1)
                elif c < self.tasks:
                    self.update_pace(c, now)

    def stall_claim(self, c: i64, now: i64) -> None:
        """Suspend a claim on a stalled engine: it keeps its slots and makes no progress."""
        if not self.stalled[c]:
            self.stalled[c] = 1
            self.occupy_engine(self.u_engine[self.unit[c]], -count_slots(self.slots[c]), now)
        if self.slice_open[c]:
            self.close_slice(c, now)
            if c < self.tasks:
                self.events.set(c, FAR)
                if not self.overhead[c]:
                    self.advance(c, now)
                    if self.on_dram[c]:
                        self.leave_dram(c)

    # -- From data to jobs: joins, queues of tasks, and the triggers of a finished job.
    #
    # `latest` is the newest output of every task and source; `marked_queues` lists tasks whose queue must be checked.
    #
    # A join of several inputs waits in `join_count` and `join_release` (the oldest release) from `t_join0` on, by frame
    # modulo `t_join`: an input that lags by more frames than that is lost.  `high`: whether the level of criticality is
    # high, at which work of the low level is dropped.

    def make_queues(self, tables: dict[str, Any]) -> None:
        self.marked_queues = self.fill(self.tasks, 0)
        self.queue_marked = self.fill(self.tasks, 0)
        self.depth = self.fill(self.tasks, 0)
        self.join_frame = self.fill(self.join_size, -1)
        self.join_count = self.fill(self.join_size, 0)
        self.join_release = self.fill(self.join_size, 0)
        self.latest = self.fill(self.tasks + self.sources, -1)
        self.marked_count = self.high = 0

    def deliver(self, t: i64, frame: i64, release: i64, now: i64) -> None:
        """Deliver data of a frame to a task, creating a job once all inputs have arrived."""
        if self.t_inputs[t] > 1:
            release = self.join_inputs(t, frame, release)
        if release < FAR:
            job: i64 = self.allocate_job(frame, now, release, release + self.t_deadline[t])
            self.released[t] += 1
            if self.high and self.t_low[t]:
                self.record_instant(now, SHED, t, frame, 0)
                self.end_job(t, job, now, DROPPED)
            elif self.job[t] < 0:
                self.promote(t, job, now)
            else:
                self.j_previous[job] = self.tail[t]
                if self.tail[t] >= 0:
                    self.j_next[self.tail[t]] = job
                else:
                    self.head[t] = job
                self.tail[t] = job
                self.waiting[t] += 1
            self.mark_queue(t)

    def join_inputs(self, t: i64, frame: i64, release: i64) -> i64:
        """Return the oldest release of the joined inputs, FAR as long as any is missing."""
        at: i64 = self.t_join0[t] + frame % self.t_join[t]
        if self.join_frame[at] != frame:
            self.join_frame[at], self.join_count[at], self.join_release[at] = frame, 0, release
        self.join_count[at] += 1
        if release < self.join_release[at]:
            self.join_release[at] = release
        if self.join_count[at] < self.t_inputs[t]:
            return FAR
        self.join_frame[at] = -1
        return self.join_release[at]

    def mark_queue(self, t: i64) -> None:
        """Mark the queue of a task to be checked before this instant ends."""
        if not self.queue_marked[t]:
            self.queue_marked[t] = 1
            self.marked_queues[self.marked_count] = t
            self.marked_count += 1

    def count_waiting(self, t: i64) -> i64:
        """Return the number of a task's jobs that have not begun."""
        return self.waiting[t] + (self.job[t] >= 0 and self.j_start[self.job[t]] < 0)

    def limit_queues(self, now: i64) -> None:
        """Drop the excess frames of the queues that changed."""
        i: i64 = 0
        while i < self.marked_count:
            t: i64 = self.marked_queues[i]
            self.queue_marked[t] = 0
            i += 1
            depth: i64 = self.count_waiting(t)
            while depth > self.t_queue[t]:
                # dropping a job may drop others too: those behind it that would be late anyway
                self.drop_job(t, now)
                depth = self.count_waiting(t)
            if depth != self.depth[t]:
                self.depth[t] = depth
                if self.record:
                    self.write_depth(t, depth, now)
        self.marked_count = 0

    def drop_job(self, t: i64, now: i64) -> None:
        """Drop a frame from a queue that is too long: its newest, or its oldest if the latest takes precedence."""
        job: i64 = self.job[t]
        oldest: i64 = self.t_overflow[t] == LATEST
        if self.tail[t] >= 0 and not (oldest and self.j_start[job] < 0):
            job = self.head[t] if oldest else self.tail[t]
            after: i64 = self.j_next[job]
            if self.j_previous[job] >= 0:
                self.j_next[self.j_previous[job]] = after
            else:
                self.head[t] = after
            if after >= 0:
                self.j_previous[after] = self.j_previous[job]
            else:
                self.tail[t] = self.j_previous[job]
            self.waiting[t] -= 1
            self.record_instant(now, QUEUE_FULL, t, self.j_frame[job], self.t_queue[t])
            self.end_job(t, job, now, DROPPED)
        else:
            self.record_instant(now, QUEUE_FULL, t, self.j_frame[job], self.t_queue[t])
            self.remove_job(t, now, DROPPED)

    def raise_level(self, t: i64, now: i64) -> None:
        """Begin the high level of criticality with an overrun of a task: drop the jobs of the low level that wait."""
        other: i64
        for other in range(0 if self.high else self.tasks):
            if not self.t_low[other]:
                continue
            while self.head[other] >= 0:
                job: i64 = self.head[other]
                self.head[other] = self.j_next[job]
                self.waiting[other] -= 1
                self.record_instant(now, SHED, other, self.j_frame[job], 0)
                self.end_job(other, job, now, DROPPED)
            self.tail[other] = -1
            if self.job[other] >= 0 and self.j_start[self.job[other]] < 0:
                self.record_instant(now, SHED, other, self.j_frame[self.job[other]], 0)
                self.remove_job(other, now, DROPPED)
            self.mark_queue(other)
        if not self.high:
            self.high = 1
            self.record_instant(now, RAISED, t, self.j_frame[self.job[t]], 0)

    def start_job(self, t: i64, now: i64) -> None:
        """Start a job for the first time: sample its inputs."""
        job: i64 = self.job[t]
        self.j_start[job] = now
        if self.has_chains:
            self.chains.record_start(t, self.j_frame[job], self.latest)
        if self.record and self.t_reads[t]:
            self.write_sample(t, job, self.latest)
        if self.depth[t]:
            self.mark_queue(t)

    def complete_job(self, t: i64, now: i64) -> None:
        """Complete a job: deliver its output and promote the next job."""
        job: i64 = self.job[t]
        frame: i64 = self.j_frame[job]
        release: i64 = self.j_release[job]
        home: i64 = self.tasks + t
        i: i64
        if self.queued[home]:
            if self.running[home]:
                self.close_slice(home, now)
                self.release_slots(home, now)
            self.remove_claim(home)
        if now > self.j_deadline[job]:
            self.late[t] += 1
            self.record_instant(now, MISS, t, frame, now - self.j_deadline[job])
        self.release_slots(t, now)
        self.remove_claim(t)
        self.latest[t] = frame
        # its last segment may have run on another engine
        if self.n_governor[self.u_engine[self.g_unit[self.t_first[t]]]]:
            self.set_clock(t, scale_ceil(self.t_cost[t], self.up[t], self.down[t]), now)
        self.end_job(t, job, now, DONE)
        if self.has_chains:
            self.chains.record_end(t, frame, now)
        self.job[t] = -1
        self.promote_next(t, now)
        for i in range(self.t_successors0[t], self.t_successors0[t] + self.t_successors[t]):
            self.deliver(self.successors[i], frame, release, now)

    def move_job(self, t: i64, g: i64, now: i64) -> None:
        """Move a job to its next segment's slots: release the present ones or busy-wait on them, and queue there."""
        home: i64 = self.tasks + t
        holds: i64 = self.g_hold[g]
        self.reset_level(t)
        if self.queued[home] and not holds:
            # back on the home slots: the claim that busy-waited there continues with the work
            self.waits_start[t] = self.g_waits0[g]
            if self.running[t]:
                self.release_slots(t, now)
            self.remove_claim(t)
            self.return_to_engine(t, home, now)
        else:
            if holds and not self.queued[home]:
                self.busy_wait(t, home, now)
            else:
                self.release_slots(t, now)
                self.remove_claim(t)
            self.set_claim(t, g)
            self.enqueue(t, now)

    # -- Co-running jobs on an engine that one of them occupies as a whole: admission of a co-runner, and the pace of
    # both.
    #
    # A host, the only running claim of its unit, may have one co-runner; tables hold the durations of pairs.
    #
    # `corun_closed[u]`: a co-runner's segment ended during the host's present one, and no other is admitted to it.

    def make_corunners(self, tables: dict[str, Any]) -> None:
        self.corun_closed = self.fill(self.units, 0)

    def admit_corunner(self, u: i64, now: i64) -> None:
        """Admit the first waiting job that may co-run with the running one."""
        host: i64 = self.running_claims[self.u_order0[u]]
        alone: i64 = self.running_count[u] == 1 and host < self.tasks
        if alone and self.slice_open[host] and not self.overhead[host] and not self.corun_closed[u]:
            t: i64 = self.find_corunner(u, host)
            if t >= 0:
                self.start_corunner(u, host, t, now)

    def find_corunner(self, u: i64, host: i64) -> i64:
        """Return the first waiting job that may co-run with a host (-1: none)."""
        base: i64 = self.u_order0[u]
        i: i64
        g: i64 = self.first[host] + self.current[host]
        for i in range(self.order_length[u]):
            t: i64 = self.order[base + i]
            if t == host or t >= self.tasks or self.running[t]:
                continue
            own: i64 = self.first[t] + self.current[t]
            pair: i64 = self.g_class[g] * self.classes + self.g_class[own]
            if self.corunner_times[pair]:
                return t
        return -1

    def start_corunner(self, u: i64, host: i64, t: i64, now: i64) -> None:
        """Start a job as a co-runner now."""
        g: i64 = self.first[host] + self.current[host]
        own: i64 = self.first[t] + self.current[t]
        pair: i64 = self.g_class[g] * self.classes + self.g_class[own]
        self.corunner[u], self.host[u], self.corun_since[u] = t, host, now
        self.corunner_count += 1
        self.dram_changed = 1
        if self.j_start[self.job[t]] < 0:
            self.start_job(t, now)
        if self.host_times[pair] != self.g_time[g]:
            self.corun_time[host] = self.host_times[pair]
            self.update_pace(host, now)
        time: i64 = scale_ceil(self.get_segment_time(t, own), self.corunner_times[pair], self.g_time[own])
        self.updated_at[t], self.timed[t] = now, 0
        self.set_pace(t, self.apply_slowdown(t, time), now)
        # work uses the same energy as when it runs alone, spread over its present duration
        e: i64 = self.u_engine[u]
        power: i64 = self.n_power[e * self.levels + self.n_level[e]] * count_slots(self.mask[t])
        if self.width[t]:
            power = self.n_power[e * self.levels + self.n_level[e]] * self.width[t]
        self.corun_power[u] = scale_floor(power, self.g_time[own], self.corunner_times[pair])
        self.power_now += self.corun_power[u]

    def end_corun_segment(self, t: i64, now: i64) -> None:
        """Handle the end of a co-runner's segment."""
        u: i64 = self.unit[t]
        self.stop_corunning(u, now)
        self.corun_closed[u] = self.u_corun_once[u]
        self.current[t] += 1
        if self.current[t] == self.count[t]:
            self.complete_job(t, now)
        else:
            self.load_segment(t, self.first[t] + self.current[t])
        self.mark_dirty(u)

    # -- Dispatching, once per instant: the assignment of slots to ready jobs, and the preemptions it requires.
    #
    # The slots of a unit are assigned greedily in policy order.
    #
    # A claim on fixed slots gets all of them together, a claim on "any" slots those that are free, and jobs of lower
    # priority fill the remainder.  A resuming job first pays for the switch.
    #
    # `assigned[c]`: slots assigned to a claim, for the first `assigned_end` claims of the order.  `preemption_cost[u]`:
    # cost charged to the next job of a unit for having preempted another.

    def make_dispatcher(self, tables: dict[str, Any]) -> None:
        self.assigned = self.fill_sets(self.claims)
        self.preemption_cost = self.fill(self.units, 0)
        self.assigned_end = 0

    def settle(self, now: i64) -> None:
        """Bring dispatching, queues, memory and meters up to date with the events of this instant."""
        while self.dirty_count or self.marked_count:
            i: i64 = 0
            while i < self.dirty_count:
                u: i64 = self.dirty_units[i]
                self.dirty[u] = 0
                i += 1
                if self.u_across[u]:
                    top: i64 = self.find_most_urgent()
                    for u in range(self.units):
                        if self.u_across[u]:
                            self.dispatch_unit(u, now, top)
                else:
                    self.dispatch_unit(u, now, -FAR)
            self.dirty_count = 0
            if self.marked_count:
                self.limit_queues(now)
        if self.dram_changed:
            self.share_dram(now)
        if self.power_now != self.metered_power or self.rate != self.metered_rate:
            self.update_meters(now)

    def find_most_urgent(self) -> i64:
        """Return the first key of the most urgent claim of all units that are scheduled together."""
        u: i64
        found: i64 = FAR
        for u in range(self.units):
            if self.u_across[u] and self.order_length[u] and self.key0[self.order[self.u_order0[u]]] < found:
                found = self.key0[self.order[self.u_order0[u]]]
        return found

    def dispatch_unit(self, u: i64, now: i64, top: i64) -> None:
        """Assign the slots of a unit in order, to claims with a first key of at most `top` unless that is -FAR."""
        if not self.n_stalled[self.u_engine[u]]:
            if self.u_corun[u]:
                self.stop_corunning(u, now)
            # with no claim waiting, all keep their slots in any order
            if self.u_dynamic[u] and (self.order_length[u] > self.running_count[u] or self.u_across[u]):
                self.sort_claims(u, now)
            if top > -FAR:
                self.limit_to_launched(u, top)
            self.assign_slots(u, now, top)
            if self.u_in_flight[u] > 1:
                self.limit_launches(u)
            if self.u_drain[u]:
                self.drain_jobs(u, now)
            self.apply_assignment(u, now)
            if self.u_quantum[u] and self.u_preemption[u] == FULL and self.order_length[u] > self.running_count[u]:
                self.resume_quanta(u, now)
            if self.u_corun[u]:
                self.admit_corunner(u, now)
            if self.u_preemption[u] != FULL and self.u_preemption[u] != RESTART:
                self.account_blocking(u, now)
            if self.u_tick[u] and self.order_length[u] > self.running_count[u]:
                self.schedule_dispatch(u, now + self.u_tick[u] * self.count_ticks(u, now))

    def limit_to_launched(self, u: i64, top: i64) -> None:
        """Limit jobs behind a more urgent one elsewhere to the segments they have launched ahead.

        On engines with several segments in flight, up to that many count as launched, including the running one.
        """
        base: i64 = self.u_order0[u]
        i: i64
        for i in range(self.order_length[u]):
            t: i64 = self.order[base + i]
            if t >= self.tasks:
                continue
            if self.key0[t] <= top:
                self.launched_until[t] = -1
            elif self.launched_until[t] < 0:
                self.launched_until[t] = self.find_launched(t) if self.j_start[self.job[t]] >= 0 else self.current[t]
                if self.running[t] and self.u_in_flight[u] > 1:
                    self.launch_limit[t] = self.launched_until[t]

    def find_launched(self, t: i64) -> i64:
        """Return the segment up to which a task has launched its job, assuming it launched as early as possible."""
        found: i64 = self.current[t]
        count: i64 = 0
        index: i64
        for index in range(self.current[t], self.count[t]):
            flight: i64 = self.u_in_flight[self.g_unit[self.first[t] + index]]
            if flight > 1:
                if count == flight:
                    return found
                count += 1
                found = index + 1
        return self.count[t] if count else found

    def assign_slots(self, u: i64, now: i64, top: i64) -> None:
        """Choose slots for the claims on a unit, in order."""
        base: i64 = self.u_order0[u]
        gate: i64 = self.n_linger[self.u_engine[u]]
        everything: SlotSet = self.u_mask[u]
        taken: SlotSet = self.locked_slots[u]
        i: i64
        self.assigned_end = 0
        for i in range(self.order_length[u]):
            if equal(taken, everything):
                break
            c: i64 = self.order[base + i]
            if self.locked[c] or (top > -FAR and self.key0[c] > top and not self.may_continue(c)):
                continue
            if gate and not self.admit_context(u, c, now):
                continue
            slots: SlotSet = self.find_slots(c, taken)
            if has_any(slots):
                self.assigned[c] = slots
                self.assigned_end = i + 1
                taken = unite(taken, slots)

    def may_continue(self, c: i64) -> i64:
        """Return whether a claim's next segment was launched before a more urgent job arrived."""
        return c < self.tasks and self.current[c] < self.launched_until[c]

    def drain_jobs(self, u: i64, now: i64) -> None:
        """Let jobs about to be preempted finish if the policy prefers that."""
        base: i64 = self.u_order0[u]
        i: i64
        j: i64
        for i in range(self.running_count[u]):
            c: i64 = self.running_claims[base + i]
            if self.locked[c] or c >= self.tasks or equal(self.assigned[c], self.slots[c]):
                continue
            stays: i64 = 1
            wanted: i64 = 0
            for j in range(self.order_length[u]):
                other: i64 = self.order[base + j]
                if other != c and other < self.tasks and overlap(self.assigned[other], self.slots[c]):
                    wanted = 1
                    if self.running[other] or not self.should_drain(u, c, other, now):
                        stays = 0
            if stays and wanted:
                for j in range(self.order_length[u]):
                    other = self.order[base + j]
                    if overlap(self.assigned[other], self.slots[c]):
                        self.assigned[other] = no_slots()
                self.assigned[c] = self.slots[c]
                self.assigned_end = self.order_length[u]

    def should_drain(self, u: i64, c: i64, other: i64, now: i64) -> i64:
        """Return whether a running job should finish before a waiting one (`Taking.drain`)."""
        left: i64 = self.get_remaining(c, now)
        waits: i64 = self.get_remaining(other, now)
        # in 2**10 ns: remaining work is rounded at every change of pace
        whole: i64 = (self.t_cost[c] >> 10) + 1
        its: i64 = (self.t_cost[other] >> 10) + 1
        if self.u_drain[u] == SLOWDOWN:
            return product_exceeds(waits >> 10, its, left >> 10, whole)
        return product_exceeds(left >> 10, its, waits >> 10, whole)

    def roll_back(self, t: i64, u: i64) -> None:
        """Restore the work that a restart loses in addition to the running segment."""
        index: i64 = 0
        if not self.u_restart_job[u]:
            index = self.current[t] + self.u_in_flight[u]
            if index > self.count[t]:
                index = self.count[t]
            index -= self.u_in_flight[u]
            if index < self.resumed_at[t]:
                index = self.resumed_at[t]
        # segments run on another unit stay done
        while self.current[t] > index and self.g_unit[self.first[t] + self.current[t] - 1] == u:
            self.current[t] -= 1
        self.resumed_at[t] = self.current[t]

    def apply_assignment(self, u: i64, now: i64) -> None:
        """Preempt the holders of reassigned slots, then dispatch the new owners."""
        base: i64 = self.u_order0[u]
        i: i64 = 0
        while i < self.running_count[u]:
            c: i64 = self.running_claims[base + i]
            if not self.locked[c] and not equal(self.assigned[c], self.slots[c]):
                self.preempt_claim(c, now)
            else:
                i += 1
        for i in range(self.assigned_end):
            c = self.order[base + i]
            if not has_any(self.assigned[c]):
                continue
            if not self.running[c]:
                self.start_claim(c, self.assigned[c], now)
            elif self.u_preemption[u] == SEGMENT and not self.locked[c] and not self.slice_open[c]:
                self.lock(c)
                self.begin_segment(c, now)
            self.assigned[c] = no_slots()

    def limit_launches(self, u: i64) -> None:
        """Stop running jobs behind a more urgent one from launching more; segments in flight still run."""
        base: i64 = self.u_order0[u]
        waits: i64 = 0
        i: i64
        for i in range(self.order_length[u]):
            c: i64 = self.order[base + i]
            if not self.running[c]:
                waits = 1
            elif waits and c < self.tasks and self.launch_limit[c] < 0:
                self.launch_limit[c] = self.current[c] + self.u_in_flight[u]

    def start_claim(self, c: i64, slots: SlotSet, now: i64) -> None:
        """Start a claim on its slots."""
        self.occupy_slots(c, slots, now)
        if c < self.tasks:
            self.resume_job(c, slots, now)
        else:
            if self.u_preemption[self.unit[c]] != FULL:
                self.lock(c)
            self.open_slice(c, now, 1)

    def resume_job(self, t: i64, slots: SlotSet, now: i64) -> None:
        """Start or resume a job on newly assigned slots, after any switch, migration or reload."""
        u: i64 = self.unit[t]
        e: i64 = self.u_engine[u]
        job: i64 = self.job[t]
        if self.j_start[job] < 0:
            self.start_job(t, now)
        if self.owes_switch[t]:
            self.overhead[t] = self.n_switch[e] + self.u_restore[u]
            self.owes_switch[t] = 0
        if self.width[t] and self.j_exec[job] and not equal(self.last_slots[t], slots):
            self.j_migrated[job] += 1
            self.overhead[t] += self.n_migrate[e]
        if self.n_reshape[e]:
            self.regroup_slots(e, slots, t)
        if self.n_memory[e]:
            self.load_weights(e, t)
        self.overhead[t] += self.preemption_cost[u]
        self.preemption_cost[u] = 0
        self.last_slots[t] = slots
        self.launch_limit[t] = self.launched_until[t]
        self.resumed_at[t] = self.current[t]
        if self.u_preemption[u] == SEGMENT or self.u_preemption[u] == NONE:
            self.lock(t)
        self.begin_segment(t, now)

    def preempt_claim(self, c: i64, now: i64) -> None:
        """Take a claim's slots away; progress of its segment is kept unless the engine can only restart it."""
        u: i64 = self.unit[c]
        worked: i64 = c < self.tasks and self.slice_open[c] and not self.overhead[c]
        self.close_slice(c, now)
        if worked:
            self.advance(c, now)
            if self.on_dram[c]:
                self.leave_dram(c)
            if self.u_preemption[u] == RESTART:
                self.record_instant(now, KILLED, c, self.j_frame[self.job[c]], 0)
                self.roll_back(c, u)
                self.load_segment(c, self.first[c] + self.current[c])
                self.preemption_cost[u] = self.u_reset[u]
        self.release_slots(c, now)
        self.corun_closed[u] = 0
        if c < self.tasks:
            if self.u_save[u]:
                self.preemption_cost[u] = self.u_save[u]
            self.j_preempted[self.job[c]] += 1
            self.owes_switch[c] = 1
            self.overhead[c] = 0
            self.end_quantum(c)
            self.events.set(c, FAR)
            if self.u_dynamic[u]:
                # recompute keys for the waiting job: its progress is rounded or lost
                self.set_keys(c, now)

    def account_blocking(self, u: i64, now: i64) -> None:
        """Account for blocking: time during which every obstacle to a job is of lower priority and not preemptible."""
        base: i64 = self.u_order0[u]
        i: i64
        j: i64
        for i in range(self.order_length[u]):
            c: i64 = self.order[base + i]
            if c >= self.tasks:
                continue
            hindered: i64 = 0
            if not self.running[c]:
                for j in range(self.running_count[u]):
                    other: i64 = self.running_claims[base + j]
                    if overlap(self.slots[other], self.mask[c]):
                        hindered = 1
                        if self.precedes(other, c):
                            hindered = 0
                            break
            if hindered:
                if self.blocked_since[c] < 0:
                    self.blocked_since[c] = now
            elif self.blocked_since[c] >= 0:
                self.j_blocked[self.job[c]] += now - self.blocked_since[c]
                self.blocked_since[c] = -1

    # -- the loop

    def make_kernel(self, tables: dict[str, Any]) -> None:
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
            if now > self.end:
                return False
            self.now = now
            if self.next_fault == now:
                self.apply_faults(now)
            while events.times[0] == now:
                self.event_count += 1
                self.handle_event(events.heap[0], now)
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
        """Run the due controllers of clocks in Python."""
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
        for e in range(self.units):
            self.stop_corunning(e, end)
        for e in range(self.engines):
            self.charge_busy(e, end)
        self.power_now, self.rate = self.metered_power, self.metered_rate
        self.update_meters(end)
        return {**self.collect_figures(end), "overdue": overdue, "events": self.event_count}
