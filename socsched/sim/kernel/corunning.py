"""Co-running jobs on an engine that one of them occupies as a whole: admission of a co-runner, and the pace of both."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import count_slots, scale_ceil, scale_floor
    from cython.cimports.socsched_kernel.queues import Queues
else:
    from .arithmetic import count_slots, scale_ceil, scale_floor
    from .queues import Queues


class CoRunners(Queues):
    """A host, the only running claim of its unit, may have one co-runner; tables hold the durations of pairs.

    `corun_closed[u]`: a co-runner's segment ended during the host's present one, and no other is admitted to it.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.corun_closed = self.fill(self.units, 0)

    def admit_corunner(self, u: i64, now: i64) -> None:
        """Admit the first waiting job that may co-run with the running one."""
        host: i64 = self.running_claims[self.u_order0[u]]
        alone: i64 = self.running_count[u] == 1 and host < self.tasks
        if alone and self.slice_open[host] and not self.overhead[host] and not self.corun_closed[u]:
            t: i64 = self.find_corunner(u, host, now)
            if t >= 0:
                self.start_corunner(u, host, t, now)

    def find_corunner(self, u: i64, host: i64, now: i64) -> i64:
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
            if self.corunner_times[pair] and (not self.u_corun_sooner[u] or self.ends_sooner(host, t, pair, now)):
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
        # a batch may have changed the co-runner's remaining work, but not its position
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

    def ends_sooner(self, host: i64, t: i64, pair: i64, now: i64) -> i64:
        """Return whether co-running at present paces gives a smaller sum of both end times than running in sequence."""
        g: i64 = self.first[host] + self.current[host]
        own: i64 = self.first[t] + self.current[t]
        left: i64 = self.get_remaining(host, now)
        mine: i64 = self.get_remaining(t, now)
        left_corun: i64 = scale_ceil(left, self.host_times[pair], self.g_time[g])
        mine_corun: i64 = scale_ceil(mine, self.corunner_times[pair], self.g_time[own])
        alone: i64 = 2 * left + mine
        if mine_corun <= left_corun:
            # the co-runner ends first, and the host completes its work alone
            rest: i64 = left - scale_ceil(mine_corun, self.g_time[g], self.host_times[pair])
            return 2 * mine_corun + rest < alone
        rest = mine - scale_ceil(left_corun, self.g_time[own], self.corunner_times[pair])
        return 2 * left_corun + rest < alone

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
