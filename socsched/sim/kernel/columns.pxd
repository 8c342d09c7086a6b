ctypedef long long *column
ctypedef double *reals

cdef class Columns:
    cdef list kept
    cdef column own(self, object values) except NULL
    cdef column fill(self, long long count, long long value) except NULL
    cdef reals own_reals(self, object values) except NULL
