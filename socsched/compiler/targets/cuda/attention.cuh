// Attention as one kernel: scores, softmax and their product with the values, in blocks of keys, sums in fp32.
//
// A block of threads takes 16 rows a warp of one matrix of the batch.  Keys and values come in chunks by cp.async, the
// next while one is used; the softmax is that of Milakov and Gimelshein ("Online normalizer calculation for softmax",
// 2018).  Fragments are those of mma.m16n8k16 (PTX ISA).  Rows in shared memory are 16 bytes longer than they need to be,
// so that the eight rows of a matrix lie in different banks.
// `count` rows of `from`, `width` of `STRIDE` columns each, from row `first` on; rows from `rows` on are zeros.
template <int WIDTH, int STRIDE, int THREADS>
__device__ __forceinline__ void socsched_rows(half* to, const half* from, int step, int first, int rows, int count, int thread) {
  constexpr int VECTORS = (STRIDE - 8) / 8;
  for (int i = thread; i < count * VECTORS; i += THREADS) {
    const int row = i / VECTORS, column = i % VECTORS * 8;
    const bool inside = first + row < rows && column < WIDTH;
    socsched_copy(to + row * STRIDE + column, inside ? from + (long long)(first + row) * step + column : from, inside);
  }
}

template <int WIDTH, int WARPS, int CHUNK, int BIASES>
__device__ __forceinline__ int socsched_attention(const half* Q, const half* K, const half* V, const int* q, const int* k, const int* v,
                                                  const half* B, half* O, int heads, int rows, int length, int q_step, int k_step,
                                                  int v_step, float factor) {
  constexpr int PADDED = (WIDTH + 15) / 16 * 16, STRIDE = PADDED + 8, THREADS = 32 * WARPS, ROWS = 16 * WARPS;
  constexpr float LOG2E = 1.4426950408889634f;
  __shared__ __align__(16) half queries[ROWS * STRIDE];
  __shared__ __align__(16) half keys[2 * CHUNK * STRIDE];
  __shared__ __align__(16) half values[2 * CHUNK * STRIDE];
  const int lane = threadIdx.x, warp = threadIdx.y, thread = warp * 32 + lane, s = blockIdx.y, first = blockIdx.x * ROWS;
  const float none = __int_as_float(0xff800000);
  const int chunks = (length + CHUNK - 1) / CHUNK;
  K += k[s];
  V += v[s];
  socsched_rows<WIDTH, STRIDE, THREADS>(queries, Q + q[s], q_step, first, rows, ROWS, thread);
  socsched_rows<WIDTH, STRIDE, THREADS>(keys, K, k_step, 0, length, CHUNK, thread);
  socsched_rows<WIDTH, STRIDE, THREADS>(values, V, v_step, 0, length, CHUNK, thread);
  socsched_commit();
  unsigned query[PADDED / 16][4];
  float result[PADDED / 8][4], most[2] = {none, none}, total[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < PADDED / 8; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) result[i][j] = 0.0f;
  const int row = first + warp * 16 + lane / 4;
  const half* const bias = BIASES ? B + (long long)(s % (BIASES ? BIASES : 1)) * rows * ((length + 7) / 8 * 8) : B;
  for (int chunk = 0; chunk < chunks; chunk++) {
    const int here = (chunk & 1) * CHUNK * STRIDE, there = CHUNK * STRIDE - here;
    if (chunk + 1 < chunks) {
      socsched_rows<WIDTH, STRIDE, THREADS>(keys + there, K, k_step, (chunk + 1) * CHUNK, length, CHUNK, thread);
      socsched_rows<WIDTH, STRIDE, THREADS>(values + there, V, v_step, (chunk + 1) * CHUNK, length, CHUNK, thread);
    }
    socsched_commit();
    socsched_wait<1>();
    __syncthreads();
    if (chunk == 0)
#pragma unroll
      for (int d = 0; d < PADDED / 16; d++) socsched_load(query[d], queries + (warp * 16 + lane % 16) * STRIDE + d * 16 + lane / 16 * 8);
    float score[CHUNK / 8][4];
#pragma unroll
    for (int n = 0; n < CHUNK / 16; n++) {
#pragma unroll
      for (int j = 0; j < 4; j++) score[2 * n][j] = score[2 * n + 1][j] = 0.0f;
#pragma unroll
      for (int d = 0; d < PADDED / 16; d++) {
        unsigned key[4];
        socsched_load(key, keys + here + (n * 16 + lane / 16 * 8 + lane % 8) * STRIDE + d * 16 + lane % 16 / 8 * 8);
        socsched_multiply(score[2 * n], query[d], key[0], key[1]);
        socsched_multiply(score[2 * n + 1], query[d], key[2], key[3]);
      }
    }
    float best[2] = {most[0], most[1]};
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int column = chunk * CHUNK + n * 8 + lane % 4 * 2 + j % 2, at = row + j / 2 * 8;
        float value = score[n][j] * factor;
        if (BIASES && column < length && at < rows) value += __half2float(bias[(long long)at * ((length + 7) / 8 * 8) + column]);
        score[n][j] = column < length ? value * LOG2E : none;
        best[j / 2] = fmaxf(best[j / 2], score[n][j]);
      }
#pragma unroll
    for (int half_of = 0; half_of < 2; half_of++) {
      best[half_of] = fmaxf(best[half_of], socsched_across(best[half_of], 1));
      best[half_of] = fmaxf(best[half_of], socsched_across(best[half_of], 2));
      const float share = socsched_power(most[half_of] - best[half_of]);
      most[half_of] = best[half_of];
      total[half_of] *= share;
#pragma unroll
      for (int i = 0; i < PADDED / 8; i++) {
        result[i][2 * half_of] *= share;
        result[i][2 * half_of + 1] *= share;
      }
    }
#pragma unroll
    for (int n = 0; n < CHUNK / 8; n++)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        score[n][j] = socsched_power(score[n][j] - most[j / 2]);
        total[j / 2] += score[n][j];
      }
#pragma unroll
    for (int n = 0; n < CHUNK / 16; n++) {
      const unsigned share[4] = {socsched_pair(score[2 * n][0], score[2 * n][1]), socsched_pair(score[2 * n][2], score[2 * n][3]),
                                 socsched_pair(score[2 * n + 1][0], score[2 * n + 1][1]), socsched_pair(score[2 * n + 1][2], score[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < PADDED / 16; d++) {
        unsigned value[4];
        socsched_load_turned(value, values + here + (n * 16 + lane % 16) * STRIDE + d * 16 + lane / 16 * 8);
        socsched_multiply(result[2 * d], share, value[0], value[1]);
        socsched_multiply(result[2 * d + 1], share, value[2], value[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int half_of = 0; half_of < 2; half_of++) {
    total[half_of] += socsched_across(total[half_of], 1);
    total[half_of] += socsched_across(total[half_of], 2);
    const int at = row + half_of * 8;
    if (at >= rows) continue;
    half* const to = O + ((long long)(s / heads * rows + at) * heads + s % heads) * WIDTH;
#pragma unroll
    for (int i = 0; i < PADDED / 8; i++)
      if (i * 8 < WIDTH)
        *reinterpret_cast<unsigned*>(to + i * 8 + lane % 4 * 2) = socsched_pair(result[i][2 * half_of] / total[half_of], result[i][2 * half_of + 1] / total[half_of]);
  }
  return 0;
}
