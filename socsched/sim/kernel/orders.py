"""The order of a unit: the sequence in which the claims on its slots are served."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import scale_ceil
    from cython.cimports.socsched_kernel.codes import FAR, FULL, SHIFT
    from cython.cimports.socsched_kernel.progress import Progress
else:
    from .arithmetic import scale_ceil
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
T_CUSTOM = cython.declare(cython.longlong, 12)
T_CANDIDATE = cython.declare(cython.longlong, 13)
T_CRITICAL = cython.declare(cython.longlong, 14)
T_SERVICE = cython.declare(cython.longlong, 15)
T_BEST_EFFORT = cython.declare(cython.longlong, 16)
MOVING = cython.declare(cython.longlong, 1)
"""Keys that depend on time: only those of running claims (1), or of all claims (2)."""


class Orders(Progress):
    """Claims on the slots of unit u, `order[u_order0[u] + i]` for i below `order_length[u]`, by two keys and number.

    `running_claims[u_order0[u] + i]` are the running ones, `running_count[u]` of them.

    `dirty_units` lists the units to dispatch before this instant ends; `dispatch_at[u]` is the next dispatch of a unit
    by time alone.  `latest_start[t]`: latest instant at which a job must resume to be in time (computed only if the
    order uses it).
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
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

    def sort_claims(self, u: i64, now: i64, anew: i64) -> i64:
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
                changed = 1
            else:
                last, last0, last1 = c, first, then
        return changed

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
