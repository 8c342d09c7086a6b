cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class Combinations(Columns):
    cdef object stretch, own_key, own_pool
    cdef column key, table, pool
    cdef long long length, size, room, used, entries
    cdef int forget(self) except -1
    cdef long long slot(self, long long start, long long length, long long from_pool) noexcept
    cdef int find(self) except -1
    cdef int learn(self) except -1
    cdef int rehash(self) except -1
