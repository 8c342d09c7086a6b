from socsched_kernel.columns cimport column
from socsched_kernel.tables cimport Tables

cdef class Slots(Tables):
    cdef list columns
    cdef long long room, number, j_free
    cdef column j_frame, j_activation, j_release, j_deadline, j_start, j_exec, j_blocked, j_preempted, j_migrated
    cdef column j_number, j_sample, j_next, j_before
    cdef int more_slots(self) except -1
    cdef int take_slot(self, long long frame, long long activation, long long release, long long deadline) except -1
    cdef void free_slot(self, long long slot) noexcept
