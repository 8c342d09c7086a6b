/* Ranking by score, and the mode of small floats. */
#include "common.h"

/* Whether `a` ranks behind `b`. */
ALWAYS int behind(const ranked *a, const ranked *b)
{
    return a->score < b->score || (a->score == b->score && a->number > b->number);
}

/* Restores the heap, whose root ranks last, after its element `at` was replaced. */
static void sink(ranked *heap, int64_t count, int64_t at)
{
    ranked moved = heap[at];
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && behind(heap + child + 1, heap + child))
            child++;
        if (!behind(heap + child, &moved))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

int64_t socsched_rank(ranked *entries, int64_t count, int64_t most)
{
    int64_t kept = smaller(count, most);
    for (int64_t i = kept / 2 - 1; i >= 0; i--)
        sink(entries, kept, i);
    for (int64_t i = kept; i < count && kept; i++)
        if (behind(entries, entries + i)) {
            entries[0] = entries[i];
            sink(entries, kept, 0);
        }
    for (int64_t last = kept - 1; last > 0; last--) {
        ranked worst = entries[0];
        entries[0] = entries[last];
        entries[last] = worst;
        sink(entries, last, 0);
    }
    return kept;
}

static void sink_value(float *heap, int64_t count, int64_t at)
{
    float moved = heap[at];
    for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && heap[child + 1] < heap[child];
        if (heap[child] >= moved)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

/* The value that is `most`-th of count >= most logits from the top; `heap` has room for `most`. */
static float kth_largest(const ranked *entries, int64_t count, int64_t most, float *heap)
{
    for (int64_t i = 0; i < most; i++)
        heap[i] = (float)entries[i].score;
    for (int64_t i = most / 2 - 1; i >= 0; i--)
        sink_value(heap, most, i);
    for (int64_t i = most; i < count; i++)
        if ((float)entries[i].score > heap[0]) {
            heap[0] = (float)entries[i].score;
            sink_value(heap, most, 0);
        }
    return heap[0];
}

int64_t socsched_choose(ranked *entries, int64_t count, int64_t most, double score, float *heap)
{
    int64_t passed = 0;
    float least = -INFINITY;
    if (most <= count) {
        double kth = kth_largest(entries, count, most, heap);
        least = (float)(kth < 20 ? kth : 20);
    }
    for (int64_t i = 0; i < count; i++)
        if (entries[i].score >= least) {
            ranked passing = entries[i];
            passing.score = sigmoid(passing.score);
            if (passing.score > score)
                entries[passed++] = passing;
        }
    return socsched_rank(entries, passed, most);
}

#if defined(__x86_64__)
static uint64_t float_control(void) { return __builtin_ia32_stmxcsr(); }
void socsched_restore_floats(uint64_t before) { __builtin_ia32_ldmxcsr((unsigned)before); }
#define FLUSHES 0x8040 /* results and operands */
#elif defined(__aarch64__)
static uint64_t float_control(void)
{
    uint64_t found;
    __asm__ volatile("mrs %0, fpcr" : "=r"(found));
    return found;
}
void socsched_restore_floats(uint64_t before) { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }
#define FLUSHES (1 << 24)
#else
static uint64_t float_control(void) { return 0; }
void socsched_restore_floats(uint64_t before) { (void)before; }
#define FLUSHES 0
#endif

uint64_t socsched_flush_floats(void)
{
    uint64_t before = float_control();
    socsched_restore_floats(before | FLUSHES);
    return before;
}
