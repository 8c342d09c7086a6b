from socsched_kernel.columns cimport column
from socsched_kernel.jobs cimport Jobs

cdef class Queues(Jobs):
    cdef column touched, marked, depth, part_frame, part_have, part_release, latest
    cdef long long touches
    cdef int deliver(self, long long t, long long frame, long long release, long long now) except -1
    cdef long long join(self, long long t, long long frame, long long release) noexcept
    cdef long long length(self, long long t) noexcept
    cdef void touch(self, long long t) noexcept
    cdef int limit_queues(self, long long now) except -1
    cdef int drop(self, long long t, long long now) except -1
    cdef int take_up(self, long long t, long long now) except -1
    cdef int gather(self, long long t, long long now) except -1
    cdef int end_mates(self, long long t, long long slot, long long now) except -1
    cdef int retire(self, long long t, long long now) except -1
    cdef int hand_over(self, long long t, long long g, long long now) except -1
