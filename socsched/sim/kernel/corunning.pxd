from socsched_kernel.columns cimport column
from socsched_kernel.queues cimport Queues

cdef class CoRunners(Queues):
    cdef column corun_closed
    cdef int admit_corunner(self, long long u, long long now) except -1
    cdef long long find_corunner(self, long long u, long long host, long long now) noexcept
    cdef int start_corunner(self, long long u, long long host, long long t, long long now) except -1
    cdef long long ends_sooner(self, long long host, long long t, long long pair, long long now) noexcept
    cdef int end_corun_segment(self, long long t, long long now) except -1
