cdef long long scaled(long long value, long long up, long long down) noexcept
cdef long long bits(long long mask) noexcept
