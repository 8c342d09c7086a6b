/* Inner loops of host functions (models/loops.py).  Arithmetic is that of the numpy code there, operation by
   operation: no contraction, no reassociation, float where numpy has float32. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Numbers pillars in order of first appearance; pillar[i] is that of point i, -1 outside of the grid or beyond `most`.
   `table` holds -1 for every cell, before and after; `cell` receives the pillars' cells.  Returns their number. */
int64_t number_pillars(const float *points, int64_t count, const float *low, const float *size, const int32_t *cells,
                       int64_t most, int32_t *table, int32_t *pillar, int32_t *cell)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *p = points + 4 * i;
        float x = (p[0] - low[0]) / size[0], y = (p[1] - low[1]) / size[1], z = (p[2] - low[2]) / size[2];
        pillar[i] = -1;
        if (!(x >= 0 && x < cells[0] && y >= 0 && y < cells[1] && z >= 0 && z < cells[2]))
            continue;
        int32_t here = (int32_t)y * cells[0] + (int32_t)x, number = table[here];
        if (number < 0) {
            if (found == most)
                continue;
            number = table[here] = (int32_t)found;
            cell[found++] = here;
        }
        pillar[i] = number;
    }
    for (int64_t n = 0; n < found; n++)
        table[cell[n]] = -1;
    return found;
}

/* Copies points into the slots of their pillars, in order; unused slots are zeroed. */
void fill_pillars(const float *points, int64_t count, const int32_t *pillar, const int32_t *cell, int64_t pillars,
                  int64_t slots, int32_t columns, float *voxels, int32_t *counts, int32_t *coords)
{
    memset(counts, 0, pillars * sizeof *counts);
    for (int64_t i = 0; i < count; i++) {
        int32_t number = pillar[i];
        if (number < 0 || counts[number] == slots)
            continue;
        memcpy(voxels + 4 * (number * slots + counts[number]++), points + 4 * i, 16);
    }
    for (int64_t n = 0; n < pillars; n++) {
        memset(voxels + 4 * (n * slots + counts[n]), 0, 16 * (slots - counts[n]));
        coords[2 * n] = cell[n] % columns;
        coords[2 * n + 1] = cell[n] / columns;
    }
}

/* Partially sorts so that values[k] has its place in descending order (Hoare's selection). */
static float kth_of(float *values, int64_t count, int64_t k)
{
    int64_t first = 0, last = count - 1;
    while (first < last) {
        float pivot = values[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (values[i] > pivot)
                i++;
            while (values[j] < pivot)
                j--;
            if (i <= j) {
                float held = values[i];
                values[i++] = values[j];
                values[j--] = held;
            }
        }
        if (k <= j)
            last = j;
        else if (k >= i)
            first = i;
        else
            break;
    }
    return values[k];
}

enum { BLOCK = 1024 };

/* Best logit of every anchor; those that pass are listed in `index` in order; returns their number.
   `values` and `scratch` have room for all anchors. */
int64_t best_anchors(const float *logits, int64_t kinds, int64_t classes, int64_t cells, double floor_, int64_t most,
                     int32_t *index, float *values, float *scratch, int64_t *broken)
{
    int64_t found = 0, bad = 0;
    float least = (float)floor_;
    float best[BLOCK];
    int32_t sound[BLOCK];
    for (int64_t kind = 0; kind < kinds; kind++)
        for (int64_t start = 0; start < cells; start += BLOCK) {
            int64_t width = cells - start < BLOCK ? cells - start : BLOCK;
            const float *row = logits + kind * classes * cells + start;
            for (int64_t i = 0; i < width; i++) {
                best[i] = row[i];
                sound[i] = row[i] == row[i];
            }
            for (int64_t c = 1; c < classes; c++) {
                const float *other = row + c * cells;
                for (int64_t i = 0; i < width; i++) {
                    best[i] = other[i] > best[i] ? other[i] : best[i];
                    sound[i] &= other[i] == other[i];
                }
            }
            int32_t passed = 0, whole = 0;
            for (int64_t i = 0; i < width; i++) {
                sound[i] &= (best[i] < INFINITY) & (best[i] > -INFINITY);
                whole += sound[i];
                passed += sound[i] & (best[i] >= least);
            }
            bad += width - whole;
            if (!passed && least > -INFINITY)
                continue;
            for (int64_t i = 0; i < width; i++)
                if (sound[i] && best[i] >= least) {
                    values[found] = best[i];
                    index[found++] = (int32_t)(kind * cells + start + i);
                }
        }
    *broken = bad;
    if (most <= 0 || found < most)
        return found;
    memcpy(scratch, values, found * sizeof *values);
    double kth = kth_of(scratch, found, most - 1);
    double bound = kth < 20.0 ? kth : 20.0;
    least = (float)(floor_ > bound ? floor_ : bound);
    int64_t kept = 0;
    for (int64_t i = 0; i < found; i++)
        if (values[i] >= least)
            index[kept++] = index[i];
    return kept;
}

