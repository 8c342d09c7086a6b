cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class Log(Columns):
    cdef column block
    cdef object own_block
    cdef long long width, limit, used
    cdef list blocks
    cdef int row(self) except -1
    cpdef object flush(self)
