from socsched_kernel.arithmetic cimport lane_sets
from socsched_kernel.columns cimport column
from socsched_kernel.events cimport EventQueue
from socsched_kernel.slots cimport Slots

cdef class State(Slots):
    cdef column job, first, count, place, prefix, up, down, unit, wide, running, sliced, slice_from
    cdef lane_sets mask, lanes
    cdef column s_frame, s_ended, s_waits, s_last, s_due
    cdef long long from_control, from_abort, from_budget, from_turn, from_tick
    cdef EventQueue events
