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
        self.tasks, self.units = len(tables["t_inputs"]), len(tables["u_engine"])
        self.engines, self.sources = len(tables["n_slots"]), len(tables["s_period"])
        self.levels, self.n_uneven = numbers["levels"], numbers["uneven"]
        self.claims = 2 * self.tasks
        self.words, self.order_size, self.join_size = numbers["words"], numbers["order_size"], numbers["join_size"]
        if self.words > WORDS:
            raise ValueError("the kernel is compiled for fewer slots")
        # tasks
        self.t_inputs = self.own(tables["t_inputs"])
        self.t_queue = self.own(tables["t_queue"])
        self.t_overflow = self.own(tables["t_overflow"])
        self.t_deadline = self.own(tables["t_deadline"])
        self.t_priority = self.own(tables["t_priority"])
        self.t_period = self.own(tables["t_period"])
        self.t_criticality = self.own(tables["t_criticality"])
        self.t_first = self.own(tables["t_first"])
        self.t_count = self.own(tables["t_count"])
        self.t_cost = self.own(tables["t_cost"])
        self.t_reads0 = self.own(tables["t_reads0"])
        self.t_reads = self.own(tables["t_reads"])
        self.t_successors0 = self.own(tables["t_successors0"])
        self.t_successors = self.own(tables["t_successors"])
        self.t_on_late = self.own(tables["t_on_late"])
        self.t_degraded0 = self.own(tables["t_degraded0"])
        self.t_degraded = self.own(tables["t_degraded"])
        self.t_over = self.own(tables["t_over"])
        self.t_low = self.own(tables["t_low"])
        self.t_stream = self.own(tables["t_stream"])
        self.t_times0 = self.own(tables["t_times0"])
        self.t_times = self.own(tables["t_times"])
        self.t_interpolate = self.own(tables["t_interpolate"])
        self.t_overrun_stream = self.own(tables["t_overrun_stream"])
        self.t_overrun_chance = self.own(tables["t_overrun_chance"])
        self.t_overrun_up = self.own(tables["t_overrun_up"])
        self.t_overrun_down = self.own(tables["t_overrun_down"])
        self.t_budget = self.own(tables["t_budget"])
        self.t_server_period = self.own(tables["t_server_period"])
        self.t_weight_bytes = self.own(tables["t_weight_bytes"])
        self.t_loop_source = self.own(tables["t_loop_source"])
        self.t_closes_loop = self.own(tables["t_closes_loop"])
        self.t_process = self.own(tables["t_process"])
        self.t_weight = self.own(tables["t_weight"])
        self.t_batch = self.own(tables["t_batch"])
        self.t_batch_extra = self.own(tables["t_batch_extra"])
        self.t_join0 = self.own(tables["t_join0"])
        self.t_join = self.own(tables["t_join"])
        self.reads = self.own(tables["reads"])
        self.successors = self.own(tables["successors"])
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
        self.g_waits0 = self.own(tables["g_waits0"])
        # pairs of co-running segments, host's class first
        self.classes, self.segments = numbers["classes"], len(tables["g_time"])
        self.host_times = self.own(tables["host_times"])
        self.corunner_times = self.own(tables["corunner_times"])
        # units
        self.u_engine = self.own(tables["u_engine"])
        self.u_order0 = self.own(tables["u_order0"])
        self.u_mask = self.own_sets(tables["u_mask"])
        self.u_preemption = self.own(tables["u_preemption"])
        self.u_in_flight = self.own(tables["u_in_flight"])
        self.u_reset = self.own(tables["u_reset"])
        self.u_term0 = self.own(tables["u_term0"])
        self.u_term1 = self.own(tables["u_term1"])
        self.u_dynamic = self.own(tables["u_dynamic"])
        self.u_quantum = self.own(tables["u_quantum"])
        self.u_tick = self.own(tables["u_tick"])
        self.u_across = self.own(tables["u_across"])
        self.u_reservations = self.own(tables["u_reservations"])
        self.u_global = self.own(tables["u_global"])
        self.u_save = self.own(tables["u_save"])
        self.u_restore = self.own(tables["u_restore"])
        self.u_restart_job = self.own(tables["u_restart_job"])
        self.u_drain = self.own(tables["u_drain"])
        self.u_tokens = self.own(tables["u_tokens"])
        self.u_fair = self.own(tables["u_fair"])
        self.u_margin = self.own(tables["u_margin"])
        self.u_corun_once = self.own(tables["u_corun_once"])
        self.u_corun_sooner = self.own(tables["u_corun_sooner"])
        self.u_corun = self.own(tables["u_corun"])
        self.waits = self.own(tables["waits"])
        # engines
        self.n_switch = self.own(tables["n_switch"])
        self.n_migrate = self.own(tables["n_migrate"])
        self.n_reshape = self.own(tables["n_reshape"])
        self.n_slot0 = self.own(tables["n_slot0"])
        self.n_slots = self.own(tables["n_slots"])
        self.n_power = self.own(tables["n_power"])
        self.n_clock = self.own(tables["n_clock"])
        self.n_level = self.own(tables["n_level"])
        self.n_top = self.own(tables["n_top"])
        self.n_governor = self.own(tables["n_governor"])
        self.n_slow = self.own(tables["n_slow"])
        self.n_fast = self.own(tables["n_fast"])
        self.n_stalled = self.own(tables["n_stalled"])
        self.n_memory = self.own(tables["n_memory"])
        self.n_swap_rate = self.own(tables["n_swap_rate"])
        self.n_linger = self.own(tables["n_linger"])
        self.n_quantum = self.own(tables["n_quantum"])
        self.slot_speed = self.own(tables["slot_speed"])
        # sources
        self.s_period = self.own(tables["s_period"])
        self.s_offset = self.own(tables["s_offset"])
        self.s_jitter = self.own(tables["s_jitter"])
        self.s_gap = self.own(tables["s_gap"])
        self.s_stream = self.own(tables["s_stream"])
        self.s_lost = self.own(tables["s_lost"])
        self.s_delay = self.own(tables["s_delay"])
        self.s_burst = self.own(tables["s_burst"])
        self.s_jitter_after = self.own(tables["s_jitter_after"])
        self.s_loop = self.own(tables["s_loop"])
        self.s_successors0 = self.own(tables["s_successors0"])
        self.s_successors = self.own(tables["s_successors"])
