"""Co-running jobs on an engine that one of them occupies as a whole: admission of a guest, and the pace of both."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import bits, portion, scaled
    from cython.cimports.socsched_kernel.queues import Queues
else:
    from .arithmetic import bits, portion, scaled
    from .queues import Queues


class Guests(Queues):
    """A host, the only running claim of its unit, may have one guest; tables hold the durations of pairs.

    `sated[u]`: a guest's segment ended during the host's present one, and no other guest is admitted to it.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.sated = self.fill(self.units, 0)

    def accompany(self, u: i64, now: i64) -> None:
        """Admit the first waiting job that fits as a guest of the running one."""
        host: i64 = self.run[self.u_order0[u]]
        alone: i64 = self.runs[u] == 1 and host < self.tasks
        if alone and self.sliced[host] and not self.prefix[host] and not self.sated[u]:
            t: i64 = self.who_fits(u, host, now)
            if t >= 0:
                self.let_in(u, host, t, now)

    def who_fits(self, u: i64, host: i64, now: i64) -> i64:
        """Return the first waiting job that fits with a host (-1: none)."""
        base: i64 = self.u_order0[u]
        i: i64
        g: i64 = self.first[host] + self.place[host]
        for i in range(self.ordered[u]):
            t: i64 = self.order[base + i]
            if t == host or t >= self.tasks or self.running[t]:
                continue
            own: i64 = self.first[t] + self.place[t]
            pair: i64 = self.g_class[g] * self.classes + self.g_class[own]
            if self.guest_time[pair] and (not self.u_weighs[u] or self.gains(host, t, pair, now)):
                return t
        return -1

    def let_in(self, u: i64, host: i64, t: i64, now: i64) -> None:
        """Start a job as a guest now."""
        g: i64 = self.first[host] + self.place[host]
        own: i64 = self.first[t] + self.place[t]
        pair: i64 = self.g_class[g] * self.classes + self.g_class[own]
        self.guest[u], self.host[u], self.guest_from[u] = t, host, now
        self.guests += 1
        self.memory_changed = 1
        if self.j_start[self.job[t]] < 0:
            self.take_up(t, now)
        if self.host_time[pair] != self.g_time[g]:
            self.beside[host] = self.host_time[pair]
            self.pace_again(host, now)
        # a batch may have changed the guest's remaining work, but not its position
        time: i64 = scaled(self.load_time(t, own), self.guest_time[pair], self.g_time[own])
        self.since[t], self.timed[t] = now, 0
        self.keep_pace(t, self.slowed(t, time), now)
        # work uses the same energy as when it runs alone, spread over its present duration
        e: i64 = self.u_engine[u]
        power: i64 = self.n_power[e * self.levels + self.n_level[e]] * bits(self.mask[t])
        if self.wide[t]:
            power = self.n_power[e * self.levels + self.n_level[e]] * self.wide[t]
        self.guest_power[u] = portion(power, self.g_time[own], self.guest_time[pair])
        self.load_now += self.guest_power[u]

    def gains(self, host: i64, t: i64, pair: i64, now: i64) -> i64:
        """Return whether co-running at present paces gives a smaller sum of both end times than running in sequence."""
        g: i64 = self.first[host] + self.place[host]
        own: i64 = self.first[t] + self.place[t]
        left: i64 = self.remaining(host, now)
        mine: i64 = self.remaining(t, now)
        left_beside: i64 = scaled(left, self.host_time[pair], self.g_time[g])
        mine_beside: i64 = scaled(mine, self.guest_time[pair], self.g_time[own])
        alone: i64 = 2 * left + mine
        if mine_beside <= left_beside:
            # the guest ends first, and the host completes its work alone
            rest: i64 = left - scaled(mine_beside, self.g_time[g], self.host_time[pair])
            return 2 * mine_beside + rest < alone
        rest = mine - scaled(left_beside, self.g_time[own], self.guest_time[pair])
        return 2 * left_beside + rest < alone

    def leave(self, t: i64, now: i64) -> None:
        """Handle the end of a guest's segment."""
        u: i64 = self.unit[t]
        self.part(u, now)
        self.sated[u] = self.u_once[u]
        self.place[t] += 1
        if self.place[t] == self.count[t]:
            self.retire(t, now)
        else:
            self.load(t, self.first[t] + self.place[t])
        self.soil(u)
