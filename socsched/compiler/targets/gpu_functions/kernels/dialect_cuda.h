/* The kernels' dialect in CUDA.  Compiled with -fmad=false: products and sums round as they do in numpy. */
#include <cuda_fp16.h>
typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned char u8;
typedef double real;
typedef __half half_t;
#define KERNEL extern "C" __global__ void
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_ARGUMENT
#define GROUP ((int)blockIdx.x)
#define GROUPS ((int)gridDim.x)
#define ITEM ((int)threadIdx.x)
#define ITEMS ((int)blockDim.x)
#define BARRIER __syncthreads()
#define ATOMIC_ADD(place, value) atomicAdd(place, value)
#define ATOMIC_MIN(place, value) atomicMin(place, value)
#define ATOMIC_OR(place, value) atomicOr(place, value)
#define BITS(value) __float_as_uint(value)
#define FLOAT_OF(bits) __uint_as_float(bits)
#define QUOTIENT(a, b) __fdiv_rn(a, b)
#define LOAD_HALF(array, index) __half2float((array)[index])
#define STORE_HALF(array, index, value) ((array)[index] = __float2half_rn(value))
