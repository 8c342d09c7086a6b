cimport cython
from socsched_kernel.columns cimport Columns, column

@cython.final
cdef class Log(Columns):
    cdef column block
    cdef object block_array
    cdef long long width, limit, used
    cdef list blocks
    cdef int add_row(self) except -1
    cpdef object flush(self)
