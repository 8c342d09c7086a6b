from socsched_kernel.arithmetic cimport slot_sets
from socsched_kernel.columns cimport column
from socsched_kernel.events cimport EventQueue
from socsched_kernel.job_pool cimport JobPool

cdef class State(JobPool):
    cdef column job, first, count, current, overhead, up, down, unit, width, running, slice_open, slice_start
    cdef slot_sets mask, slots
    cdef column s_frame, s_ended, s_waits, s_last, s_due
    cdef long long control_event, abort_event0, budget_event0, quantum_event0, tick_event0
    cdef EventQueue events
