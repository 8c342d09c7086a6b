"""Dispatching, once per instant: the assignment of slots to ready jobs, and the preemptions it requires."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import (
        SlotSet,
        equal,
        has_any,
        no_slots,
        overlap,
        product_exceeds,
        unite,
    )
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
    from cython.cimports.socsched_kernel.corunning import CoRunners
else:
    from .arithmetic import SlotSet, equal, has_any, no_slots, overlap, product_exceeds, unite
    from .codes import COMPLETION, FAR, FULL, KILLED, NONE, RESTART, SEGMENT, SLOWDOWN
    from .corunning import CoRunners


class Dispatcher(CoRunners):
    """The slots of a unit are assigned greedily in policy order.

    A claim on fixed slots gets all of them together, a claim on "any" slots those that are free, and jobs of lower
    priority fill the remainder.  A resuming job first pays for the switch.

    `assigned[c]`: slots assigned to a claim, for the first `assigned_end` claims of the order.  `preemption_cost[u]`:
    cost charged to the next job of a unit for having preempted another.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
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
                self.sort_claims(u, now, 0)
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
        if self.u_drain[u] == COMPLETION:
            return left <= waits + self.u_save[u] + self.u_restore[u] + self.n_switch[self.u_engine[u]]
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
