"""Declared controllers (`policies.control`): periodic sampling, and the resulting order."""

from __future__ import annotations

from array import array
from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.codes import FAR
    from cython.cimports.socsched_kernel.slack import Slack
else:
    from .codes import FAR
    from .slack import Slack

SWITCHING = cython.declare(cython.longlong, 1)
FEATURES = cython.declare(cython.longlong, 10)
"""Number of features a choice is based on (`policies.learned.FEATURES`)."""
CHOICES = cython.declare(cython.longlong, 4)
"""Orders at the present operating point, and the first of them at a slower one."""
SOFT = cython.declare(cython.longlong, 2)


class Steered(Slack):
    """`steered` lists the units with a controller, `look_due[u]` is its next sampling instant, `look_at` the earliest.

    Samples are not events: the loop takes them after the ends and releases of an instant, before jobs are aborted.  A
    unit has its own order `choice[u]` (from `u_choice0[u]` on), classified as calm by a mean load `mean[u]`, or
    selected as best by the features `sight`.  `spent_seen[u]`: lane time up to the last sample.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__(tables, hooks, end, record)
        u: i64
        self.u_steer = self.own(tables["u_steer"])
        self.u_look = self.own(tables["u_look"])
        self.u_choice0 = self.own(tables["u_choice0"])
        self.u_clock = self.own(tables["u_clock"])
        self.u_real0 = self.own(tables["u_real0"])
        self.c_term0 = self.own(tables["c_term0"])
        self.c_term1 = self.own(tables["c_term1"])
        self.c_moves = self.own(tables["c_moves"])
        self.c_slow = self.own(tables["c_slow"])
        self.weights = self.own_reals(tables["reals"])
        self.mean = self.own_reals(array("d", bytes(8 * (self.units + 1))))
        self.sight = self.own_reals(array("d", bytes(8 * FEATURES)))
        self.calm = self.fill(self.units, 0)
        self.choice = self.fill(self.units, 0)
        self.look_due = self.fill(self.units, FAR)
        self.spent_seen = self.fill(self.units, 0)
        self.steered = self.fill(self.units, 0)
        self.steers = 0
        self.look_at = FAR
        for u in range(self.units):
            if self.u_steer[u]:
                self.steered[self.steers] = u
                self.steers += 1
                self.look_due[u] = self.u_look[u]
                if self.u_look[u] < self.look_at:
                    self.look_at = self.u_look[u]

    def look(self, now: i64) -> None:
        """Run the controllers that are due."""
        i: i64
        following: i64 = FAR
        for i in range(self.steers):
            u: i64 = self.steered[i]
            if self.look_due[u] <= now:
                self.look_due[u] = now + self.u_look[u]
                load: cython.double = self.load_of(u, now)
                found: i64 = self.switched(u, now, load) if self.u_steer[u] == SWITCHING else self.best(u, now, load)
                if found != self.choice[u]:
                    self.choice[u] = found
                    self.follow_choice(u, self.u_choice0[u] + found, now)
            if self.look_due[u] < following:
                following = self.look_due[u]
        self.look_at = following

    def load_of(self, u: i64, now: i64) -> cython.double:
        """Return the share of a unit's engine in use since the last sample."""
        e: i64 = self.u_engine[u]
        level: i64
        spent: i64 = self.busy[e] * (now - self.mark[e])
        for level in range(e * self.levels, (e + 1) * self.levels):
            spent += self.spent[level]
        used: cython.double = spent - self.spent_seen[u]
        self.spent_seen[u] = spent
        return used * self.weights[self.u_real0[u]]

    def switched(self, u: i64, now: i64, load: float) -> i64:
        """Return 1 if a unit is calm and has slack, by load with hysteresis (`policies.adaptive`)."""
        at: i64 = self.u_real0[u] + 1
        self.mean[u] += (load - self.mean[u]) * self.weights[at + 2]
        self.calm[u] = self.mean[u] < self.weights[at] or (self.calm[u] != 0 and self.mean[u] <= self.weights[at + 1])
        if not self.calm[u]:
            return 0
        return self.harmless(u, now, self.u_look[u]) > self.u_look[u]

    def best(self, u: i64, now: i64, load: float) -> i64:
        """Return the choice with the highest score among the harmless ones (`policies.learned`).

        With too few jobs to choose from, the last choice holds.
        """
        k: i64
        at: i64 = self.u_real0[u] + 1
        need: i64 = self.u_look[u] + 1
        few: i64 = self.ordered[u] < 2 and not self.u_clock[u]
        if (few and self.choice[u] == 0) or self.harmless(u, now, need) <= need:
            return 0
        if few:
            return self.choice[u]
        self.observe(u, now, load)
        # scores are summed in parallel, each from the first feature to the last, so that several additions overlap
        first: cython.double = 0.0
        second: cython.double = 0.0
        third: cython.double = 0.0
        slow: cython.double = 0.0
        for k in range(FEATURES):
            value: cython.double = self.sight[k]
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
        if self.u_clock[u] and slow > first:
            found = 3
        return found

    def observe(self, u: i64, now: i64, load: float) -> None:
        """Compute the features a choice is based on."""
        i: i64
        far: i64 = 2 * self.u_reach[u]
        soft: i64 = 0
        late: i64 = 0
        work: i64 = 0
        soft_work: i64 = 0
        lax: i64 = far
        soft_lax: i64 = far
        for i in range(self.ordered[u]):
            t: i64 = self.order[self.u_order0[u] + i]
            left: i64 = self.remaining(t, now)
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
        unit: cython.double = self.weights[self.u_real0[u] + 1 + CHOICES * FEATURES]
        self.sight[0] = 1.0
        self.sight[1] = load
        self.sight[2] = self.at_most(self.sure[u] - now, unit)
        self.sight[3] = self.at_most(self.ordered[u], 0.125)
        self.sight[4] = self.at_most(soft, 0.125)
        self.sight[5] = self.at_most(lax, unit)
        self.sight[6] = self.at_most(soft_lax, unit)
        self.sight[7] = self.at_most(late, unit)
        self.sight[8] = self.at_most(work, unit)
        self.sight[9] = self.at_most(soft_work, unit)

    def at_most(self, value: i64, unit: float) -> cython.double:
        """Return a number in other units, clamped to -2 to 2."""
        part: cython.double = value * unit
        if part > 2.0:
            return 2.0
        if part < -2.0:
            return -2.0
        return part

    def follow_choice(self, u: i64, c: i64, now: i64) -> None:
        """Switch a unit to another order, or to another operating point, from now on."""
        e: i64 = self.u_engine[u]
        if self.u_term0[u] != self.c_term0[c] or self.u_term1[u] != self.c_term1[c]:
            self.u_term0[u], self.u_term1[u] = self.c_term0[c], self.c_term1[c]
            # keys of waiting jobs are constant in all these orders
            self.u_dynamic[u] = self.c_moves[c]
            if self.sort(u, now, 1):
                self.soil(u)
        if self.u_clock[u]:
            level: i64 = self.levels - 1 - self.c_slow[c]
            if level > self.n_top[e]:
                level = self.n_top[e]
            if level != self.n_level[e]:
                self.charge(e, now)
                self.n_level[e] = level
                self.adapt(e, now)
