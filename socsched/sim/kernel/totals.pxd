cimport cython
from socsched_kernel.columns cimport Columns, column

cdef long long bin_of(long long value) noexcept

@cython.final
cdef class Histograms(Columns):
    cdef tuple books
    cdef object own_bins
    cdef long long pages, room
    cdef column page, bins, sum, carried, most, number, least
    cdef int add(self, long long which, long long value) except -1
    cdef long long new_page(self, long long where) except *
    cpdef object found(self)

@cython.final
cdef class Chains(Columns):
    cdef dict books
    cdef long long count
    cdef column deadline, exact, owner0, owners, chain, mode, slot, before, producer, last, loses, source0, sources
    cdef column source, ring, release, state, head, tail, following, missed, dropped, completed
    cdef Histograms figures
    cdef void released(self, long long source, long long now, long long lost) noexcept
    cdef void lost(self, long long task, long long frame) noexcept
    cdef void started(self, long long task, long long frame, column latest) noexcept
    cdef int finished(self, long long task, long long frame, long long now) except -1
    cdef int arrive(self, long long c, long long frame, long long now) except -1
    cpdef object close(self, long long end)
