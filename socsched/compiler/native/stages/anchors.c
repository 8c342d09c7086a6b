/* Boxes from the maps of an anchor head (models/pointpillars/decode.py). */
#include "common.h"

enum { KINDS = SOCSCHED_KINDS, CLASSES = SOCSCHED_CLASSES, BLOCK = 32 };

typedef struct {
    ranked *entries; /* the anchors that pass; later the kept boxes, at most CLASSES per candidate */
    float *heap, *boxes;
    double *scores;
    footprint *seen;
    ranked *order;
    int32_t *kept;
    unsigned char *forward;
} arrays;

static int64_t anchors_of(const socsched_anchors_params *p)
{
    return (int64_t)KINDS * p->rows * p->columns;
}

static int usable(const socsched_anchors_params *p)
{
    return p && p->rows > 0 && p->columns > 0 && (int64_t)p->rows * p->columns <= MOST_CELLS && p->candidates > 0 &&
           p->max_boxes > 0;
}

static size_t share(const socsched_anchors_params *p, void *workspace, arrays *out)
{
    room from = {workspace, 0};
    size_t all = (size_t)anchors_of(p), most = (size_t)smaller(p->candidates, all), boxes = CLASSES * most;
    out->entries = part(&from, all > boxes ? all : boxes, sizeof(ranked));
    out->heap = part(&from, most, sizeof(float));
    out->boxes = part(&from, most, 7 * sizeof(float));
    out->scores = part(&from, most, CLASSES * sizeof(double));
    out->seen = part(&from, most, sizeof(footprint));
    out->order = part(&from, most, sizeof(ranked));
    out->kept = part(&from, most, sizeof(int32_t));
    out->forward = part(&from, most, 1);
    return from.used;
}

size_t socsched_decode_anchors_workspace(const socsched_anchors_params *params)
{
    arrays parts;
    return usable(params) ? share(params, NULL, &parts) : 0;
}

/* Whether any of up to BLOCK anchors might pass or is not finite. */
ALWAYS int any(const float *row, int64_t stride, int64_t width, float least)
{
    const float *second = row + stride, *third = second + stride;
    int32_t found = 0;
    for (int64_t i = 0; i < width; i++) {
        float best = row[i] > second[i] ? row[i] : second[i];
        best = best > third[i] ? best : third[i];
        /* NaN is not below `least` */
        found |= !(row[i] < least) | !(second[i] < least) | !(third[i] < least) | !(best > -INFINITY);
    }
    return found;
}

/* Lists the anchors with a class logit of at least `least`; counts those that are not finite. */
static int64_t passing(const float *logits, int64_t cells, float least, ranked *entries, int64_t *broken)
{
    int64_t found = 0, bad = 0;
    for (int64_t kind = 0; kind < KINDS; kind++)
        for (int64_t start = 0; start < cells; start += BLOCK) {
            const float *row = logits + kind * CLASSES * cells + start;
            int64_t width = smaller(cells - start, BLOCK);
            if (!(width == BLOCK ? any(row, cells, BLOCK, least) : any(row, cells, width, least)))
                continue;
            for (int64_t i = 0; i < width; i++) {
                float a = row[i], b = row[cells + i], c = row[2 * cells + i], best = a > b ? a : b;
                best = best > c ? best : c;
                if (a != a || b != b || c != c || !(best < INFINITY) || !(best > -INFINITY))
                    bad++;
                else if (best >= least) {
                    entries[found].score = best;
                    entries[found++].number = (int32_t)((start + i) * KINDS + kind);
                }
            }
        }
    *broken = bad;
    return found;
}

static int finite(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!(fabsf(values[i]) < INFINITY))
            return 0;
    return 1;
}

static float place(const socsched_anchors_params *p, int axis, int32_t index, int32_t count)
{
    return index == count - 1 ? p->last[axis] : (float)(index * p->step[axis] + p->origin[axis]);
}

/* The box of anchor `kind` in `cell`, its heading still without direction. */
static void box_of(const socsched_anchors_params *p, int32_t kind, int32_t cell, const float *offset, float *box)
{
    const float *anchor = p->anchors[kind];
    float x = place(p, 0, cell % p->columns, p->columns), y = place(p, 1, cell / p->columns, p->rows);
    float diagonal = (float)sqrt((double)anchor[3] * anchor[3] + (double)anchor[4] * anchor[4]);
    box[0] = offset[0] * diagonal + x;
    box[1] = offset[1] * diagonal + y;
    for (int i = 3; i < 6; i++)
        box[i] = (float)exponential(offset[i]) * anchor[i];
    box[2] = offset[2] * anchor[5] + anchor[2] + anchor[5] / 2 - box[5] / 2;
    box[6] = offset[6] + anchor[6];
}

