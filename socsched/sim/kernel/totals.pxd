cimport cython
from socsched_kernel.columns cimport Columns, column

cdef long long bin_of(long long value) noexcept

@cython.final
cdef class Histograms(Columns):
    cdef tuple arrays
    cdef object bin_array
    cdef long long pages, page_limit
    cdef column page, bins, sum, carries, largest, count, smallest
    cdef int add(self, long long which, long long value) except -1
    cdef long long add_page(self, long long where) except *
    cpdef object export(self)

@cython.final
cdef class Chains(Columns):
    cdef dict counters
    cdef long long count
    cdef column deadline, max_age, exact, occurrence0, occurrences, chain, mode, row, previous, producer, last, loses, start0, starts
    cdef column start_chain, ring, release, state, head, tail, next_frame, missed, dropped, completed, stale
    cdef Histograms histograms
    cdef void record_release(self, long long source, long long now, long long lost) noexcept
    cdef void record_loss(self, long long task, long long frame) noexcept
    cdef void record_start(self, long long task, long long frame, column latest) noexcept
    cdef int record_end(self, long long task, long long frame, long long now) except -1
    cdef int complete_frame(self, long long c, long long frame, long long now) except -1
    cpdef object close(self, long long end)
