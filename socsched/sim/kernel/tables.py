"""A plan as tables: the simulation's input, changed only by faults and clocks."""

from __future__ import annotations

from typing import Any

import cython
from cython import longlong as i64

if cython.compiled:
    from cython.cimports.socsched_kernel.arithmetic import WORDS
    from cython.cimports.socsched_kernel.columns import Columns
else:
    from .arithmetic import WORDS
    from .columns import Columns


class Tables(Columns):
    """The tables from `sim.lower`, by name: columns of tasks, segments, units, engines and sources of releases.

    `hooks`: calls into Python (`kernel.Kernel`).  `record`: whether rows are kept for a trace.
    """

    def __init__(self, tables: dict[str, Any], hooks: Any, end: i64, record: i64) -> None:
        super().__init__()
        numbers = tables["numbers"]
        self.hooks, self.end, self.record = hooks, end, record
        self.tasks, self.units = len(tables["t_need"]), len(tables["u_engine"])
        self.engines, self.sources = len(tables["n_lanes"]), len(tables["s_period"])
        self.levels, self.n_uneven = numbers["levels"], numbers["uneven"]
        self.width = 2 * self.tasks
        self.words, self.order_room, self.join_room = numbers["words"], numbers["order_room"], numbers["join_room"]
        if self.words > WORDS:
            raise ValueError("the kernel is compiled for fewer lanes")
        # tasks
        self.t_need = self.own(tables["t_need"])
        self.t_queue = self.own(tables["t_queue"])
        self.t_full = self.own(tables["t_full"])
        self.t_deadline = self.own(tables["t_deadline"])
        self.t_priority = self.own(tables["t_priority"])
        self.t_period = self.own(tables["t_period"])
        self.t_criticality = self.own(tables["t_criticality"])
        self.t_first = self.own(tables["t_first"])
        self.t_count = self.own(tables["t_count"])
        self.t_cost = self.own(tables["t_cost"])
        self.t_reads0 = self.own(tables["t_reads0"])
        self.t_reads = self.own(tables["t_reads"])
        self.t_next0 = self.own(tables["t_next0"])
        self.t_next = self.own(tables["t_next"])
        self.t_late = self.own(tables["t_late"])
        self.t_alt = self.own(tables["t_alt"])
        self.t_alts = self.own(tables["t_alts"])
        self.t_stream = self.own(tables["t_stream"])
        self.t_table0 = self.own(tables["t_table0"])
        self.t_table = self.own(tables["t_table"])
        self.t_between = self.own(tables["t_between"])
        self.t_over = self.own(tables["t_over"])
        self.t_chance = self.own(tables["t_chance"])
        self.t_up = self.own(tables["t_up"])
        self.t_down = self.own(tables["t_down"])
        self.t_budget = self.own(tables["t_budget"])
        self.t_server = self.own(tables["t_server"])
        self.t_weights = self.own(tables["t_weights"])
        self.t_loop = self.own(tables["t_loop"])
        self.t_closes = self.own(tables["t_closes"])
        self.t_process = self.own(tables["t_process"])
        self.t_weight = self.own(tables["t_weight"])
        self.t_batch = self.own(tables["t_batch"])
        self.t_more = self.own(tables["t_more"])
        self.t_part0 = self.own(tables["t_part0"])
        self.t_parts = self.own(tables["t_parts"])
        self.reads = self.own(tables["reads"])
        self.nexts = self.own(tables["nexts"])
        self.times = self.own(tables["times"])
        # segments
        self.g_time = self.own(tables["g_time"])
        self.g_bytes = self.own(tables["g_bytes"])
        self.g_unit = self.own(tables["g_unit"])
        self.g_mask = self.own_sets(tables["g_mask"])
        self.g_width = self.own(tables["g_width"])
        self.g_hold = self.own(tables["g_hold"])
        self.g_name = self.own(tables["g_name"])
        self.g_rest = self.own(tables["g_rest"])
        self.g_class = self.own(tables["g_class"])
        self.g_levels = self.own(tables["g_levels"])
        # pairs of co-running segments, host's class first
        self.classes, self.segments = numbers["classes"], len(tables["g_time"])
        self.host_time = self.own(tables["host_time"])
        self.guest_time = self.own(tables["guest_time"])
        # units
        self.u_engine = self.own(tables["u_engine"])
        self.u_order0 = self.own(tables["u_order0"])
        self.u_mask = self.own_sets(tables["u_mask"])
        self.u_kind = self.own(tables["u_kind"])
        self.u_flight = self.own(tables["u_flight"])
        self.u_reset = self.own(tables["u_reset"])
        self.u_term0 = self.own(tables["u_term0"])
        self.u_term1 = self.own(tables["u_term1"])
        self.u_dynamic = self.own(tables["u_dynamic"])
        self.u_quantum = self.own(tables["u_quantum"])
        self.u_tick = self.own(tables["u_tick"])
        self.u_across = self.own(tables["u_across"])
        self.u_serves = self.own(tables["u_serves"])
        self.u_global = self.own(tables["u_global"])
        self.u_save = self.own(tables["u_save"])
        self.u_restore = self.own(tables["u_restore"])
        self.u_whole = self.own(tables["u_whole"])
        self.u_drain = self.own(tables["u_drain"])
        self.u_tokens = self.own(tables["u_tokens"])
        self.u_weighed = self.own(tables["u_weighed"])
        self.u_margin = self.own(tables["u_margin"])
        self.u_once = self.own(tables["u_once"])
        self.u_weighs = self.own(tables["u_weighs"])
        self.u_beside = self.own(tables["u_beside"])
        self.waits = self.own(tables["waits"])
        # engines
        self.n_switch = self.own(tables["n_switch"])
        self.n_migrate = self.own(tables["n_migrate"])
        self.n_reshape = self.own(tables["n_reshape"])
        self.n_lane0 = self.own(tables["n_lane0"])
        self.n_lanes = self.own(tables["n_lanes"])
        self.n_power = self.own(tables["n_power"])
        self.n_clock = self.own(tables["n_clock"])
        self.n_level = self.own(tables["n_level"])
        self.n_top = self.own(tables["n_top"])
        self.n_governor = self.own(tables["n_governor"])
        self.n_slow = self.own(tables["n_slow"])
        self.n_fast = self.own(tables["n_fast"])
        self.n_still = self.own(tables["n_still"])
        self.n_memory = self.own(tables["n_memory"])
        self.n_swap = self.own(tables["n_swap"])
        self.n_linger = self.own(tables["n_linger"])
        self.n_slice = self.own(tables["n_slice"])
        self.lane_speed = self.own(tables["lane_speed"])
        # sources
        self.s_period = self.own(tables["s_period"])
        self.s_offset = self.own(tables["s_offset"])
        self.s_jitter = self.own(tables["s_jitter"])
        self.s_gap = self.own(tables["s_gap"])
        self.s_stream = self.own(tables["s_stream"])
        self.s_lost = self.own(tables["s_lost"])
        self.s_delay = self.own(tables["s_delay"])
        self.s_burst = self.own(tables["s_burst"])
        self.s_behind = self.own(tables["s_behind"])
        self.s_loop = self.own(tables["s_loop"])
        self.s_next0 = self.own(tables["s_next0"])
        self.s_next = self.own(tables["s_next"])
