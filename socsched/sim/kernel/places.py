"""Places: the lanes claims run on, and the state of those lanes."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import (
        Lanes,
        bits,
        common,
        equal,
        has,
        joined,
        lane_set,
        lowest,
        meets,
        nothing,
        scaled,
        some,
        without,
    )
    from cython.cimports.socsched_kernel.codes import FAR
    from cython.cimports.socsched_kernel.orders import Orders
else:
    from .arithmetic import (
        Lanes,
        bits,
        common,
        equal,
        has,
        joined,
        lane_set,
        lowest,
        meets,
        nothing,
        scaled,
        some,
        without,
    )
    from .codes import FAR
    from .orders import Orders


class Places(Orders):
    """`held[u]` are lanes of a unit that cannot be preempted.

    `frozen[c]`: its engine is stalled, and its lanes do not count as busy.  `last[c]`: the lanes a claim last ran on.
    `shape`: the grouping in which each lane was last used.  `resident[t]`: when weights in the engine's memory were
    last used (0: not in memory); `stored[e]`: bytes occupied there.

    A unit whose engine lingers stays with the process `holder[u]`, which has held it since `held_from[u]` and last used
    it at `used_at[u]`, even while nothing runs there.

    The guest of a unit (`Progress`) has co-run with `host[u]` since `guest_from[u]`, and draws `guest_power[u]` more.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.resident = self.fill(self.tasks, 0)
        self.last = self.fill_sets(self.width)
        self.locked = self.fill(self.width, 0)
        self.frozen = self.fill(self.width, 0)
        self.held = self.fill_sets(self.units)
        self.shape = self.fill_sets(len(tables["lane_speed"]))
        self.stored = self.fill(self.engines, 0)
        self.uses = 0
        self.host = self.fill(self.units, 0)
        self.guest_from = self.fill(self.units, 0)
        self.guest_power = self.fill(self.units, 0)
        self.holder = self.fill(self.units, -1)
        self.held_from = self.fill(self.units, 0)
        self.used_at = self.fill(self.units, 0)

    def find_place(self, c: i64, taken: Lanes) -> Lanes:
        """Return the lanes for a claim while `taken` are unavailable, none if there are too few."""
        mask: Lanes = self.mask[c]
        wanted: i64 = self.wide[c]
        if wanted == 0:
            return nothing() if meets(mask, taken) else mask
        if self.running[c] and not meets(self.lanes[c], taken):
            held: Lanes = self.lanes[c]
            return held
        free: Lanes = without(mask, taken)
        if bits(free) < wanted:
            return nothing()
        return self.pick(c, free, wanted)

    def pick(self, c: i64, free: Lanes, wanted: i64) -> Lanes:
        """Choose lanes: those it last ran on, then idle ones, then those of the least urgent; faster lanes first."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        found: Lanes = nothing()
        idle: Lanes = free
        rest: Lanes
        i: i64
        for i in range(self.runs[u]):
            if self.run[base + i] != c:
                idle = without(idle, self.lanes[self.run[base + i]])
        if not self.n_uneven and bits(self.last[c]) == wanted and not some(without(self.last[c], idle)):
            found = self.last[c]
            return found
        while wanted and some(idle):
            rest = lane_set(self.fastest(c, idle))
            found = joined(found, rest)
            idle = without(idle, rest)
            wanted -= 1
        i = self.ordered[u] - 1
        while wanted and i >= 0:
            other: i64 = self.order[base + i]
            i -= 1
            if other == c or not self.running[other]:
                continue
            rest = common(self.lanes[other], without(free, found))
            while wanted and some(rest):
                lane: i64 = lowest(rest)
                found = joined(found, lane_set(lane))
                rest = without(rest, lane_set(lane))
                wanted -= 1
        return nothing() if wanted else found

    def fastest(self, c: i64, idle: Lanes) -> i64:
        """Return the fastest of some lanes; ties go to a lane the claim last ran on, then to the first."""
        best: i64 = -1
        rest: Lanes = common(idle, self.last[c])
        if not self.n_uneven:
            return lowest(rest) if some(rest) else lowest(idle)
        lane0: i64 = self.n_lane0[self.u_engine[self.unit[c]]]
        rest = idle
        while some(rest):
            lane: i64 = lowest(rest)
            rest = without(rest, lane_set(lane))
            if (
                best < 0
                or self.lane_speed[lane0 + lane] > self.lane_speed[lane0 + best]
                or (
                    self.lane_speed[lane0 + lane] == self.lane_speed[lane0 + best]
                    and has(self.last[c], lane) > has(self.last[c], best)
                )
            ):
                best = lane
        return best

    def admits(self, u: i64, c: i64, now: i64) -> i64:
        """Return whether a lingering unit admits a claim; if not, schedule a dispatch for when it may."""
        process: i64 = self.t_process[c if c < self.tasks else c - self.tasks]
        e: i64 = self.u_engine[u]
        if self.holder[u] < 0 or self.holder[u] == process:
            return 1
        if self.runs[u]:
            return 0
        spent: i64 = now - self.held_from[u]
        gives_up: i64 = self.used_at[u] + self.n_linger[e]
        if now >= gives_up or (spent > 0 and spent % self.n_slice[e] == 0):
            return 1
        turn: i64 = self.held_from[u] + (spent // self.n_slice[e] + 1) * self.n_slice[e]
        self.wake(u, turn if turn < gives_up else gives_up)
        return 0

    def lock(self, c: i64) -> None:
        """Make a running claim's lanes non-preemptible."""
        self.locked[c] = 1
        self.held[self.unit[c]] = joined(self.held[self.unit[c]], self.lanes[c])

    def unlock(self, c: i64) -> None:
        """Make a claim's lanes preemptible again."""
        self.locked[c] = 0
        self.held[self.unit[c]] = without(self.held[self.unit[c]], self.lanes[c])

    def move_in(self, c: i64, place: Lanes, now: i64) -> None:
        """Assign lanes to a claim."""
        u: i64 = self.unit[c]
        self.running[c] = 1
        self.run[self.u_order0[u] + self.runs[u]] = c
        self.runs[u] += 1
        self.lanes[c] = place
        if self.n_linger[self.u_engine[u]]:
            process: i64 = self.t_process[c if c < self.tasks else c - self.tasks]
            if self.holder[u] != process:
                self.holder[u], self.held_from[u] = process, now
            self.used_at[u] = now
        self.occupy(self.u_engine[u], bits(place), now)

    def vacate(self, c: i64, now: i64) -> None:
        """Release a claim's lanes."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = 0
        if not self.running[c]:
            return
        self.running[c] = 0
        self.used_at[u] = now
        if self.locked[c]:
            self.unlock(c)
        while self.run[base + at] != c:
            at += 1
        self.runs[u] -= 1
        while at < self.runs[u]:
            self.run[base + at] = self.run[base + at + 1]
            at += 1
        if self.frozen[c]:
            self.frozen[c] = 0
        else:
            self.occupy(self.u_engine[u], -bits(self.lanes[c]), now)

    def stay(self, t: i64, home: i64, now: i64) -> None:
        """Replace the working claim by the busy-waiting one on the home lanes."""
        i: i64
        u: i64 = self.unit[t]
        self.unit[home], self.wide[home] = u, self.wide[t]
        self.mask[home] = self.mask[t]
        self.lanes[home] = self.lanes[t]
        self.last[home] = self.last[t]
        self.key0[home], self.key1[home] = self.key0[t], self.key1[t]
        self.running[home], self.locked[home], self.frozen[home] = 1, self.locked[t], self.frozen[t]
        self.running[t] = self.locked[t] = self.frozen[t] = 0
        self.unlist(t)
        self.list_claim(home)
        for i in range(self.runs[u]):
            if self.run[self.u_order0[u] + i] == t:
                self.run[self.u_order0[u] + i] = home
        self.open_slice(home, now, 1)
        self.soil(u)

    def come_home(self, t: i64, home: i64, now: i64) -> None:
        """Replace the busy-waiting claim on the home lanes by the working one."""
        i: i64
        u: i64 = self.unit[home]
        ran: i64 = self.running[home]
        self.end_slice(home, now)
        self.unlist(home)
        self.unit[t], self.wide[t] = u, self.wide[home]
        self.mask[t] = self.mask[home]
        self.lanes[t] = self.lanes[home]
        self.last[t] = self.last[home]
        self.key0[t], self.key1[t] = self.key0[home], self.key1[home]
        self.running[t], self.locked[t], self.frozen[t] = ran, self.locked[home], self.frozen[home]
        self.running[home] = self.locked[home] = self.frozen[home] = 0
        self.list_claim(t)
        self.soil(u)
        if ran:
            for i in range(self.runs[u]):
                if self.run[self.u_order0[u] + i] == home:
                    self.run[self.u_order0[u] + i] = t
            self.begin(t, now)

    def part(self, u: i64, now: i64) -> None:
        """Stop the guest of a unit from co-running with its host."""
        c: i64 = self.guest[u]
        if c < 0:
            return
        self.guest[u] = -1
        self.guests -= 1
        self.memory_changed = 1
        self.load_now -= self.guest_power[u]
        self.guest_energy += 1.0 * self.guest_power[u] * (now - self.guest_from[u])
        self.events.set(c, FAR)
        self.advance(c, now)
        self.timed[c] = 0
        self.j_exec[self.job[c]] += now - self.guest_from[u]
        if self.u_weighed[u]:
            self.debit(c, now - self.guest_from[u])
        host: i64 = self.host[u]
        if self.beside[host]:
            self.beside[host] = 0
            self.pace_again(host, now)

    def pace_again(self, t: i64, now: i64) -> None:
        """Update a job to the present pace of its place."""
        if self.sliced[t] and not self.prefix[t]:
            if self.drawing[t]:
                self.memory_changed = 1
            else:
                self.keep_pace(t, self.slowed(t, self.load_time(t, self.first[t] + self.place[t])), now)

    def reshape(self, e: i64, place: Lanes, t: i64) -> None:
        """Charge for regrouping lanes that were last used in another grouping."""
        rest: Lanes = place
        changed: i64 = 0
        while some(rest):
            lane: i64 = lowest(rest)
            rest = without(rest, lane_set(lane))
            lane += self.n_lane0[e]
            if some(self.shape[lane]) and not equal(self.shape[lane], place):
                changed = 1
            self.shape[lane] = place
        if changed:
            self.prefix[t] += self.n_reshape[e]

    def bring(self, e: i64, t: i64) -> None:
        """Fetch weights that are not in the engine's memory, evicting the least recently used ones."""
        other: i64
        self.uses += 1
        if self.resident[t]:
            self.resident[t] = self.uses
            return
        while self.stored[e] + self.t_weights[t] > self.n_memory[e]:
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
            self.stored[e] -= self.t_weights[oldest]
        self.resident[t] = self.uses
        self.stored[e] += self.t_weights[t]
        self.prefix[t] += scaled(self.t_weights[t], 1000000000, self.n_swap[e])