static double held(double value, double low, double high)
{
    value = value > low ? value : low;
    return value < high ? value : high;
}

static double fraction(double distance, double step)
{
    double value = distance / step;
    return value != value ? 0.0 : held(value, 0.0, 1.0);
}

static double shared_area(const double *a, double cos_a, double sin_a, const double *b, double cos_b, double sin_b)
{
    static const double ahead[4] = {1, -1, -1, 1}, aside[4] = {1, 1, -1, -1};
    double u[4], v[4], part[4], dx = a[0] - b[0], dy = a[1] - b[1], half_l = b[3] / 2, half_w = b[2] / 2;
    for (int k = 0; k < 4; k++) {
        double along = a[3] / 2 * ahead[k], across = a[2] / 2 * aside[k];
        double x = dx + along * cos_a - across * sin_a, y = dy + along * sin_a + across * cos_a;
        u[k] = x * cos_b + y * sin_b;
        v[k] = y * cos_b - x * sin_b;
    }
    for (int k = 0; k < 4; k++) {
        double du = u[(k + 1) % 4] - u[k], dv = v[(k + 1) % 4] - v[k];
        double e0 = fraction(-half_l - u[k], du), e1 = fraction(half_l - u[k], du);
        double t0 = fraction(-half_w - v[k], dv), t1 = fraction(half_w - v[k], dv);
        double start = e0 < e1 ? e0 : e1, stop = e0 < e1 ? e1 : e0;
        double knot[4] = {start, held(t0 < t1 ? t0 : t1, start, stop), held(t0 < t1 ? t1 : t0, start, stop), stop};
        double height[4], integral = 0;
        for (int m = 0; m < 4; m++)
            height[m] = held(v[k] + knot[m] * dv, -half_w, half_w);
        integral = (knot[1] - knot[0]) * (height[1] + height[0]);
        integral += (knot[2] - knot[1]) * (height[2] + height[1]);
        integral += (knot[3] - knot[2]) * (height[3] + height[2]);
        part[k] = integral / 2 * du;
    }
    double area = -(((part[0] + part[1]) + part[2]) + part[3]);
    return area > 0 ? area : 0;
}

/* overlap[i][j]: whether footprints i and j share more than `least` of their union. */
void overlapping(const double *rects, const double *cosines, const double *sines, const double *radius, int64_t count,
                 double least, uint8_t *overlap)
{
    for (int64_t i = 0; i < count; i++) {
        const double *a = rects + 5 * i;
        overlap[i * count + i] = 1.0 > least;
        for (int64_t j = i + 1; j < count; j++) {
            const double *b = rects + 5 * j;
            double ratio = 0;
            if (hypot(a[0] - b[0], a[1] - b[1]) <= radius[i] + radius[j]) {
                double both = shared_area(a, cosines[i], sines[i], b, cosines[j], sines[j]);
                double whole = a[2] * a[3] + b[2] * b[3] - both;
                ratio = whole > 0 ? both / whole : 0;
            }
            overlap[i * count + j] = overlap[j * count + i] = ratio > least;
        }
    }
}

/* Keeps the members of `order` that overlap no better member kept before; returns their number. */
int64_t suppress(const uint8_t *overlap, int64_t count, const int64_t *order, int64_t length, int64_t *kept)
{
    int64_t found = 0;
    for (int64_t i = 0; i < length; i++) {
        int64_t k = 0;
        while (k < found && !overlap[kept[k] * count + order[i]])
            k++;
        if (k == found)
            kept[found++] = order[i];
    }
    return found;
}
