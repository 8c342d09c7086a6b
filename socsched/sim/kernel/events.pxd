cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class EventQueue(Columns):
    cdef column times, heap, place
    cdef long long count
    cdef void set(self, long long source, long long time) noexcept
    cdef void remove(self, long long place) noexcept
    cdef void rise(self, long long place, long long source, long long time) noexcept
    cdef void sink(self, long long place, long long source, long long time) noexcept
