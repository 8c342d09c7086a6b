/* The kernels' dialect in OpenCL C 1.2.  Without double precision overlaps are computed in float. */
#pragma OPENCL FP_CONTRACT OFF
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#else
#define SINGLE_PRECISION
typedef float real;
#endif
typedef uint u32;
typedef ulong u64;
typedef uchar u8;
typedef half half_t;
#define KERNEL __kernel void
/* Inlined first: PoCL 3.1 lets groups share a local array that a function takes which LLVM inlines later. */
#define FUNCTION static inline __attribute__((always_inline))
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_ARGUMENT __local
#define GROUP ((int)get_group_id(0))
#define GROUPS ((int)get_num_groups(0))
#define ITEM ((int)get_local_id(0))
#define ITEMS ((int)get_local_size(0))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define ATOMIC_ADD(place, value) atomic_add(place, value)
#define ATOMIC_MIN(place, value) atomic_min(place, value)
#define ATOMIC_OR(place, value) atomic_or(place, value)
#define BITS(value) as_uint(value)
#define FLOAT_OF(bits) as_float(bits)
#define LOAD_HALF(array, index) vload_half(index, array)
#define STORE_HALF(array, index, value) vstore_half_rte(value, index, array)

/* OpenCL allows 2.5 units of error in a division; one step with the exact remainder rounds it correctly. */
FUNCTION float QUOTIENT(float a, float b)
{
    float quotient = a / b, rest = fma(-quotient, b, a);
    return isfinite(quotient) ? fma(rest, 1.0f / b, quotient) : quotient;
}
