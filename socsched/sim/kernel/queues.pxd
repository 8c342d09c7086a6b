from socsched_kernel.columns cimport column
from socsched_kernel.jobs cimport Jobs

cdef class Queues(Jobs):
    cdef column marked_queues, queue_marked, depth, join_frame, join_count, join_release, latest
    cdef long long marked_count, high
    cdef int deliver(self, long long t, long long frame, long long release, long long now) except -1
    cdef long long join_inputs(self, long long t, long long frame, long long release) noexcept
    cdef long long count_waiting(self, long long t) noexcept
    cdef void mark_queue(self, long long t) noexcept
    cdef int limit_queues(self, long long now) except -1
    cdef int drop_job(self, long long t, long long now) except -1
    cdef int raise_level(self, long long t, long long now) except -1
    cdef int start_job(self, long long t, long long now) except -1
    cdef int gather_batch(self, long long t, long long now) except -1
    cdef int end_batch(self, long long t, long long job, long long now) except -1
    cdef int complete_job(self, long long t, long long now) except -1
    cdef int move_job(self, long long t, long long g, long long now) except -1