static float heading(float angle, int forward, double turn)
{
    const float start = (float)turn, pi = (float)0x1.921fb54442d18p+1;
    angle = turn != 0 ? angle - start : angle;
    float part = angle - floorf(angle / pi + 1) * pi;
    angle = (float)((double)part + (forward ? 0x1.921fb54442d18p+1 : 0.0));
    return turn != 0 ? angle + start : angle;
}

/* Decodes the chosen anchors; returns how many are finite, adds the others to *dropped. */
static int64_t decode(const socsched_anchors_params *p, const float *logits, const float *offsets,
                      const float *directions, int64_t count, const arrays *to, int64_t *dropped)
{
    const int64_t cells = (int64_t)p->rows * p->columns;
    int64_t sound = 0;
    for (int64_t n = 0; n < count; n++) {
        int32_t kind = to->entries[n].number % KINDS, cell = to->entries[n].number / KINDS;
        float terms_[7], turns[2], *box = to->boxes + 7 * sound;
        for (int i = 0; i < 7; i++)
            terms_[i] = offsets[(kind * 7 + i) * cells + cell];
        for (int i = 0; i < 2; i++)
            turns[i] = directions[(kind * 2 + i) * cells + cell];
        box_of(p, kind, cell, terms_, box);
        if (!finite(box, 7) || !finite(turns, 2)) {
            ++*dropped;
            continue;
        }
        for (int c = 0; c < CLASSES; c++)
            to->scores[CLASSES * sound + c] = sigmoid(logits[(kind * CLASSES + c) * cells + cell]);
        footprint_of(box, to->seen[sound]);
        to->forward[sound++] = turns[1] <= turns[0];
    }
    return sound;
}

/* Suppresses the boxes of each class; returns how many remain in `entries`, numbered by class, then score. */
static int64_t suppress(const socsched_anchors_params *p, int64_t count, const arrays *to)
{
    int64_t total = 0;
    for (int32_t c = 0; c < CLASSES; c++) {
        int64_t length = 0, survivors = 0;
        for (int64_t n = 0; n < count; n++)
            if (to->scores[CLASSES * n + c] > p->score)
                to->order[length++] = (ranked){to->scores[CLASSES * n + c], (int32_t)n, c};
        length = socsched_rank(to->order, length, length);
        for (int64_t i = 0; i < length; i++) {
            int32_t n = to->order[i].number;
            int64_t k = 0;
            for (; k < survivors; k++) {
                int32_t better = to->kept[k], first = n < better ? n : better, second = n < better ? better : n;
                if (overlap(to->seen[first], to->seen[second], p->iou))
                    break;
            }
            if (k < survivors)
                continue;
            to->kept[survivors++] = n;
            /* `label` holds box and class */
            to->entries[total] = (ranked){to->order[i].score, (int32_t)total, CLASSES * n + c};
            total++;
        }
    }
    return total;
}

int64_t socsched_decode_anchors(const socsched_anchors_params *params, const float *logits, const float *offsets,
                                const float *directions, float *boxes, float *scores, int32_t *labels,
                                int64_t *dropped, void *workspace, size_t workspace_bytes)
{
    if (!usable(params))
        return SOCSCHED_BAD_PARAMS;
    if (!(logits && offsets && directions && boxes && scores && labels && dropped))
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_decode_anchors_workspace(params)))
        return SOCSCHED_SMALL_WORKSPACE;
    arrays parts;
    share(params, workspace, &parts);
    int64_t cells = (int64_t)params->rows * params->columns;
    int64_t count = passing(logits, cells, (float)params->least_logit, parts.entries, dropped);
    count = socsched_choose(parts.entries, count, params->candidates, -1, parts.heap);
    count = decode(params, logits, offsets, directions, count, &parts, dropped);
    count = socsched_rank(parts.entries, suppress(params, count, &parts), params->max_boxes);
    for (int64_t i = 0; i < count; i++) {
        int32_t n = parts.entries[i].label / CLASSES;
        memcpy(boxes + 7 * i, parts.boxes + 7 * n, 7 * sizeof(float));
        boxes[7 * i + 6] = heading(boxes[7 * i + 6], parts.forward[n], params->turn);
        scores[i] = (float)parts.entries[i].score;
        labels[i] = parts.entries[i].label % CLASSES;
    }
    return count;
}
