from socsched_kernel.columns cimport column
from socsched_kernel.queues cimport Queues

cdef class Guests(Queues):
    cdef column sated
    cdef int accompany(self, long long u, long long now) except -1
    cdef long long who_fits(self, long long u, long long host, long long now) noexcept
    cdef int let_in(self, long long u, long long host, long long t, long long now) except -1
    cdef long long gains(self, long long host, long long t, long long pair, long long now) noexcept
    cdef int leave(self, long long t, long long now) except -1
