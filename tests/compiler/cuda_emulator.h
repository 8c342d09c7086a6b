// Enough of CUDA to run the GPU rules' kernels on a CPU: a fiber a thread, blocks one after the other.
//
// ldmatrix and mma.sync take the operands of 32 lanes as the PTX ISA lays their fragments out (sections "Matrix fragments
// for mma.m16n8k32" and "ldmatrix").  Asynchronous copies happen when they are waited for, no sooner, so that a pipeline
// that reads too early reads rubbish.

#undef _FORTIFY_SOURCE  // whose longjmp takes the stack of another fiber for a damaged one

#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __restrict__
#define __align__(n)
#define __launch_bounds__(...)
using uint = unsigned int;
using uchar = unsigned char;
using std::max;
using std::min;

#ifdef __clang__
using half = _Float16;
using __half = half;
static half __float2half_rn(float value) { return half(value); }
static float __half2float(half value) { return value; }
#else
struct half { uint16_t bits; };
static half __float2half_rn(float) { return half{0}; }  // zero fill is the only constant
#endif
struct half2 { half x, y; };
static half2 make_half2(half x, half y) { return {x, y}; }
static uint __pack_half2(half low, half high) {
  uint16_t bits[2];
  std::memcpy(bits, &low, 2), std::memcpy(bits + 1, &high, 2);
  return uint(bits[1]) << 16 | bits[0];
}
template <class Place, class Value> static Place atomicAdd(Place* place, Value value) { return std::exchange(*place, *place + Place(value)); }
template <class Place, class Value> static Place atomicMin(Place* place, Value value) { return std::exchange(*place, min(*place, Place(value))); }
template <class Place, class Value> static Place atomicOr(Place* place, Value value) { return std::exchange(*place, *place | Place(value)); }
static uint __float_as_uint(float value) { uint bits; return std::memcpy(&bits, &value, 4), bits; }
static float __uint_as_float(uint bits) { float value; return std::memcpy(&value, &bits, 4), value; }
static float __fdiv_rn(float a, float b) { return a / b; }
struct int2 { int x, y; };
struct float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { uint x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
static int2 make_int2(int x, int y) { return {x, y}; }
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
static uint4 make_uint4(uint x, uint y, uint z, uint w) { return {x, y, z, w}; }
static float2 make_float2(float x, float y) { return {x, y}; }
struct longlong2 { long long x, y; };
struct longlong4 { long long x, y, z, w; };
static longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
static longlong4 make_longlong4(long long x, long long y, long long z, long long w) { return {x, y, z, w}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

struct Place { int x, y, z; };
static Place blockIdx, threadIdx, gridDim, blockDim;
alignas(128) unsigned char buf_dyn_shmem_ptr[232448];

namespace emulated {

enum State { READY, AT_BLOCK_BARRIER, AT_WARP, DONE };
struct Copy { unsigned char *to; const unsigned char *from; bool taken; };
struct Fiber {
  jmp_buf place_in_code;  // where it goes on: switching contexts takes two system calls
  std::vector<char> stack;
  State state;
  Place place;
  bool is_load;
  const unsigned char *row;
  uint *out[4];
  uint a[4], b[2], c[4];
  bool is_signed;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};

static std::vector<Fiber> fibers;
static Fiber *current;
static jmp_buf scheduler;
static std::function<void()> body;

static bool alone;          // threads run one after the other
static bool waited;         // threads of a block waited for each other

static void __attribute__((noinline)) leave(State state) {
  current->state = state;
  if (!_setjmp(current->place_in_code)) _longjmp(scheduler, 1);
}

static void entry() {       // a fiber runs one thread of each block
  for (;; leave(DONE)) body();
}

static void pause(State state) {
  if (alone) std::abort();  // the kernel's first block did not wait
  waited = true;
  leave(state);
}

static void __attribute__((noinline)) resume(Fiber &fiber) {
  current = &fiber;
  threadIdx = fiber.place;
  if (_setjmp(scheduler)) return;
  if (!fiber.stack.empty()) _longjmp(fiber.place_in_code, 1);
  fiber.stack.resize(1 << 16);
  static ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.data();
  context.uc_stack.ss_size = fiber.stack.size();
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
  setcontext(&context);
}

static int byte_of(uint word, int index, bool is_signed) {
  int value = word >> (8 * index) & 255;
  return is_signed ? int(int8_t(value)) : value;
}

static void load(Fiber *warp) {  // lane 8 q + r names row r of matrix q; a row of 16 bytes is spread over four lanes
  for (int lane = 0; lane < 32; lane++)
    for (int matrix = 0; matrix < 4; matrix++)
      std::memcpy(warp[lane].out[matrix], warp[8 * matrix + lane / 4].row + lane % 4 * 4, 4);
}

static void multiply(Fiber *warp) {
  static int a[16][32], b[8][32];
  for (int lane = 0; lane < 32; lane++) {
    int group = lane / 4, member = lane % 4;
    for (int i = 0; i < 16; i++)
      a[group + 8 * (i / 4 % 2)][4 * member + i % 4 + 16 * (i / 8)] = byte_of(warp[lane].a[i / 4], i % 4, warp[lane].is_signed);
    for (int i = 0; i < 8; i++)
      b[group][4 * member + i % 4 + 16 * (i / 4)] = byte_of(warp[lane].b[i / 4], i % 4, true);
  }
  for (int lane = 0; lane < 32; lane++)
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
      uint sum = warp[lane].c[i];
      for (int k = 0; k < 32; k++) sum += uint(a[row][k] * b[column][k]);
      *warp[lane].out[i] = sum;
    }
}

static void all_at(size_t first, size_t count, State state, const std::function<void()> &then) {
  for (size_t i = first; i < first + count; i++)
    if (fibers[i].state != state) return;
  then();
  for (size_t i = first; i < first + count; i++) fibers[i].state = READY;
}

static bool run_block(Place block, int width, int height) {
  blockIdx = block;
  fibers.resize(size_t(width * height));
  std::memset(buf_dyn_shmem_ptr, 0x5a, sizeof buf_dyn_shmem_ptr);
  for (size_t i = 0; i < fibers.size(); i++) {
    Fiber &fiber = fibers[i];
    fiber.place = {int(i) % width, int(i) / width, 0};
    fiber.state = READY;
    fiber.open.clear();
    fiber.groups.clear();
  }
  for (;;) {
    bool moved = false, done = true;
    for (Fiber &fiber : fibers) {
      done = done && fiber.state == DONE;
      if (fiber.state != READY) continue;
      moved = true;
      resume(fiber);
    }
    if (done) return true;
    if (!moved) return fibers.clear(), false;  // stuck: lanes that do not meet
    for (size_t warp = 0; warp + 32 <= fibers.size(); warp += 32)
      all_at(warp, 32, AT_WARP, [&] { fibers[warp].is_load ? load(&fibers[warp]) : multiply(&fibers[warp]); });
    all_at(0, fibers.size(), AT_BLOCK_BARRIER, [] {});
  }
}


static void copy(void *to, int to_offset, void *from, int from_offset, bool taken) {
  current->open.push_back({(unsigned char *)to + 2 * to_offset, (unsigned char *)from + 2 * from_offset, taken});
}

static void wait(size_t left) {
  auto &groups = current->groups;
  while (groups.size() > left) {
    for (Copy &c : groups.front())
      if (c.taken) std::memcpy(c.to, c.from, 16);
      else std::memset(c.to, 0, 16);
    groups.erase(groups.begin());
  }
}

// Run a kernel over a grid; return whether no threads waited for ever.  An operand is an address or a number.  Blocks are taken
// to wait like the first one: a fiber a thread is slow.
template <auto kernel, class... Types, size_t... Index>
static bool launch(void (*)(Types...), Place grid, int width, int height, void **operands, std::index_sequence<Index...>) {
  gridDim = grid, blockDim = {width, height, 1};
  alone = waited = false;
  const auto thread = [given = std::tuple<Types...>((Types)(intptr_t)operands[Index]...)] { kernel(std::get<Index>(given)...); };
  body = thread;
  for (int z = 0; z < grid.z; z++)
    for (int y = 0; y < grid.y; y++)
      for (int x = 0; x < grid.x; x++) {
        if (!alone) {
          if (!run_block({x, y, z}, width, height)) return false;
          alone = !waited;
          continue;
        }
        blockIdx = {x, y, z};
        for (threadIdx = {0, 0, 0}; threadIdx.y < height; threadIdx.y++)
          for (threadIdx.x = 0; threadIdx.x < width; threadIdx.x++) thread();
      }
  return true;
}

template <auto kernel, class... Types>
static bool launch(void (*function)(Types...), Place grid, int width, int height, void **operands) {
  return launch<kernel>(function, grid, width, height, operands, std::index_sequence_for<Types...>());
}

}  // namespace emulated

static void __syncthreads() { emulated::pause(emulated::AT_BLOCK_BARRIER); }

static void ldmatrix(void *row, uint *r0, uint *r1, uint *r2, uint *r3) {
  emulated::Fiber *self = emulated::current;
  self->is_load = true;
  self->row = (const unsigned char *)row;
  uint *out[4] = {r0, r1, r2, r3};
  std::copy(out, out + 4, self->out);
  emulated::pause(emulated::AT_WARP);
}

static void mma(bool is_signed, void *d0, void *d1, void *d2, void *d3, uint a0, uint a1, uint a2, uint a3, uint b0,
                uint b1, uint c0, uint c1, uint c2, uint c3) {
  emulated::Fiber *self = emulated::current;
  self->is_load = false;
  self->is_signed = is_signed;
  uint *out[4] = {(uint *)d0, (uint *)d1, (uint *)d2, (uint *)d3};
  std::copy(out, out + 4, self->out);
  uint a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1}, c[4] = {c0, c1, c2, c3};
  std::copy(a, a + 4, self->a);
  std::copy(b, b + 2, self->b);
  std::copy(c, c + 4, self->c);
  emulated::pause(emulated::AT_WARP);
}

static void ptx_cp_async_legacy_cg_16_2_2(void *to, int to_offset, void *from, int from_offset) {
  emulated::copy(to, to_offset, from, from_offset, true);
}
static void ptx_cp_async_legacy_pred_cg_16_2_2(void *to, int to_offset, void *from, int from_offset, int taken) {
  emulated::copy(to, to_offset, from, from_offset, taken != 0);
}
static void tvm_builtin_ptx_cp_async_commit_group_async_commit_group() {
  emulated::current->groups.push_back(std::move(emulated::current->open));
  emulated::current->open.clear();
}
