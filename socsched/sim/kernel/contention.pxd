cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class ContentionCache(Columns):
    cdef object resolve, key_array, pool_array
    cdef column key, table, pool
    cdef long long length, size, pool_size, used, entries
    cdef int clear(self) except -1
    cdef long long probe(self, long long start, long long length, long long from_pool) noexcept
    cdef int look_up(self) except -1
    cdef int insert(self) except -1
    cdef int rehash(self) except -1
