"""The order of a unit: the sequence in which the claims on its lanes are served."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scaled
    from cython.cimports.socsched_kernel.codes import FAR, FULL, SHIFT
    from cython.cimports.socsched_kernel.progress import Progress
else:
    from .arithmetic import scaled
    from .codes import FAR, FULL, SHIFT
    from .progress import Progress

# terms of a policy's order (`sim.policies`)
T_PRIORITY = cython.declare(cython.longlong, 1)
T_DEADLINE = cython.declare(cython.longlong, 2)
T_ACTIVATION = cython.declare(cython.longlong, 3)
T_PERIOD = cython.declare(cython.longlong, 4)
T_RELATIVE = cython.declare(cython.longlong, 5)
T_CRITICALITY = cython.declare(cython.longlong, 6)
T_LAXITY = cython.declare(cython.longlong, 7)
T_TURN = cython.declare(cython.longlong, 8)
T_SERVER = cython.declare(cython.longlong, 9)
T_REMAINING = cython.declare(cython.longlong, 10)
T_COST = cython.declare(cython.longlong, 11)
T_ASKED = cython.declare(cython.longlong, 12)
T_CANDIDATE = cython.declare(cython.longlong, 13)
T_CRITICAL = cython.declare(cython.longlong, 14)
T_SERVICE = cython.declare(cython.longlong, 15)
T_BEST_EFFORT = cython.declare(cython.longlong, 16)
MOVING = cython.declare(cython.longlong, 1)
"""Keys that depend on time: only those of running claims (1), or of all claims (2)."""


class Orders(Progress):
    """Claims on the lanes of unit u, `order[u_order0[u] + i]` for i below `ordered[u]`, by two keys and their number.

    `run[u_order0[u] + i]` are the running ones, `runs[u]` of them.

    `dirt` lists the units to dispatch before this instant ends; `wakes[u]` is the next dispatch of a unit by time
    alone.  `latest_start[t]`: latest instant at which a job must resume to be in time (computed only if the order uses
    it).
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        self.key0 = self.fill(self.width, 0)
        self.key1 = self.fill(self.width, 0)
        self.listed = self.fill(self.width, 0)
        self.latest_start = self.fill(self.tasks, 0)
        self.order = self.fill(self.order_room, 0)
        self.run = self.fill(self.order_room, 0)
        self.runs = self.fill(self.units, 0)
        self.ordered = self.fill(self.units, 0)
        self.dirty = self.fill(self.units, 0)
        self.dirt = self.fill(self.units, 0)
        self.wakes = self.fill(self.units, 0)
        self.dirts = self.turns = 0

    def enlist(self, t: i64, now: i64) -> None:
        """Insert a task's claim into the order of its unit."""
        u: i64 = self.unit[t]
        self.set_keys(t, now)
        if not (self.throttled[t] and self.u_serves[u]):
            self.list_claim(t)
            if self.u_quantum[u] and self.u_kind[u] == FULL:
                self.resume_turns(u, now)
        self.soil(u)

    def catch_up(self, t: i64, now: i64) -> None:
        """Raise a returning task's service to at least that of the task on the unit with the least."""
        u: i64 = self.unit[t]
        least: i64 = FAR
        i: i64
        for i in range(self.ordered[u]):
            c: i64 = self.order[self.u_order0[u] + i]
            if c < self.tasks:
                had: i64 = self.had(c, now)
                if had < least:
                    least = had
        if least < FAR and least > self.least[u]:
            self.least[u] = least
        if self.service[t] < self.least[u]:
            self.service[t] = self.least[u]

    def resume_turns(self, u: i64, now: i64) -> None:
        """Schedule the ends of running turns, because a job waits."""
        i: i64
        for i in range(self.runs[u]):
            c: i64 = self.run[self.u_order0[u] + i]
            if c < self.tasks and self.turn[c]:
                if self.turn[c] < now:
                    passed: i64 = (now - self.turn[c] + self.u_quantum[u] - 1) // self.u_quantum[u]
                    self.turn[c] += passed * self.u_quantum[u]
                if self.events.place[self.from_turn + c] < 0:
                    self.events.set(self.from_turn + c, self.turn[c])

    def aim(self, t: i64, g: i64) -> None:
        """Claim the lanes of a segment."""
        self.unit[t], self.wide[t], self.levels_at[t] = self.g_unit[g], self.g_width[g], self.g_levels[g]
        self.mask[t] = self.g_mask[g]

    def list_claim(self, c: i64) -> None:
        """Insert a claim at its place in the order."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = self.ordered[u]
        while at > 0:
            other: i64 = self.order[base + at - 1]
            if self.before(other, c):
                break
            self.order[base + at] = other
            at -= 1
        self.order[base + at] = c
        self.ordered[u] += 1
        self.listed[c] = 1

    def unlist(self, c: i64) -> None:
        """Remove a claim from the order."""
        u: i64 = self.unit[c]
        base: i64 = self.u_order0[u]
        at: i64 = 0
        if not self.listed[c]:
            return
        order: cython.p_longlong = self.order
        while order[base + at] != c:
            at += 1
        last: i64 = base + self.ordered[u] - 1
        self.ordered[u] -= 1
        at += base
        while at < last:
            order[at] = order[at + 1]
            at += 1
        self.listed[c] = 0
        if c < self.tasks:
            # the next unit may not use turns
            self.end_turn(c)
            if self.u_weighed[u] and not self.ordered[u] and self.service[c] > self.least[u]:
                self.least[u] = self.service[c]
        self.soil(u)

    def requeue(self, t: i64, now: i64) -> None:
        """Move a task whose quantum is over to the end of the round."""
        u: i64 = self.unit[t]
        if not self.listed[t]:
            pass
        elif self.u_term0[u] == T_TURN and not self.u_term1[u]:
            # no turn is later, so the end of the order is its place
            base: i64 = self.u_order0[u]
            at: i64 = 0
            while self.order[base + at] != t:
                at += 1
            while at < self.ordered[u] - 1:
                self.order[base + at] = self.order[base + at + 1]
                at += 1
            self.order[base + at] = t
            self.set_keys(t, now)
            self.end_turn(t)
            self.soil(u)
        else:
            self.unlist(t)
            self.enlist(t, now)

    def soil(self, u: i64) -> None:
        """Mark a unit for dispatching before this instant ends."""
        if not self.dirty[u]:
            self.dirty[u] = 1
            self.dirt[self.dirts] = u
            self.dirts += 1

    def wake(self, u: i64, instant: i64) -> None:
        """Schedule a dispatch of a unit at an instant, replacing the previous one."""
        place: i64 = self.events.place[self.from_tick + u]
        self.wakes[u] = instant
        # a premature event is postponed when it fires: the instant moves far more often than it is reached
        if place < 0 or self.events.times[place] > instant:
            self.events.set(self.from_tick + u, instant)

    def before(self, a: i64, b: i64) -> i64:
        """Return whether claim `a` is served before claim `b`."""
        if self.key0[a] != self.key0[b]:
            return self.key0[a] < self.key0[b]
        if self.key1[a] != self.key1[b]:
            return self.key1[a] < self.key1[b]
        return a < b

    def sort(self, u: i64, now: i64, anew: i64) -> i64:
        """Re-sort a unit by time-dependent keys or, with `anew`, by new terms; return whether the order changed."""
        # columns in local names: the C compiler cannot know that writes to them move none of them
        order: cython.p_longlong = self.order
        key0: cython.p_longlong = self.key0
        key1: cython.p_longlong = self.key1
        running: cython.p_longlong = self.running
        base: i64 = self.u_order0[u]
        tasks: i64 = self.tasks
        code: i64 = self.u_term0[u]
        moving: i64 = self.u_dynamic[u] == MOVING and not anew
        # if keys change only for running claims, the second key mostly does not
        second: i64 = moving and self.u_term1[u] in (T_LAXITY, T_REMAINING, T_SERVICE)
        tokens: i64 = moving and self.u_tokens[u]
        edge: i64 = now + self.u_margin[u]
        changed: i64 = 0
        last: i64 = -1
        last0: i64 = 0
        last1: i64 = 0
        i: i64
        if tokens:
            self.count_tokens(u, now)
        for i in range(self.ordered[u]):
            c: i64 = order[base + i]
            if c >= tasks:
                key0[c], key1[c] = key0[c - tasks], key1[c - tasks]
            elif not moving:
                self.set_keys(c, now)
            else:
                if tokens:
                    key0[c] = self.candidate(u, c)
                elif running[c]:
                    key0[c] = self.had(c, now) if code == T_SERVICE else self.term(code, c, now)
                elif code == T_CRITICAL:
                    key0[c] = self.latest_start[c] >= edge
                if second and running[c]:
                    key1[c] = self.term(self.u_term1[u], c, now)
            first: i64 = key0[c]
            then: i64 = key1[c]
            if last >= 0 and (first < last0 or (first == last0 and (then < last1 or (then == last1 and c < last)))):
                at: i64 = i
                while at > 0 and self.before(c, order[base + at - 1]):
                    order[base + at] = order[base + at - 1]
                    at -= 1
                order[base + at] = c
                changed = 1
            else:
                last, last0, last1 = c, first, then
        return changed

    def had(self, t: i64, now: i64) -> i64:
        """Return the service a task has received until now."""
        if self.running[t] and self.sliced[t]:
            return self.service[t] + self.share_of(t, now - self.slice_from[t])
        return self.service[t]

    def count_tokens(self, u: i64, now: i64) -> None:
        """Update the waiting times of jobs; candidates are those on the highest level reached."""
        order: cython.p_longlong = self.order
        waited: cython.p_longlong = self.waited
        since: cython.p_longlong = self.waits_from
        base: i64 = self.u_order0[u]
        bar: i64 = 0
        i: i64
        for i in range(self.ordered[u]):
            t: i64 = order[base + i]
            if t < self.tasks:
                if not self.running[t]:
                    waited[t] += now - since[t]
                since[t] = now
                level: i64 = self.level_of(u, t)
                if level > bar:
                    bar = level
        self.bar[u] = bar

    def ticks_until(self, u: i64, now: i64) -> i64:
        """Return the number of ticks after which a unit's order may have changed by time alone, at least 1."""
        order: cython.p_longlong = self.order
        key0: cython.p_longlong = self.key0
        running: cython.p_longlong = self.running
        base: i64 = self.u_order0[u]
        count: i64 = self.ordered[u]
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
            for i in range(self.runs[u]):
                c = self.run[base + i]
                step: i64 = tick
                if code == T_SERVICE:
                    step = self.share_of(c if c < self.tasks else c - self.tasks, tick) + 1
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
        if self.u_term0[u] == T_ASKED:
            slot: i64 = self.job[t]
            keys = self.hooks.asked(
                u, t, self.j_frame[slot], self.j_activation[slot], self.j_release[slot], self.j_deadline[slot],
                self.j_start[slot], self.j_exec[slot], self.remaining(t, now), self.running[t], now,
            )  # fmt: skip
            self.key0[t], self.key1[t] = keys
        else:
            self.key0[t] = self.term(self.u_term0[u], t, now)
            self.key1[t] = self.term(self.u_term1[u], t, now)

    def term(self, code: i64, t: i64, now: i64) -> i64:
        """Return a term of the order (`sim.policies.Term`)."""
        slot: i64 = self.job[t]
        if code == T_DEADLINE:
            return self.j_deadline[slot]
        if code == T_ACTIVATION:
            return self.j_activation[slot]
        if code == T_PRIORITY:
            return self.t_priority[t]
        if code == T_PERIOD:
            return self.t_period[t]
        if code == T_RELATIVE:
            return self.t_deadline[t]
        if code == T_CRITICALITY:
            return self.t_criticality[t]
        if code == T_LAXITY:
            return self.j_deadline[slot] - self.remaining(t, now)
        if code == T_TURN:
            self.turns += 1
            return self.turns
        if code == T_SERVER:
            return self.server[t] if self.t_budget[t] else self.j_deadline[slot]
        if code == T_REMAINING:
            return self.remaining(t, now)
        if code == T_COST:
            return self.t_cost[t]
        if code == T_CANDIDATE:
            return self.candidate(self.unit[t], t)
        if code == T_CRITICAL:
            self.latest_start[t] = self.j_deadline[slot] - self.remaining(t, now)
            return self.latest_start[t] - now >= self.u_margin[self.unit[t]]
        if code == T_BEST_EFFORT:
            return self.t_criticality[t] == 2
        if code == T_SERVICE:
            return self.had(t, now)
        return 0

    def remaining(self, t: i64, now: i64) -> i64:
        """Return the remaining work of a task's job (ns), alone on the board."""
        g: i64 = self.first[t] + self.place[t]
        rest: i64 = self.left[t] + (1 << SHIFT) - 1 >> SHIFT
        if self.up[t] == self.down[t] and self.pace[t] == self.g_time[g] and self.base[t] == self.g_time[g]:
            # common case: execution as planned, with nothing to scale
            if self.timed[t] and self.sliced[t] and not self.prefix[t]:
                rest -= now - self.since[t]
            return (rest if rest > 0 else 0) + self.g_rest[g]
        if self.timed[t] and self.sliced[t] and not self.prefix[t]:
            if self.pace[t] != self.base[t]:
                rest = scaled(rest, self.pace[t], self.base[t])
            rest -= now - self.since[t]
            if rest < 0:
                rest = 0
            if self.load_time(t, g) != self.pace[t]:
                rest = scaled(rest, self.load_time(t, g), self.pace[t])
        elif self.base[t] > 0 and self.load_time(t, g) != self.base[t]:
            rest = scaled(rest, self.load_time(t, g), self.base[t])
        if self.up[t] == self.down[t]:
            return rest + self.g_rest[g]
        return rest + scaled(self.g_rest[g], self.up[t], self.down[t])
