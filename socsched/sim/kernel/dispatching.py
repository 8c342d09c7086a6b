"""Dispatching, once an instant: who of the ready gets which lanes, and who has to leave them."""

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
    """The lanes of a unit are given greedily by policy order.

    Fixed ones are taken together, "any" lanes where some are free, and jobs of lower priority fill what is left.  Who
    resumes pays the switch first.

    `chosen[c]`: lanes a claim is to have, of those before `reach` in the order.  `toll[u]`: what the next job of
    a unit pays for having stopped another.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.chosen = self.fill_sets(self.width)
        self.toll = self.fill(self.units, 0)
        self.reach = 0

    def settle(self, now: i64) -> None:
        """Bring everything in line with what happened at this instant."""
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
        """Return the first key of the most urgent claim of all units that are served together."""
        u: i64
        found: i64 = FAR
        for u in range(self.units):
            if self.u_across[u] and self.ordered[u] and self.key0[self.order[self.u_order0[u]]] < found:
                found = self.key0[self.order[self.u_order0[u]]]
        return found

    def dispatch(self, u: i64, now: i64, top: i64) -> None:
        """Give the lanes of a unit to those who come first, of first key `top` at most unless that is -FAR."""
        if not self.n_still[self.u_engine[u]]:
            if self.u_beside[u]:
                self.part(u, now)
            # with nobody waiting all keep their lanes, in whatever order
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
        """Let jobs behind a more urgent one elsewhere do what they launched ahead, and nothing more.

        Launched are, with the running one, as many segments of engines with several in flight as those hold.
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
        """Return up to which segment of its job a task has launched, if it did as soon as it could."""
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
        """Find lanes for the claims on a unit, in their order."""
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
        """Return whether a claim's next segment was launched before somebody more urgent came."""
        return c < self.tasks and self.place[c] < self.ahead[c]

    def spare(self, u: i64, now: i64) -> None:
        """Let jobs finish that are about to be stopped, where the policy finds that better."""
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
        """Return whether a job that runs had better finish before one that waits (`Taking.drain`)."""
        left: i64 = self.remaining(c, now)
        waits: i64 = self.remaining(other, now)
        if self.u_drain[u] == COMPLETION:
            return left <= waits + self.u_save[u] + self.u_restore[u] + self.n_switch[self.u_engine[u]]
        # in 2**10 ns: what is left is rounded at every change of pace
        whole: i64 = (self.t_cost[c] >> 10) + 1
        its: i64 = (self.t_cost[other] >> 10) + 1
        if self.u_drain[u] == SLOWDOWN:
            return larger(waits >> 10, its, left >> 10, whole)
        return larger(left >> 10, its, waits >> 10, whole)

    def go_back(self, t: i64, u: i64) -> None:
        """Have before oneself again what a restart loses besides the running segment."""
        place: i64 = 0
        if not self.u_whole[u]:
            place = self.place[t] + self.u_flight[u]
            if place > self.count[t]:
                place = self.count[t]
            place -= self.u_flight[u]
            if place < self.begun[t]:
                place = self.begun[t]
        # what ran elsewhere is done
        while self.place[t] > place and self.g_unit[self.first[t] + self.place[t] - 1] == u:
            self.place[t] -= 1
        self.begun[t] = self.place[t]

    def exchange(self, u: i64, now: i64) -> None:
        """Stop who has lanes that others are to have, then start those."""
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
        """Tell running jobs behind a more urgent one to launch nothing more; what is in flight still runs."""
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
        """Let a claim have its lanes."""
        self.move_in(c, place, now)
        if c < self.tasks:
            self.resume(c, place, now)
        else:
            if self.u_kind[self.unit[c]] != FULL:
                self.lock(c)
            self.open_slice(c, now, 1)

    def resume(self, t: i64, place: Lanes, now: i64) -> None:
        """Start or resume a job on lanes it just got, after what that takes: a switch, a migration, a reload."""
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
        """Take a claim's lanes away; what its segment has done is kept, unless the engine can only start it again."""
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
                # as it will wait: what it had is rounded or lost
                self.set_keys(c, now)

    def note_blocking(self, u: i64, now: i64) -> None:
        """Book the time of jobs whose every obstacle is of lower priority and could not be preempted."""
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
