cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class EventQueue(Columns):
    cdef column times, heap, position
    cdef long long count
    cdef void set(self, long long source, long long time) noexcept
    cdef void remove(self, long long index) noexcept
    cdef void sift_up(self, long long index, long long source, long long time) noexcept
    cdef void sift_down(self, long long index, long long source, long long time) noexcept
