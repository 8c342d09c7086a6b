"""Engine slots: those that claims run on, and their state."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import (
        SlotSet,
        contains,
        count_slots,
        equal,
        first_slot,
        has_any,
        intersect,
        no_slots,
        overlap,
        scale_ceil,
        slot_set,
        subtract,
        unite,
    )
    from cython.cimports.socsched_kernel.codes import FAR
    from cython.cimports.socsched_kernel.orders import Orders
else:
    from .arithmetic import (
        SlotSet,
        contains,
        count_slots,
        equal,
        first_slot,
        has_any,
        intersect,
        no_slots,
        overlap,
        scale_ceil,
        slot_set,
        subtract,
        unite,
    )
    from .codes import FAR
    from .orders import Orders


class Slots(Orders):
    """`locked_slots[u]` are slots of a unit that cannot be preempted.

    `stalled[c]`: its engine is stalled, and its slots do not count as busy.  `last_slots[c]`: the slots a claim last
    ran on.  `grouping`: the grouping in which each slot was last used.  `resident[t]`: when weights in the engine's
    memory were last used (0: not in memory); `stored_bytes[e]`: bytes occupied there.

    A unit whose engine lingers stays in the context of the process `context[u]`, which has held it since
    `context_since[u]` and last used it at `context_used_at[u]`, even while nothing runs there.

    The co-runner of a unit (`Progress`) runs with `host[u]`, and draws `corun_power[u]` more.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
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
