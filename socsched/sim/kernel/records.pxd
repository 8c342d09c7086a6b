cdef class Log:
    cdef long long[::1] block
    cdef long long width
    cdef long long limit
    cdef long long used
    cdef list blocks
    cdef long long row(self) except -1
    cpdef object flush(self)
