/* Ranking by score and the overlap of rotated boxes seen from above (models/pointpillars/nms.py). */
#include "common.h"
#include "elementary.h"

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

float socsched_kth_largest(const ranked *entries, int64_t count, int64_t most, float *heap)
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

void socsched_footprint(const float *box, footprint *found)
{
    found->x = box[0], found->y = box[1], found->width = box[3], found->length = box[4];
    sine_cosine(-(double)box[6] - 0x1.921fb54442d18p+0, &found->sine, &found->cosine);
    found->radius = sqrt(found->width * found->width + found->length * found->length) / 2;
    found->area = found->width * found->length;
}

ALWAYS double held(double value, double low, double high)
{
    value = value > low ? value : low;
    return value < high ? value : high;
}

ALWAYS double fraction(double distance, double step)
{
    double value = distance / step;
    return value != value ? 0.0 : held(value, 0.0, 1.0);
}

static double shared_area(const footprint *a, const footprint *b)
{
    static const double ahead[4] = {1, -1, -1, 1}, aside[4] = {1, 1, -1, -1};
    double u[4], v[4], parts[4], dx = a->x - b->x, dy = a->y - b->y, half_l = b->length / 2, half_w = b->width / 2;
    for (int k = 0; k < 4; k++) {
        double along = a->length / 2 * ahead[k], across = a->width / 2 * aside[k];
        double x = dx + along * a->cosine - across * a->sine, y = dy + along * a->sine + across * a->cosine;
        u[k] = x * b->cosine + y * b->sine;
        v[k] = y * b->cosine - x * b->sine;
    }
    for (int k = 0; k < 4; k++) {
        double du = u[(k + 1) % 4] - u[k], dv = v[(k + 1) % 4] - v[k];
        double e0 = fraction(-half_l - u[k], du), e1 = fraction(half_l - u[k], du);
        double t0 = fraction(-half_w - v[k], dv), t1 = fraction(half_w - v[k], dv);
        double start = e0 < e1 ? e0 : e1, stop = e0 < e1 ? e1 : e0;
        double knot[4] = {start, held(t0 < t1 ? t0 : t1, start, stop), held(t0 < t1 ? t1 : t0, start, stop), stop};
        double height[4], integral;
        for (int m = 0; m < 4; m++)
            height[m] = held(v[k] + knot[m] * dv, -half_w, half_w);
        integral = (knot[1] - knot[0]) * (height[1] + height[0]);
        integral += (knot[2] - knot[1]) * (height[2] + height[1]);
        integral += (knot[3] - knot[2]) * (height[3] + height[2]);
        parts[k] = integral / 2 * du;
    }
    double area = -(((parts[0] + parts[1]) + parts[2]) + parts[3]);
    return area > 0 ? area : 0;
}

int socsched_overlap(const footprint *a, const footprint *b, double least)
{
    double dx = a->x - b->x, dy = a->y - b->y, reach = a->radius + b->radius, ratio = 0;
    if (dx * dx + dy * dy <= reach * reach) {
        double both = shared_area(a, b), all = a->area + b->area - both;
        if (all > 0)
            ratio = both / all;
    }
    return ratio > least;
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
