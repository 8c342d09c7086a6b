from socsched_kernel.arithmetic cimport lane_sets
from socsched_kernel.columns cimport Columns, column

cdef class Tables(Columns):
    cdef long long tasks, units, engines, sources, end, record, levels, n_uneven, width, classes, segments, words, order_room, join_room
    cdef object hooks
    cdef lane_sets g_mask, u_mask
    # tasks
    cdef column t_need, t_queue, t_full, t_deadline, t_priority, t_period, t_criticality, t_first, t_count, t_cost
    cdef column t_reads0, t_reads, t_next0, t_next, t_late, t_alt, t_alts, t_stream, t_table0, t_table, t_between
    cdef column t_over, t_chance, t_up, t_down, t_budget, t_server, t_weights, reads, nexts, times
    cdef column t_loop, t_closes, t_process, t_weight, t_batch, t_more, t_part0, t_parts
    # segments
    cdef column g_time, g_bytes, g_unit, g_width, g_levels, g_hold, g_name, g_rest, g_class, host_time, guest_time
    # units
    cdef column u_engine, u_order0, u_kind, u_flight, u_reset, u_term0, u_term1, u_dynamic, u_quantum, u_tick
    cdef column u_across, u_serves, u_global, u_save, u_restore, u_whole, u_drain, u_tokens
    cdef column u_weighed, u_margin, u_once, u_weighs, u_beside, waits
    # engines
    cdef column n_switch, n_migrate, n_reshape, n_lane0, n_lanes, n_power, n_clock, n_level, n_top, n_governor, n_slow
    cdef column n_fast, n_still, n_memory, n_swap, n_linger, n_slice, lane_speed
    # sources
    cdef column s_period, s_offset, s_jitter, s_gap, s_stream, s_lost, s_delay, s_burst, s_behind, s_next0, s_next
    cdef column s_loop
