ctypedef long long *column

cdef class Columns:
    cdef list kept
    cdef column own(self, object values) except NULL
    cdef column fill(self, long long count, long long value) except NULL
