// A recurrent layer (GRU, LSTM) as one kernel: a block of threads takes 16 rows of the batch through all steps.
//
// Rows do not depend on each other, so that blocks never meet.  A warp computes 16 units with all of their gates: of a
// row and unit, every gate lies in the same lane.  The products of the steps' inputs are given (`P`); weights `R` lie in
// the order of mma.m16n8k16's fragments and stay in registers if these suffice (`KEPT`).  `F`: the first states, and cells.
template <int HIDDEN, int GATES, bool KEPT>
__device__ __forceinline__ int socsched_recurrent(const half* P, const half* R, const float* B, const float* F, half* Y, int steps,
                                                  int batch, int reversed) {
  constexpr int DEPTH = HIDDEN / 16, STRIDE = HIDDEN + 8, BIASES = 4;
  __shared__ __align__(16) half states[2 * 16 * STRIDE];
  const int lane = threadIdx.x, warp = threadIdx.y, first = blockIdx.x * 16, column = lane % 4 * 2;
  const uint2* const own = reinterpret_cast<const uint2*>(R) + (long long)warp * GATES * 2 * DEPTH * 32 + lane;
  uint2 kept[KEPT ? GATES * 2 * DEPTH : 1];
  if (KEPT)
#pragma unroll
    for (int i = 0; i < (KEPT ? GATES * 2 * DEPTH : 1); i++) kept[i] = own[i * 32];
  float bias[BIASES][2][2], state[2][4], cell[2][4];
#pragma unroll
  for (int tile = 0; tile < 2; tile++) {
#pragma unroll
    for (int b = 0; b < BIASES; b++)
#pragma unroll
      for (int i = 0; i < 2; i++) bias[b][tile][i] = B[b * HIDDEN + warp * 16 + tile * 8 + column + i];
#pragma unroll
    for (int low = 0; low < 2; low++) {
      const int row = lane / 4 + low * 8, unit = warp * 16 + tile * 8 + column;
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const bool inside = first + row < batch;
        state[tile][low * 2 + i] = inside ? F[(first + row) * HIDDEN + unit + i] : 0.0f;
        cell[tile][low * 2 + i] = inside && GATES == 4 ? F[(batch + first + row) * HIDDEN + unit + i] : 0.0f;
      }
      *reinterpret_cast<unsigned*>(states + row * STRIDE + unit) = socsched_pair(state[tile][low * 2], state[tile][low * 2 + 1]);
    }
  }
  __syncthreads();
  for (int step = 0; step < steps; step++) {
    const int at = reversed ? steps - 1 - step : step;
    unsigned given[GATES][2][2];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
#pragma unroll
      for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int low = 0; low < 2; low++) {
          const int row = first + lane / 4 + low * 8;
          const half* const from = P + ((long long)at * batch + row) * (GATES * HIDDEN) + gate * HIDDEN + warp * 16 + tile * 8 + column;
          given[gate][tile][low] = row < batch ? *reinterpret_cast<const unsigned*>(from) : 0u;
        }
    float sums[GATES][2][4];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
#pragma unroll
      for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[gate][tile][j] = 0.0f;
    const half* const before = states + (step & 1) * 16 * STRIDE;
    half* const after = states + (1 - (step & 1)) * 16 * STRIDE;
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      unsigned a[4];
      socsched_load(a, before + lane % 16 * STRIDE + k * 16 + lane / 16 * 8);
#pragma unroll
      for (int gate = 0; gate < GATES; gate++)
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
          const int place = (gate * 2 + tile) * DEPTH + k;
          const uint2 b = KEPT ? kept[KEPT ? place : 0] : own[place * 32];
          socsched_multiply(sums[gate][tile], a, b.x, b.y);
        }
    }
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
      for (int low = 0; low < 2; low++) {
        float made[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          const int j = low * 2 + i;
          float value[GATES];
#pragma unroll
          for (int gate = 0; gate < GATES; gate++) value[gate] = socsched_part(given[gate][tile][low], i);
          float& last = state[tile][j];
          if (GATES == 3) {  // update, reset, candidate (ONNX, GRU, linear_before_reset)
            const float update = socsched_sigmoid(value[0] + sums[0][tile][j] + bias[0][tile][i]);
            const float reset = socsched_sigmoid(value[1] + sums[1][tile][j] + bias[1][tile][i]);
            const float candidate = socsched_tanh(value[2] + bias[2][tile][i] + reset * (sums[2][tile][j] + bias[3][tile][i]));
            last = candidate + update * (last - candidate);
          } else {  // input, output, forget, cell (ONNX, LSTM)
            const float input = socsched_sigmoid(value[0] + sums[0][tile][j] + bias[0][tile][i]);
            const float output = socsched_sigmoid(value[1] + sums[1][tile][j] + bias[1][tile][i]);
            const float forget = socsched_sigmoid(value[2] + sums[2][tile][j] + bias[2][tile][i]);
            float& inside = cell[tile][j];
            inside = forget * inside + input * socsched_tanh(value[GATES - 1] + sums[GATES - 1][tile][j] + bias[BIASES - 1][tile][i]);
            last = output * socsched_tanh(inside);
          }
          made[i] = last;
        }
        const int row = lane / 4 + low * 8, unit = warp * 16 + tile * 8 + column;
        const unsigned pair = socsched_pair(made[0], made[1]);
        *reinterpret_cast<unsigned*>(after + row * STRIDE + unit) = pair;
        if (first + row < batch) *reinterpret_cast<unsigned*>(Y + ((long long)at * batch + first + row) * HIDDEN + unit) = pair;
      }
    __syncthreads();
  }
  return 0;
}
