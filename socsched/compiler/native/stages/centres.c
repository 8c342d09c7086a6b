/* Boxes from the maps of a centre head (models/centerpoint/decode.py). */
#include "common.h"

enum { BLOCK = 32 };

typedef struct {
    ranked *entries; /* the cells that pass, with their classes */
    float *heap, *boxes, *velocities;
    int32_t *kept;
    footprint *seen;
} arrays;

static int usable(const socsched_centres_params *p)
{
    return p && p->classes > 0 && p->classes <= SOCSCHED_MOST_CLASSES && p->rows > 0 && p->columns > 0 &&
           (int64_t)p->rows * p->columns <= MOST_CELLS && p->candidates > 0 && p->max_boxes > 0;
}

static size_t share(const socsched_centres_params *p, void *workspace, arrays *out)
{
    room from = {workspace, 0};
    size_t all = (size_t)p->rows * p->columns, most = (size_t)smaller(p->candidates, all);
    out->entries = part(&from, all, sizeof(ranked));
    out->heap = part(&from, most, sizeof(float));
    out->boxes = part(&from, most, 7 * sizeof(float));
    out->velocities = part(&from, most, 2 * sizeof(float));
    out->kept = part(&from, most, sizeof(int32_t));
    out->seen = part(&from, (size_t)smaller(p->max_boxes, most), sizeof(footprint));
    return from.used;
}

size_t socsched_decode_centres_workspace(const socsched_centres_params *params)
{
    arrays parts;
    return usable(params) ? share(params, NULL, &parts) : 0;
}

/* Lists the cells with a logit of at least `least` and a reliable heading; counts those that are not finite. */
static int64_t passing(const socsched_centres_params *p, const float *heat, const float *rot, ranked *entries,
                            int64_t *broken)
{
    const int64_t cells = (int64_t)p->rows * p->columns;
    const float least = (float)p->least_logit;
    int64_t found = 0, bad = 0;
    float best[BLOCK];
    int32_t odd[BLOCK]; /* cells to look into */
    for (int64_t start = 0; start < cells; start += BLOCK) {
        const int64_t width = smaller(cells - start, BLOCK);
        const float *row = heat + start;
        int32_t any = 0;
        if (width == BLOCK) { /* a constant width becomes vectors */
            for (int i = 0; i < BLOCK; i++) {
                best[i] = row[i];
                odd[i] = row[i] != row[i];
            }
            for (int32_t c = 1; c < p->classes; c++)
                for (int i = 0; i < BLOCK; i++) {
                    float other = row[c * cells + i];
                    best[i] = best[i] > other ? best[i] : other;
                    odd[i] |= other != other;
                }
            for (int i = 0; i < BLOCK; i++)
                any |= odd[i] |= (best[i] >= least) | !(best[i] > -INFINITY);
            if (!any)
                continue;
        }
        for (int64_t i = 0; i < width; i++) {
            if (width == BLOCK && !odd[i])
                continue;
            float top = row[i];
            int32_t label = 0, sound = row[i] == row[i];
            for (int32_t c = 1; c < p->classes; c++) {
                float other = row[c * cells + i];
                sound &= other == other;
                if (other > top)
                    top = other, label = c;
            }
            if (!sound || !(top < INFINITY) || !(top > -INFINITY)) {
                bad++;
                continue;
            }
            if (!(top >= least))
                continue;
            double sine = rot[start + i], cosine = rot[cells + start + i];
            if ((float)sqrt(sine * sine + cosine * cosine) < p->least_heading[label])
                continue;
            entries[found++] = (ranked){top, (int32_t)(start + i), label};
        }
    }
    *broken = bad;
    return found;
}

