from socsched_kernel.columns cimport column
from socsched_kernel.tables cimport Tables

cdef class JobPool(Tables):
    cdef list job_columns
    cdef long long pool_size, next_number, j_free, live
    cdef column j_frame, j_activation, j_release, j_deadline, j_start, j_exec, j_blocked, j_preempted, j_migrated
    cdef column j_number, j_sample, j_next, j_previous
    cdef int grow_pool(self) except -1
    cdef int allocate_job(self, long long frame, long long activation, long long release, long long deadline) except -1
    cdef void free_job(self, long long job) noexcept
