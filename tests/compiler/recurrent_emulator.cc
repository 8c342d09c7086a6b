// The device function of recurrent layers (recurrent.cuh) on a CPU.
#include "fragments_emulator.h"

#include "recurrent.cuh"

extern "C" int run(const half* P, const half* R, const float* B, const float* F, half* Y, int steps, int batch, int reversed) {
  meetings.resize(HIDDEN_UNITS / 16);
  emulated::body = [&] { socsched_recurrent<HIDDEN_UNITS, GATES_OF_A_UNIT, WEIGHTS_KEPT>(P, R, B, F, Y, steps, batch, reversed); };
  for (int x = 0; x * 16 < batch; x++)
    if (!emulated::run_block({x, 0, 0}, 32, HIDDEN_UNITS / 16)) return 1;
  return 0;
}
