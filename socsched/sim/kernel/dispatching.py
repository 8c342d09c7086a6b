"""Dispatching, once per instant: the assignment of lanes to ready jobs, and the preemptions it requires."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import Lanes, equal, joined, larger, meets, nothing, some
    from cython.cimports.socsched_kernel.codes import (
        COMPLETION,
        FAR,
        FULL,
        KILLED,
        NONE,
        RESTART,
        SEGMENT,
        SLOWDOWN,
    )
    from cython.cimports.socsched_kernel.guests import Guests
else:
    from .arithmetic import Lanes, equal, joined, larger, meets, nothing, some
    from .codes import COMPLETION, FAR, FULL, KILLED, NONE, RESTART, SEGMENT, SLOWDOWN
    from .guests import Guests


class Dispatcher(Guests):
    """The lanes of a unit are assigned greedily in policy order.

    A claim on fixed lanes gets all of them together, a claim on "any" lanes those that are free, and jobs of lower
    priority fill the remainder.  A resuming job first pays for the switch.

    `chosen[c]`: lanes assigned to a claim, for the first `reach` claims of the order.  `toll[u]`: cost charged to the
    next job of a unit for having preempted another.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.chosen = self.fill_sets(self.width)
        self.toll = self.fill(self.units, 0)
        self.reach = 0

    def settle(self, now: i64) -> None:
        """Bring dispatching, queues, memory and meters up to date with the events of this instant."""
        while self.dirts or self.touches:
            i: i64 = 0
            while i < self.dirts:
                u: i64 = self.dirt[i]
                self.dirty[u] = 0
                i += 1
                if self.u_across[u]:
                    top: i64 = self.most_urgent()
                    for u in range(self.units):
                        if self.u_across[u]:
                            self.dispatch(u, now, top)
                else:
                    self.dispatch(u, now, -FAR)
            self.dirts = 0
            if self.touches:
                self.limit_queues(now)
        if self.memory_changed:
            self.share(now)
        if self.load_now != self.shown_load or self.rate != self.shown_rate:
            self.read_meters(now)

    def most_urgent(self) -> i64:
        """Return the first key of the most urgent claim of all units that are scheduled together."""
        u: i64
        found: i64 = FAR
        for u in range(self.units):
            if self.u_across[u] and self.ordered[u] and self.key0[self.order[self.u_order0[u]]] < found:
                found = self.key0[self.order[self.u_order0[u]]]
        return found

    def dispatch(self, u: i64, now: i64, top: i64) -> None:
        """Assign the lanes of a unit in order, to claims with a first key of at most `top` unless that is -FAR."""
        if not self.n_still[self.u_engine[u]]:
            if self.u_beside[u]:
                self.part(u, now)
            # with no claim waiting, all keep their lanes in any order
            if self.u_dynamic[u] and (self.ordered[u] > self.runs[u] or self.u_across[u]):
                self.sort(u, now, 0)
            if top > -FAR:
                self.hold_back(u, top)
            self.choose(u, now, top)
            if self.u_flight[u] > 1:
                self.ask_to_stop(u)
            if self.u_drain[u]:
                self.spare(u, now)
            self.exchange(u, now)
            if self.u_quantum[u] and self.u_kind[u] == FULL and self.ordered[u] > self.runs[u]:
                self.resume_turns(u, now)
            if self.u_beside[u]:
                self.accompany(u, now)
            if self.u_kind[u] != FULL and self.u_kind[u] != RESTART:
                self.note_blocking(u, now)
            if self.u_tick[u] and self.ordered[u] > self.runs[u]:
                self.wake(u, now + self.u_tick[u] * self.ticks_until(u, now))

    def hold_back(self, u: i64, top: i64) -> None:
        """Limit jobs behind a more urgent one elsewhere to the segments they have launched ahead.

        On engines with several segments in flight, up to that many count as launched, including the running one.
        """
        base: i64 = self.u_order0[u]
        i: i64
        for i in range(self.ordered[u]):
            t: i64 = self.order[base + i]
            if t >= self.tasks:
                continue
            if self.key0[t] <= top:
                self.ahead[t] = -1
            elif self.ahead[t] < 0:
                self.ahead[t] = self.launched(t) if self.j_start[self.job[t]] >= 0 else self.place[t]
                if self.running[t] and self.u_flight[u] > 1:
                    self.stop[t] = self.ahead[t]

    def launched(self, t: i64) -> i64:
        """Return the segment up to which a task has launched its job, assuming it launched as early as possible."""
        found: i64 = self.place[t]
        count: i64 = 0
        place: i64
        for place in range(self.place[t], self.count[t]):
            flight: i64 = self.u_flight[self.g_unit[self.first[t] + place]]
            if flight > 1:
                if count == flight:
                    return found
                count += 1
                found = place + 1
        return self.count[t] if count else found

    def choose(self, u: i64, now: i64, top: i64) -> None:
        """Choose lanes for the claims on a unit, in order."""
        base: i64 = self.u_order0[u]
        gate: i64 = self.n_linger[self.u_engine[u]]
        everything: Lanes = self.u_mask[u]
        taken: Lanes = self.held[u]
        i: i64
        self.reach = 0
        for i in range(self.ordered[u]):
            if equal(taken, everything):
                break
            c: i64 = self.order[base + i]
            if self.locked[c] or (top > -FAR and self.key0[c] > top and not self.goes_on(c)):
                continue
            if gate and not self.admits(u, c, now):
                continue
            place: Lanes = self.find_place(c, taken)
            if some(place):
                self.chosen[c] = place
                self.reach = i + 1
                taken = joined(taken, place)

    def goes_on(self, c: i64) -> i64:
        """Return whether a claim's next segment was launched before a more urgent job arrived."""
        return c < self.tasks and self.place[c] < self.ahead[c]

    def spare(self, u: i64, now: i64) -> None:
        """Let jobs about to be preempted finish if the policy prefers that."""
        base: i64 = self.u_order0[u]
        i: i64
        j: i64
        for i in range(self.runs[u]):
            c: i64 = self.run[base + i]
            if self.locked[c] or c >= self.tasks or equal(self.chosen[c], self.lanes[c]):
                continue
            stays: i64 = 1
            wanted: i64 = 0
            for j in range(self.ordered[u]):
                other: i64 = self.order[base + j]
                if other != c and other < self.tasks and meets(self.chosen[other], self.lanes[c]):
                    wanted = 1
                    if self.running[other] or not self.finishes(u, c, other, now):
                        stays = 0
            if stays and wanted:
                for j in range(self.ordered[u]):
                    other = self.order[base + j]
                    if meets(self.chosen[other], self.lanes[c]):
                        self.chosen[other] = nothing()
                self.chosen[c] = self.lanes[c]
                self.reach = self.ordered[u]

    def finishes(self, u: i64, c: i64, other: i64, now: i64) -> i64:
        """Return whether a running job should finish before a waiting one (`Taking.drain`)."""
        left: i64 = self.remaining(c, now)
        waits: i64 = self.remaining(other, now)
        if self.u_drain[u] == COMPLETION:
            return left <= waits + self.u_save[u] + self.u_restore[u] + self.n_switch[self.u_engine[u]]
        # in 2**10 ns: remaining work is rounded at every change of pace
        whole: i64 = (self.t_cost[c] >> 10) + 1
        its: i64 = (self.t_cost[other] >> 10) + 1
        if self.u_drain[u] == SLOWDOWN:
            return larger(waits >> 10, its, left >> 10, whole)
        return larger(left >> 10, its, waits >> 10, whole)

    def go_back(self, t: i64, u: i64) -> None:
        """Restore the work that a restart loses in addition to the running segment."""
        place: i64 = 0
        if not self.u_whole[u]:
            place = self.place[t] + self.u_flight[u]
            if place > self.count[t]:
                place = self.count[t]
            place -= self.u_flight[u]
            if place < self.begun[t]:
                place = self.begun[t]
        # segments run on another unit stay done
        while self.place[t] > place and self.g_unit[self.first[t] + self.place[t] - 1] == u:
            self.place[t] -= 1
        self.begun[t] = self.place[t]

    def exchange(self, u: i64, now: i64) -> None:
        """Preempt the holders of reassigned lanes, then dispatch the new owners."""
        base: i64 = self.u_order0[u]
        i: i64 = 0
        while i < self.runs[u]:
            c: i64 = self.run[base + i]
            if not self.locked[c] and not equal(self.chosen[c], self.lanes[c]):
                self.preempt(c, now)
            else:
                i += 1
        for i in range(self.reach):
            c = self.order[base + i]
            if not some(self.chosen[c]):
                continue
            if not self.running[c]:
                self.start(c, self.chosen[c], now)
            elif self.u_kind[u] == SEGMENT and not self.locked[c] and not self.sliced[c]:
                self.lock(c)
                self.begin(c, now)
            self.chosen[c] = nothing()

    def ask_to_stop(self, u: i64) -> None:
        """Stop running jobs behind a more urgent one from launching more; segments in flight still run."""
        base: i64 = self.u_order0[u]
        waits: i64 = 0
        i: i64
        for i in range(self.ordered[u]):
            c: i64 = self.order[base + i]
            if not self.running[c]:
                waits = 1
            elif waits and c < self.tasks and self.stop[c] < 0:
                self.stop[c] = self.place[c] + self.u_flight[u]

    def start(self, c: i64, place: Lanes, now: i64) -> None:
        """Start a claim on its lanes."""
        self.move_in(c, place, now)
        if c < self.tasks:
            self.resume(c, place, now)
        else:
            if self.u_kind[self.unit[c]] != FULL:
                self.lock(c)
            self.open_slice(c, now, 1)

    def resume(self, t: i64, place: Lanes, now: i64) -> None:
        """Start or resume a job on newly assigned lanes, after any switch, migration or reload."""
        u: i64 = self.unit[t]
        e: i64 = self.u_engine[u]
        slot: i64 = self.job[t]
        if self.j_start[slot] < 0:
            self.take_up(t, now)
        if self.owes[t]:
            self.prefix[t] = self.n_switch[e] + self.u_restore[u]
            self.owes[t] = 0
        if self.wide[t] and self.j_exec[slot] and not equal(self.last[t], place):
            self.j_migrated[slot] += 1
            self.prefix[t] += self.n_migrate[e]
        if self.n_reshape[e]:
            self.reshape(e, place, t)
        if self.n_memory[e]:
            self.bring(e, t)
        self.prefix[t] += self.toll[u]
        self.toll[u] = 0
        self.last[t] = place
        self.stop[t] = self.ahead[t]
        self.begun[t] = self.place[t]
        if self.u_kind[u] == SEGMENT or self.u_kind[u] == NONE:
            self.lock(t)
        self.begin(t, now)

    def preempt(self, c: i64, now: i64) -> None:
        """Take a claim's lanes away; progress of its segment is kept unless the engine can only restart it."""
        u: i64 = self.unit[c]
        worked: i64 = c < self.tasks and self.sliced[c] and not self.prefix[c]
        self.end_slice(c, now)
        if worked:
            self.advance(c, now)
            if self.drawing[c]:
                self.leave_memory(c)
            if self.u_kind[u] == RESTART:
                self.note(now, KILLED, c, self.j_frame[self.job[c]], 0)
                self.go_back(c, u)
                self.load(c, self.first[c] + self.place[c])
                self.toll[u] = self.u_reset[u]
        self.vacate(c, now)
        self.sated[u] = 0
        if c < self.tasks:
            if self.u_save[u]:
                self.toll[u] = self.u_save[u]
            self.j_preempted[self.job[c]] += 1
            self.owes[c] = 1
            self.prefix[c] = 0
            self.end_turn(c)
            self.events.set(c, FAR)
            if self.u_dynamic[u]:
                # recompute keys for the waiting job: its progress is rounded or lost
                self.set_keys(c, now)

    def note_blocking(self, u: i64, now: i64) -> None:
        """Account for blocking: time during which every obstacle to a job is of lower priority and not preemptible."""
        base: i64 = self.u_order0[u]
        i: i64
        j: i64
        for i in range(self.ordered[u]):
            c: i64 = self.order[base + i]
            if c >= self.tasks:
                continue
            hindered: i64 = 0
            if not self.running[c]:
                for j in range(self.runs[u]):
                    other: i64 = self.run[base + j]
                    if meets(self.lanes[other], self.mask[c]):
                        hindered = 1
                        if self.before(other, c):
                            hindered = 0
                            break
            if hindered:
                if self.blocked[c] < 0:
                    self.blocked[c] = now
            elif self.blocked[c] >= 0:
                self.j_blocked[self.job[c]] += now - self.blocked[c]
                self.blocked[c] = -1
