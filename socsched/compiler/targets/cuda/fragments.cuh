// What device functions are made of: asynchronous copies, and the fragments of mma.m16n8k16 (PTX ISA).
__device__ __forceinline__ void socsched_copy(half* to, const half* from, bool whole) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(whole ? 16 : 0));
}
__device__ __forceinline__ void socsched_commit() { asm volatile("cp.async.commit_group;"); }
template <int LEFT>
__device__ __forceinline__ void socsched_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
__device__ __forceinline__ void socsched_load(unsigned (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
__device__ __forceinline__ void socsched_load_turned(unsigned (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
__device__ __forceinline__ void socsched_multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ float socsched_across(float value, int lanes) { return __shfl_xor_sync(0xffffffffu, value, lanes); }
__device__ __forceinline__ unsigned socsched_pair(float low, float high) {
  const half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ __forceinline__ float socsched_power(float value) { return exp2f(value); }
__device__ __forceinline__ float socsched_part(unsigned pair, int which) {
  const half2 both = *reinterpret_cast<const half2*>(&pair);
  return which ? __high2float(both) : __low2float(both);
}
__device__ __forceinline__ float socsched_sigmoid(float value) { return __fdividef(1.0f, 1.0f + __expf(-value)); }
__device__ __forceinline__ float socsched_tanh(float value) { return __fdividef(2.0f, 1.0f + __expf(-2.0f * value)) - 1.0f; }
