from socsched_kernel.arithmetic cimport SlotSet, slot_sets

ctypedef long long *column
ctypedef double *reals

cdef class Columns:
    cdef list buffers
    cdef column own(self, object values) except NULL
    cdef column fill(self, long long count, long long value) except NULL
    cdef reals own_reals(self, object values) except NULL
    cdef slot_sets own_sets(self, object values) except NULL
    cdef slot_sets fill_sets(self, long long count) except NULL
