/* Boxes in the image from the map of the camera detector (models/camera_decode.py). */
#include "common.h"

enum { ANCHORS = SOCSCHED_IMAGE_ANCHORS, CLASSES = SOCSCHED_IMAGE_CLASSES, TERMS = 5 + CLASSES };

typedef struct {
    ranked *entries;
    float *boxes;
    int32_t *kept;
} arrays;

static int usable(const socsched_image_boxes_params *p)
{
    return p && p->rows > 0 && p->columns > 0 && (int64_t)p->rows * p->columns <= MOST_CELLS && p->candidates > 0 &&
           p->max_boxes > 0;
}

static size_t share(const socsched_image_boxes_params *p, void *workspace, arrays *out)
{
    room from = {workspace, 0};
    size_t all = (size_t)ANCHORS * p->rows * p->columns, most = (size_t)smaller(p->candidates, all);
    out->entries = part(&from, all, sizeof(ranked));
    out->boxes = part(&from, most, 4 * sizeof(float));
    out->kept = part(&from, most, sizeof(int32_t));
    return from.used;
}

size_t socsched_decode_image_boxes_workspace(const socsched_image_boxes_params *params)
{
    arrays parts;
    return usable(params) ? share(params, NULL, &parts) : 0;
}

/* The best class of a box, and its probability. */
static int32_t best_class(const float *logits, int64_t stride, double *probability)
{
    double share_[CLASSES], sum;
    float top = logits[0];
    int32_t best = 0;
    for (int c = 1; c < CLASSES; c++)
        top = logits[c * stride] > top ? logits[c * stride] : top;
    for (int c = 0; c < CLASSES; c++)
        share_[c] = exponential((double)logits[c * stride] - top);
    sum = share_[0] + share_[1] + share_[2];
    for (int c = 0; c < CLASSES; c++) {
        share_[c] /= sum;
        if (share_[c] > share_[best])
            best = c;
    }
    *probability = share_[best];
    return best;
}

/* Lists the boxes above the score, counts those that are not finite. */
static int64_t passing(const socsched_image_boxes_params *p, const float *maps, ranked *entries, int64_t *broken)
{
    const int64_t cells = (int64_t)p->rows * p->columns;
    int64_t found = 0, bad = 0;
    for (int64_t cell = 0; cell < cells; cell++)
        for (int anchor = 0; anchor < ANCHORS; anchor++) {
            const float *box = maps + anchor * TERMS * cells + cell;
            int sound = 1;
            for (int i = 0; i < TERMS; i++)
                sound &= fabsf(box[i * cells]) < INFINITY;
            bad += !sound;
            if (!sound || box[4 * cells] < p->least_logit)
                continue;
            double probability;
            int32_t label = best_class(box + 5 * cells, cells, &probability);
            double score = sigmoid(box[4 * cells]) * probability;
            if (score > p->score)
                entries[found++] = (ranked){score, (int32_t)(cell * ANCHORS + anchor), label};
        }
    *broken = bad;
    return found;
}

ALWAYS double held(double value, double most)
{
    value = value > 0 ? value : 0;
    return value < most ? value : most;
}

static void box_of(const socsched_image_boxes_params *p, int32_t number, const float *maps, float *box)
{
    const int64_t cells = (int64_t)p->rows * p->columns;
    int32_t anchor = number % ANCHORS, cell = number / ANCHORS;
    const float *terms_ = maps + (int64_t)anchor * TERMS * cells + cell;
    double corner[2] = {cell % p->columns, cell / p->columns};
    for (int i = 0; i < 2; i++) {
        double centre = sigmoid(terms_[i * cells]) + corner[i];
        double half = exponential(terms_[(2 + i) * cells]) * p->sizes[anchor][i] / 2;
        box[i] = (float)held((centre - half) * p->scale[i] - p->shift[i], p->limit[i]);
        box[2 + i] = (float)held((centre + half) * p->scale[i] - p->shift[i], p->limit[i]);
    }
}

static int crossing(const float *a, const float *b, double least)
{
    double size[2];
    for (int i = 0; i < 2; i++) {
        double low = a[i] > b[i] ? a[i] : b[i], high = a[2 + i] < b[2 + i] ? a[2 + i] : b[2 + i];
        size[i] = high - low > 0 ? high - low : 0;
    }
    double both = size[0] * size[1];
    double all = ((double)a[2] - a[0]) * ((double)a[3] - a[1]) + ((double)b[2] - b[0]) * ((double)b[3] - b[1]) - both;
    return (all > 0 ? both / all : 0) > least;
}

int64_t socsched_decode_image_boxes(const socsched_image_boxes_params *params, const float *maps, float *boxes,
                                    float *scores, int32_t *labels, int64_t *dropped, void *workspace,
                                    size_t workspace_bytes)
{
    if (!usable(params))
        return SOCSCHED_BAD_PARAMS;
    if (!(maps && boxes && scores && labels && dropped))
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_decode_image_boxes_workspace(params)))
        return SOCSCHED_SMALL_WORKSPACE;
    arrays parts;
    share(params, workspace, &parts);
    int64_t count = passing(params, maps, parts.entries, dropped), kept = 0;
    count = socsched_rank(parts.entries, count, params->candidates);
    for (int64_t i = 0; i < count && kept < params->max_boxes; i++) {
        float *box = parts.boxes + 4 * i;
        box_of(params, parts.entries[i].number, maps, box);
        int64_t k = 0;
        while (k < kept && !(parts.entries[parts.kept[k]].label == parts.entries[i].label &&
                             crossing(parts.boxes + 4 * parts.kept[k], box, params->iou)))
            k++;
        if (k < kept)
            continue;
        memcpy(boxes + 4 * kept, box, 4 * sizeof(float));
        scores[kept] = (float)parts.entries[i].score;
        labels[kept] = parts.entries[i].label;
        parts.kept[kept++] = (int32_t)i;
    }
    return kept;
}
