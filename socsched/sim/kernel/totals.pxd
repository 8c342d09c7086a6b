cdef long long bin_of(long long value) noexcept

cdef class Histograms:
    cdef public long long[::1] bins, sum, most, number, least
    cdef long long add(self, long long which, long long value) noexcept

cdef class Chains:
    cdef public long long count
    cdef long long[::1] deadline, exact, owner0, owners, chain, mode, slot, before, producer, last, loses
    cdef long long[::1] source0, sources, source, ring, release, state
    cdef public long long[::1] head, tail, following, missed, dropped, completed
    cdef public Histograms figures
    cdef long long released(self, long long source, long long now, long long lost) noexcept
    cdef long long lost(self, long long task, long long frame) noexcept
    cdef long long started(self, long long task, long long frame, long long[::1] latest) noexcept
    cdef long long finished(self, long long task, long long frame, long long now) noexcept
    cdef long long arrive(self, long long c, long long frame, long long now) noexcept
    cpdef object close(self, long long end)
