// Attention's device function (attention.cuh) on a CPU: its fragments, masks and chunks.
#include "fragments_emulator.h"

#include "attention.cuh"

extern "C" int run(const half* Q, const half* K, const half* V, const int* q, const int* k, const int* v, const half* B, half* O, int batch,
                   int heads, int rows, int length, int q_step, int k_step, int v_step, float factor) {
  meetings.resize(BLOCK_WARPS);
  emulated::body = [&] {
    socsched_attention<HEAD_WIDTH, BLOCK_WARPS, KEY_CHUNK, BIAS_TABLES>(Q, K, V, q, k, v, B, O, heads, rows, length, q_step, k_step, v_step, factor);
  };
  for (int y = 0; y < batch; y++)
    for (int x = 0; x * 16 * BLOCK_WARPS < rows; x++)
      if (!emulated::run_block({x, y, 0}, 32, BLOCK_WARPS)) return 1;
  return 0;
}
