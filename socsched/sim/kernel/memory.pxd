cdef class Combinations:
    cdef object stretch, own_key, own_table, own_pool
    cdef long long[::1] key, table, pool
    cdef long long length, size, room, used, entries
    cdef object forget(self)
    cdef long long slot(self, long long start, long long length, long long from_pool) noexcept
    cdef long long find(self) except -1
    cdef object learn(self)
    cdef object rehash(self)
