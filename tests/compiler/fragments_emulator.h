// What device functions are made of (fragments.cuh) on a CPU, on the fibers of cuda_emulator.h.
//
// fp16 products take the operands of 32 lanes as the PTX ISA lays the fragments of mma.m16n8k16 out.
#include "cuda_emulator.h"

#define SOCSCHED_EMULATED
#define __device__
#define __forceinline__ inline

static float __half2float(half value) {
  _Float16 found;
  std::memcpy(&found, &value, 2);
  return float(found);
}
static float __int_as_float(int bits) {
  float found;
  std::memcpy(&found, &bits, 4);
  return found;
}
static uint socsched_pair(float low, float high) {
  const _Float16 both[2] = {_Float16(low), _Float16(high)};
  uint found;
  std::memcpy(&found, both, 4);
  return found;
}
static float socsched_power(float value) { return std::exp2(value); }

static void socsched_copy(half* to, const half* from, bool whole) { emulated::copy(to, 0, (void*)from, 0, whole); }
static void socsched_commit() { tvm_builtin_ptx_cp_async_commit_group_async_commit_group(); }
template <int LEFT>
static void socsched_wait() { emulated::wait(LEFT); }

// What a warp's lanes bring together: the last of them computes for all.
struct Meeting {
  const half* row[32];
  uint (*loaded[32])[4];
  const uint (*a[32])[4];
  uint b[32][2];
  float (*c[32])[4];
  float value[32], other[32];
  int there = 0;
};
static std::vector<Meeting> meetings;

template <class Note, class Work>
static void meet(const Note& note, const Work& work) {
  Meeting& all = meetings[size_t(threadIdx.y)];
  note(all, threadIdx.x);
  if (++all.there == 32) {
    work(all);
    all.there = 0;
  }
  emulated::current->is_load = true;  // the scheduler's own load must write nowhere
  static uint nowhere[4];
  static unsigned char zeros[16];
  uint* out[4] = {nowhere, nowhere, nowhere, nowhere};
  std::copy(out, out + 4, emulated::current->out);
  emulated::current->row = zeros;
  emulated::pause(emulated::AT_WARP);
}

static void load(uint (&r)[4], const half* row, bool turned) {
  meet([&](Meeting& all, int lane) { all.row[lane] = row; all.loaded[lane] = &r; },
       [=](Meeting& all) {
         for (int lane = 0; lane < 32; lane++)
           for (int matrix = 0; matrix < 4; matrix++) {
             half pair[2];
             for (int i = 0; i < 2; i++)
               pair[i] = turned ? all.row[8 * matrix + lane % 4 * 2 + i][lane / 4] : all.row[8 * matrix + lane / 4][lane % 4 * 2 + i];
             std::memcpy(&(*all.loaded[lane])[matrix], pair, 4);
           }
       });
}
static void socsched_load(uint (&r)[4], const half* row) { load(r, row, false); }
static void socsched_load_turned(uint (&r)[4], const half* row) { load(r, row, true); }

static float element(uint word, int index) {
  half both[2];
  std::memcpy(both, &word, 4);
  return __half2float(both[index]);
}

static void socsched_multiply(float (&c)[4], const uint (&a)[4], uint b0, uint b1) {
  meet([&](Meeting& all, int lane) { all.a[lane] = &a; all.b[lane][0] = b0; all.b[lane][1] = b1; all.c[lane] = &c; },
       [](Meeting& all) {
         float A[16][16], B[8][16];
         for (int lane = 0; lane < 32; lane++)
           for (int i = 0; i < 8; i++) {
             A[lane / 4 + 8 * (i / 2 % 2)][lane % 4 * 2 + i % 2 + 8 * (i / 4)] = element((*all.a[lane])[i / 2], i % 2);
             if (i < 4) B[lane / 4][lane % 4 * 2 + i % 2 + 8 * (i / 2)] = element(all.b[lane][i / 2], i % 2);
           }
         for (int lane = 0; lane < 32; lane++)
           for (int i = 0; i < 4; i++)
             for (int k = 0; k < 16; k++) (*all.c[lane])[i] += A[lane / 4 + 8 * (i / 2)][k] * B[lane % 4 * 2 + i % 2][k];
       });
}

static float socsched_across(float value, int lanes) {
  float found = 0;
  meet([&](Meeting& all, int lane) { all.value[lane] = value; },
       [](Meeting& all) { std::copy(all.value, all.value + 32, all.other); });
  found = meetings[size_t(threadIdx.y)].other[threadIdx.x ^ lanes];
  return found;
}

static float socsched_part(uint pair, int which) { return element(pair, which); }
static float socsched_sigmoid(float value) { return 1 / (1 + std::exp(-value)); }
static float socsched_tanh(float value) { return std::tanh(value); }
struct uint2 { uint x, y; };

#define __shared__ static
