from socsched_kernel.arithmetic cimport Lanes, lane_sets

ctypedef long long *column
ctypedef double *reals

cdef class Columns:
    cdef list kept
    cdef column own(self, object values) except NULL
    cdef column fill(self, long long count, long long value) except NULL
    cdef reals own_reals(self, object values) except NULL
    cdef lane_sets own_sets(self, object values) except NULL
    cdef lane_sets fill_sets(self, long long count) except NULL
