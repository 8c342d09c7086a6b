/* Points sorted into pillars (models/pointpillars/voxelise.py). */
#include "common.h"

enum { BLOCK = 64 };

/* Cells of up to BLOCK points; x is -1 for those out of range. */
static void cells_of(const socsched_voxelise_params *grid, const float *points, int64_t count, int32_t *restrict xs,
                          int32_t *restrict ys)
{
    const float low_x = grid->low[0], low_y = grid->low[1], low_z = grid->low[2];
    const float size_x = grid->size[0], size_y = grid->size[1], size_z = grid->size[2];
    const float most_x = (float)grid->cells[0], most_y = (float)grid->cells[1], most_z = (float)grid->cells[2];
    for (int64_t i = 0; i < count; i++) {
        float x = (points[4 * i] - low_x) / size_x, y = (points[4 * i + 1] - low_y) / size_y;
        float z = (points[4 * i + 2] - low_z) / size_z;
        int inside = (x >= 0) & (x < most_x) & (y >= 0) & (y < most_y) & (z >= 0) & (z < most_z);
        x = inside ? x : -1.0f; /* y is 0 then */
        y = inside ? y : 0.0f;
        xs[i] = (int32_t)x;
        ys[i] = (int32_t)y;
    }
}

static int usable(const socsched_voxelise_params *p)
{
    return p && p->cells[0] > 0 && p->cells[1] > 0 && p->cells[2] > 0 && p->cells[2] <= MOST_CELLS &&
           (int64_t)p->cells[0] * p->cells[1] <= MOST_CELLS && p->max_pillars > 0 && p->max_points > 0;
}

size_t socsched_voxelise_workspace(const socsched_voxelise_params *params)
{
    return usable(params) ? (size_t)params->cells[0] * params->cells[1] * sizeof(int32_t) : 0;
}

int64_t socsched_voxelise(const socsched_voxelise_params *params, const float *points, int64_t count, float *voxels,
                          int32_t *counts, int32_t *coords, void *workspace, size_t workspace_bytes)
{
    if (!usable(params))
        return SOCSCHED_BAD_PARAMS;
    if (count < 0 || (count && !(points && voxels && counts && coords)))
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_voxelise_workspace(params)))
        return SOCSCHED_SMALL_WORKSPACE;
    /* table[cell] is the number of the cell's pillar if that pillar's coords are the cell's; else it is garbage from
       earlier frames, so that the table is never cleared. */
    int32_t *table = workspace;
    int32_t xs[BLOCK], ys[BLOCK], sources[BLOCK];
    float *targets[BLOCK];
    const int64_t slots = params->max_points, columns = params->cells[0];
    const int32_t most = params->max_pillars;
    uint32_t found = 0;
    for (int64_t start = 0; start < count; start += BLOCK) {
        int64_t width = smaller(count - start, BLOCK);
        cells_of(params, points + 4 * start, width, xs, ys);
        /* Numbers first and copies after, so that the cache misses of a block overlap. */
        for (int64_t i = 0; i < width; i++)
            __builtin_prefetch(table + ys[i] * columns + (xs[i] < 0 ? 0 : xs[i]));
        int64_t copies = 0;
        for (int64_t i = 0; i < width; i++) {
            int32_t x = xs[i], y = ys[i];
            if (x < 0)
                continue;
            int32_t *place = table + y * columns + x;
            uint32_t number = (uint32_t)*place;
            if (number >= found || coords[2 * (int64_t)number] != x || coords[2 * (int64_t)number + 1] != y) {
                if (found == (uint32_t)most)
                    continue;
                number = found++;
                *place = (int32_t)number;
                coords[2 * (int64_t)number] = x;
                coords[2 * (int64_t)number + 1] = y;
                counts[number] = 0;
                memset(voxels + 4 * slots * number, 0, 16 * slots);
            }
            int32_t slot = counts[number];
            if (slot == slots)
                continue;
            counts[number] = slot + 1;
            sources[copies] = (int32_t)i;
            targets[copies] = voxels + 4 * (slots * number + slot);
            __builtin_prefetch(targets[copies++], 1);
        }
        for (int64_t k = 0; k < copies; k++) {
            memcpy(targets[k], points + 4 * (start + sources[k]), 16);
            if (params->clear_fourth)
                targets[k][3] = 0;
        }
    }
    return found;
}
