from socsched_kernel.arithmetic cimport slot_sets
from socsched_kernel.columns cimport Columns, column

cdef class Tables(Columns):
    cdef long long tasks, units, engines, sources, end, record, levels, n_uneven, claims, classes, segments, words, order_size, join_size
    cdef object hooks
    cdef slot_sets g_mask, u_mask
    # tasks
    cdef column t_inputs, t_queue, t_overflow, t_deadline, t_priority, t_period, t_criticality, t_first, t_count, t_cost
    cdef column t_reads0, t_reads, t_successors0, t_successors, t_on_late, t_degraded0, t_degraded, t_stream, t_times0, t_times, t_interpolate
    cdef column t_overrun_stream, t_overrun_chance, t_overrun_up, t_overrun_down, t_budget, t_server_period, t_weight_bytes, reads, successors, times
    cdef column t_over, t_low, t_loop_source, t_closes_loop, t_process, t_weight, t_batch, t_batch_extra, t_join0, t_join
    # segments
    cdef column g_time, g_bytes, g_unit, g_width, g_waits0, g_hold, g_name, g_rest, g_class, host_times, corunner_times
    # units
    cdef column u_engine, u_order0, u_preemption, u_in_flight, u_reset, u_term0, u_term1, u_dynamic, u_quantum, u_tick
    cdef column u_across, u_reservations, u_global, u_save, u_restore, u_restart_job, u_drain, u_tokens
    cdef column u_fair, u_margin, u_corun_once, u_corun_sooner, u_corun, waits
    # engines
    cdef column n_switch, n_migrate, n_reshape, n_slot0, n_slots, n_power, n_clock, n_level, n_top, n_governor, n_slow
    cdef column n_fast, n_stalled, n_memory, n_swap_rate, n_linger, n_quantum, slot_speed
    # sources
    cdef column s_period, s_offset, s_jitter, s_gap, s_stream, s_lost, s_delay, s_burst, s_jitter_after, s_successors0, s_successors
    cdef column s_loop
