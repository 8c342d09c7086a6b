/* Kernels for the stand-in driver, which pass through one block of one thread. */
#include <stdint.h>

/* boxes, scores and labels from rows of seven floats: what follows `rows` rows is unused */
int launch_detect(int x, int y, int z, int width, int height, void** given) {
  const float* from = given[0];
  float *boxes = given[1], *scores = given[2];
  int32_t* labels = given[3];
  const int32_t* rows = given[4];
  const float add = *(const float*)given[5];
  const int64_t most = (int64_t)given[6];
  for (int64_t i = 0; i < most; i++) {
    for (int k = 0; k < 7; k++) boxes[7 * i + k] = from[7 * i + k] + add;
    scores[i] = boxes[7 * i];
    labels[i] = i < *rows ? (int32_t)scores[i] : -1;
  }
  return x != 1 || y != 1 || z != 1 || width != 32 || height != 1;
}

int launch_fail(int x, int y, int z, int width, int height, void** given) { return 1; }
