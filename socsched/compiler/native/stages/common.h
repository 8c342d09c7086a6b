/* What the stages share: checks of sizes, the layout of workspaces, ranking, overlaps, elementary functions. */
#ifndef SOCSCHED_COMMON_H
#define SOCSCHED_COMMON_H

#include "stages.h"
#include <math.h>
#include <string.h>

#define ALWAYS static inline __attribute__((always_inline))

enum { MOST_CELLS = 1 << 26 };

/* Hands out parts of a workspace, each aligned to 64 bytes; with a null base it only counts. */
typedef struct {
    unsigned char *base;
    size_t used;
} room;

ALWAYS void *part(room *from, size_t count, size_t size)
{
    void *found = from->base ? from->base + from->used : NULL;
    from->used += (count * size + 63) / 64 * 64;
    return found;
}

ALWAYS int unfit(const void *workspace, size_t bytes, size_t needed)
{
    return !workspace || (uintptr_t)workspace % 64 || bytes < needed;
}

ALWAYS int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A number and its score. */
typedef struct {
    double score;
    int32_t number, label;
} ranked;

/* Moves the best `most` of `entries` to the front, highest score first, equal ones by number; returns how many. */
int64_t socsched_rank(ranked *entries, int64_t count, int64_t most);

/* The same of entries whose scores are logits, of those with a score above `score`, which replaces the logit; `heap` has
   room for `most`.  Above 20, different logits may round to the same score; number then decides. */
int64_t socsched_choose(ranked *entries, int64_t count, int64_t most, double score, float *heap);

/* Elementary functions and overlaps of boxes seen from above, which are those of GPUs. */
#define FUNCTION static inline
#define GLOBAL
#define HALF_PI 0x1.921fb54442d18p+0
typedef double real;
typedef double footprint[7];
#include "../../targets/gpu_functions/kernels/elementary.h"
#include "../../targets/gpu_functions/kernels/rotated.h"

ALWAYS void footprint_of(const float *box, footprint found)
{
    put_footprint(found, box[0], box[1], box[3], box[4], box[6]);
}

#endif