/* Decodes one cell; returns whether its values are finite. */
static int box_of(const socsched_centres_params *p, int32_t cell, const float *reg, const float *height,
                  const float *dim, const float *rot, const float *vel, float *box, float *velocity)
{
    const int64_t cells = (int64_t)p->rows * p->columns;
    int32_t column = cell % p->columns, row = cell / p->columns, sound = 1;
    box[0] = (float)(((double)column + reg[cell]) * p->step[0] + p->origin[0]);
    box[1] = (float)(((double)row + reg[cells + cell]) * p->step[1] + p->origin[1]);
    for (int i = 0; i < 3; i++)
        box[3 + i] = (float)exponential(dim[i * cells + cell]);
    box[2] = height[cell] - box[5] / 2;
    box[6] = (float)angle_of(rot[cell], rot[cells + cell]);
    velocity[0] = vel[cell];
    velocity[1] = vel[cells + cell];
    for (int i = 0; i < 7; i++)
        sound &= fabsf(box[i]) < INFINITY;
    return sound & (fabsf(velocity[0]) < INFINITY) & (fabsf(velocity[1]) < INFINITY);
}

ALWAYS float squared_gap(const float *a, const float *b)
{
    float x = a[0] - b[0], y = a[1] - b[1];
    return x * x + y * y;
}

/* Keeps the boxes whose centres are not within `circle` of a better kept one, at most max_boxes. */
static int64_t apart(const socsched_centres_params *p, int64_t count, const arrays *parts)
{
    const float least = (float)(p->circle * p->circle);
    int64_t kept = 0;
    for (int64_t i = 0; i < count && kept < p->max_boxes; i++) {
        int64_t k = 0;
        while (k < kept && !(squared_gap(parts->boxes + 7 * parts->kept[k], parts->boxes + 7 * i) < least))
            k++;
        if (k == kept)
            parts->kept[kept++] = (int32_t)i;
    }
    return kept;
}

int64_t socsched_decode_centres(const socsched_centres_params *params, const float *heat, const float *reg,
                                const float *height, const float *dim, const float *rot, const float *vel,
                                float *boxes, float *scores, int32_t *labels, float *velocities, int64_t *dropped,
                                void *workspace, size_t workspace_bytes)
{
    if (!usable(params))
        return SOCSCHED_BAD_PARAMS;
    if (!(heat && reg && height && dim && rot && vel && boxes && scores && labels && velocities && dropped))
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_decode_centres_workspace(params)))
        return SOCSCHED_SMALL_WORKSPACE;
    arrays parts;
    share(params, workspace, &parts);
    int64_t count = passing(params, heat, rot, parts.entries, dropped), sound = 0;
    count = socsched_choose(parts.entries, count, params->candidates, params->score, parts.heap);
    for (int64_t i = 0; i < count; i++) {
        if (box_of(params, parts.entries[i].number, reg, height, dim, rot, vel, parts.boxes + 7 * sound,
                   parts.velocities + 2 * sound))
            parts.entries[sound++] = parts.entries[i];
        else
            ++*dropped;
    }
    const int64_t kept = apart(params, sound, &parts);
    const float search = (float)(params->search * params->search);
    int64_t clear = 0;
    for (int64_t i = 0; i < kept; i++)
        footprint_of(parts.boxes + 7 * parts.kept[i], parts.seen[i]);
    for (int64_t i = 0; i < kept; i++) {
        const float *box = parts.boxes + 7 * parts.kept[i];
        int64_t k = 0; /* a box is also dropped for a better one that is dropped itself */
        while (k < i && !(squared_gap(parts.boxes + 7 * parts.kept[k], box) <= search &&
                          overlap(parts.seen[k], parts.seen[i], params->iou)))
            k++;
        if (k < i)
            continue;
        memcpy(boxes + 7 * clear, box, 7 * sizeof(float));
        memcpy(velocities + 2 * clear, parts.velocities + 2 * parts.kept[i], 2 * sizeof(float));
        scores[clear] = (float)parts.entries[parts.kept[i]].score;
        labels[clear++] = parts.entries[parts.kept[i]].label;
    }
    return clear;
}
