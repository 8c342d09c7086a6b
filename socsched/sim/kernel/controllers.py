"""Declared controllers (`policies.controllers`): periodic sampling, and the resulting order."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.codes import FAR
    from cython.cimports.socsched_kernel.slack_stealing import SlackStealing
else:
    from .codes import FAR
    from .slack_stealing import SlackStealing

SWITCHING = cython.declare(cython.longlong, 1)
FEATURES = cython.declare(cython.longlong, 10)
"""Number of features a choice is based on (`policies.learned.FEATURES`)."""
CHOICES = cython.declare(cython.longlong, 4)
"""Orders at the present operating point, and the first of them at a slower one."""
SOFT = cython.declare(cython.longlong, 2)


class Controllers(SlackStealing):
    """`controlled` lists units with one, `sample_due[u]` is the next sampling instant, `next_sample` the earliest.

    Samples are not events: the loop takes them after the ends and releases of an instant, before jobs are aborted.  A
    unit has its own order `choice[u]` (from `u_choice0[u]` on), classified as calm by a mean load `mean_load[u]`, or
    selected as best by the `features`.  `busy_sampled[u]`: slot time up to the last sample.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        u: i64
        self.u_controller = self.own(tables["u_controller"])
        self.u_sampling = self.own(tables["u_sampling"])
        self.u_choice0 = self.own(tables["u_choice0"])
        self.u_sets_clock = self.own(tables["u_sets_clock"])
        self.u_weights0 = self.own(tables["u_weights0"])
        self.c_term0 = self.own(tables["c_term0"])
        self.c_term1 = self.own(tables["c_term1"])
        self.c_dynamic = self.own(tables["c_dynamic"])
        self.c_slow = self.own(tables["c_slow"])
        self.weights = self.own_reals(tables["control_weights"])
        self.mean_load = self.own_reals(array("d", bytes(8 * (self.units + 1))))
        self.features = self.own_reals(array("d", bytes(8 * FEATURES)))
        self.calm = self.fill(self.units, 0)
        self.choice = self.fill(self.units, 0)
        self.sample_due = self.fill(self.units, FAR)
        self.busy_sampled = self.fill(self.units, 0)
        self.controlled = self.fill(self.units, 0)
        self.controlled_count = 0
        self.next_sample = FAR
        for u in range(self.units):
            if self.u_controller[u]:
                self.controlled[self.controlled_count] = u
                self.controlled_count += 1
                self.sample_due[u] = self.u_sampling[u]
                if self.u_sampling[u] < self.next_sample:
                    self.next_sample = self.u_sampling[u]

    def sample_controllers(self, now: i64) -> None:
        """Run the controllers that are due."""
        i: i64
        following: i64 = FAR
        for i in range(self.controlled_count):
            u: i64 = self.controlled[i]
            if self.sample_due[u] <= now:
                self.sample_due[u] = now + self.u_sampling[u]
                load: cython.double = self.measure_load(u, now)
                found: i64 = (
                    self.decide_switching(u, now, load)
                    if self.u_controller[u] == SWITCHING
                    else self.decide_choosing(u, now, load)
                )
                if found != self.choice[u]:
                    self.choice[u] = found
                    self.apply_choice(u, self.u_choice0[u] + found, now)
            if self.sample_due[u] < following:
                following = self.sample_due[u]
        self.next_sample = following

    def measure_load(self, u: i64, now: i64) -> cython.double:
        """Return the share of a unit's engine in use since the last sample."""
        e: i64 = self.u_engine[u]
        level: i64
        spent: i64 = self.busy[e] * (now - self.charged_until[e])
        for level in range(e * self.levels, (e + 1) * self.levels):
            spent += self.busy_time[level]
        used: cython.double = spent - self.busy_sampled[u]
        self.busy_sampled[u] = spent
        return used * self.weights[self.u_weights0[u]]

    def decide_switching(self, u: i64, now: i64, load: float) -> i64:
        """Return 1 if a unit is calm and has slack, by load with hysteresis (`policies.adaptive`)."""
        at: i64 = self.u_weights0[u] + 1
        self.mean_load[u] += (load - self.mean_load[u]) * self.weights[at + 2]
        self.calm[u] = self.mean_load[u] < self.weights[at] or (
            self.calm[u] != 0 and self.mean_load[u] <= self.weights[at + 1]
        )
        if not self.calm[u]:
            return 0
        return self.get_slack(u, now, self.u_sampling[u]) > self.u_sampling[u]

    def decide_choosing(self, u: i64, now: i64, load: float) -> i64:
        """Return the choice with the highest score among the harmless ones (`policies.learned`).

        With too few jobs to choose from, the last choice holds.
        """
        k: i64
        at: i64 = self.u_weights0[u] + 1
        need: i64 = self.u_sampling[u] + 1
        few: i64 = self.order_length[u] < 2 and not self.u_sets_clock[u]
        if (few and self.choice[u] == 0) or self.get_slack(u, now, need) <= need:
            return 0
        if few:
            return self.choice[u]
        self.compute_features(u, now, load)
        # scores are summed in parallel, each from the first feature to the last, so that several additions overlap
        first: cython.double = 0.0
        second: cython.double = 0.0
        third: cython.double = 0.0
        slow: cython.double = 0.0
        for k in range(FEATURES):
            value: cython.double = self.features[k]
            first += self.weights[at] * value
            second += self.weights[at + 1] * value
            third += self.weights[at + 2] * value
            slow += self.weights[at + 3] * value
            at += CHOICES
        found: i64 = 0
        if second > first:
            found, first = 1, second
        if third > first:
            found, first = 2, third
        if self.u_sets_clock[u] and slow > first:
            found = 3
        return found

    def compute_features(self, u: i64, now: i64, load: float) -> None:
        """Compute the features a choice is based on."""
        i: i64
        far: i64 = 2 * self.u_slack_horizon[u]
        soft: i64 = 0
        late: i64 = 0
        work: i64 = 0
        soft_work: i64 = 0
        lax: i64 = far
        soft_lax: i64 = far
        for i in range(self.order_length[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            left: i64 = self.get_remaining(t, now)
            ahead: i64 = self.j_deadline[self.job[t]] - now
            if ahead < 0:
                late -= ahead
            if self.t_criticality[t] == SOFT:
                soft += 1
                soft_work += left
                if ahead - left < soft_lax:
                    soft_lax = ahead - left
            else:
                work += left
                if ahead - left < lax:
                    lax = ahead - left
        # the last of a unit's numbers, after the weights
        unit: cython.double = self.weights[self.u_weights0[u] + 1 + CHOICES * FEATURES]
        self.features[0] = 1.0
        self.features[1] = load
        self.features[2] = self.clamp(self.slack_until[u] - now, unit)
        self.features[3] = self.clamp(self.order_length[u], 0.125)
        self.features[4] = self.clamp(soft, 0.125)
        self.features[5] = self.clamp(lax, unit)
        self.features[6] = self.clamp(soft_lax, unit)
        self.features[7] = self.clamp(late, unit)
        self.features[8] = self.clamp(work, unit)
        self.features[9] = self.clamp(soft_work, unit)

    def clamp(self, value: i64, unit: float) -> cython.double:
        """Return a number in other units, clamped to -2 to 2."""
        part: cython.double = value * unit
        if part > 2.0:
            return 2.0
        if part < -2.0:
            return -2.0
        return part

    def apply_choice(self, u: i64, c: i64, now: i64) -> None:
        """Switch a unit to another order, or to another operating point, from now on."""
        e: i64 = self.u_engine[u]
        if self.u_term0[u] != self.c_term0[c] or self.u_term1[u] != self.c_term1[c]:
            self.u_term0[u], self.u_term1[u] = self.c_term0[c], self.c_term1[c]
            # keys of waiting jobs are constant in all these orders
            self.u_dynamic[u] = self.c_dynamic[c]
            if self.sort_claims(u, now, 1):
                self.mark_dirty(u)
        if self.u_sets_clock[u]:
            level: i64 = self.levels - 1 - self.c_slow[c]
            if level > self.n_top[e]:
                level = self.n_top[e]
            if level != self.n_level[e]:
                self.charge_busy(e, now)
                self.n_level[e] = level
                self.adapt_engine(e, now)
