/* Decoding of an anchor head (models/pointpillars/decode.py): boxes, best first, one per object. */

FUNCTION float at(const GLOBAL MAP *map, int channel, int channels, int cell)
{
    return LOAD_MAP(map, NHWC ? cell * channels + channel : channel * MAP_CELLS + cell);
}

/* An anchor's value is its best logit; anchors are numbered by cell, then kind. */
KERNEL anchor_score(const GLOBAL MAP *cls, GLOBAL u32 *keys, GLOBAL int *histogram, GLOBAL int *broken)
{
    int i = GROUP * ITEMS + ITEM;
    if (i >= ANCHORS)
        return;
    int kind = NHWC ? i % KINDS : i / MAP_CELLS, cell = NHWC ? i / KINDS : i % MAP_CELLS;
    float best = -INFINITY;
    int sound = 1;
    for (int c = 0; c < CLASSES; c++) {
        float logit = at(cls, kind * CLASSES + c, KINDS * CLASSES, cell);
        sound = sound && !isnan(logit);
        best = logit > best ? logit : best;
    }
    sound = sound && !isinf(best);
    if (!sound)
        ATOMIC_ADD(broken, 1);
    offer(cell * KINDS + kind, best, sound && best >= FLOOR, keys, histogram);
}

/* Boxes, footprints and class logits of the candidates; `usable` unless something is not finite. */
KERNEL anchor_boxes(const GLOBAL MAP *cls, const GLOBAL MAP *reg, const GLOBAL MAP *dir, const GLOBAL float *anchors,
                    const GLOBAL int *chosen, const GLOBAL int *candidates, GLOBAL float *found,
                    GLOBAL real *footprints, GLOBAL float *logits, GLOBAL int *usable, GLOBAL int *broken)
{
    int k = GROUP * ITEMS + ITEM;
    if (k >= candidates[0])
        return;
    int number = chosen[k], kind = number % KINDS, cell = number / KINDS;
    const GLOBAL float *shape = anchors + COLUMNS + ROWS + 6 * kind;
    float x = anchors[cell % COLUMNS], y = anchors[COLUMNS + cell / COLUMNS];
    float z = shape[0], w = shape[1], l = shape[2], h = shape[3], ry = shape[4], diagonal = shape[5], given[7];
    for (int c = 0; c < 7; c++)
        given[c] = at(reg, kind * 7 + c, KINDS * 7, cell);
    float back = at(dir, 2 * kind, 2 * KINDS, cell), front = at(dir, 2 * kind + 1, 2 * KINDS, cell);
    GLOBAL float *box = found + 7 * k;
    box[0] = given[0] * diagonal + x;
    box[1] = given[1] * diagonal + y;
    box[3] = (float)exponential(given[3]) * w;
    box[4] = (float)exponential(given[4]) * l;
    box[5] = (float)exponential(given[5]) * h;
    box[2] = given[2] * h + z + h / 2 - box[5] / 2;
    box[6] = given[6] + ry;
    int sound = isfinite(back) && isfinite(front);
    for (int c = 0; c < 7; c++)
        sound = sound && isfinite(box[c]);
    usable[k] = sound;
    if (!sound)
        ATOMIC_ADD(broken, 1);
    put_footprint(footprints + 7 * k, box[0], box[1], box[3], box[4], box[6]);
    for (int c = 0; c < CLASSES; c++)
        logits[k * CLASSES + c] = at(cls, kind * CLASSES + c, KINDS * CLASSES, cell);
    float angle = box[6] - TURN;
    angle = angle - floor(QUOTIENT(angle, PI_FLOAT) + 1) * PI_FLOAT;
    box[6] = (float)((real)angle + (front <= back ? PI : 0)) + TURN;
}

/* A group of 32 for every candidate and word of its row. */
KERNEL anchor_overlaps(const GLOBAL real *footprints, const GLOBAL int *candidates, GLOBAL u32 *excludes)
{
    LOCAL u32 word[1];
    int i = GROUP / WORDS, j = GROUP % WORDS * 32 + ITEM;
    if (ITEM == 0)
        word[0] = 0;
    BARRIER;
    if (i < candidates[0] && j < candidates[0] && i != j
        && overlap(footprints + 7 * (i < j ? i : j), footprints + 7 * (i < j ? j : i), MOST_IOU))
        ATOMIC_OR(word, 1u << ITEM);
    BARRIER;
    if (ITEM == 0)
        excludes[GROUP] = word[0];
}

/* A group per class: its candidates above the threshold in order of score, suppressed. */
KERNEL anchor_suppress(const GLOBAL float *logits, const GLOBAL int *usable, const GLOBAL int *candidates,
                       const GLOBAL u32 *excludes, GLOBAL int *kept, GLOBAL int *kept_count)
{
    LOCAL float value[WHOLE(CANDIDATES)];
    LOCAL int order[WHOLE(CANDIDATES)], members[1];
    LOCAL u32 excluded[WHOLE(WORDS)];
    int label = GROUP, count = candidates[0];
    if (ITEM == 0)
        members[0] = 0;
    for (int k = ITEM; k < count; k += ITEMS) {
        float logit = logits[k * CLASSES + label];
        value[k] = usable[k] && logit > THRESHOLD ? ranked(logit) : -INFINITY;
    }
    BARRIER;
    for (int k = ITEM; k < count; k += ITEMS) {
        if (value[k] == -INFINITY)
            continue;
        int rank = 0;
        for (int j = 0; j < count; j++)
            rank += value[j] > value[k] || (value[j] == value[k] && j < k);
        order[rank] = k;
        ATOMIC_ADD(members, 1);
    }
    BARRIER;
    int found = suppress(excludes, order, members[0], MAX_BOXES, excluded, kept + label * MAX_BOXES);
    if (ITEM == 0)
        kept_count[label] = found;
}

/* The best boxes of all classes; rows past the last have label -1. */
KERNEL anchor_write(const GLOBAL float *found, const GLOBAL float *logits, const GLOBAL int *kept,
                    const GLOBAL int *kept_count, GLOBAL float *boxes, GLOBAL float *scores, GLOBAL int *labels)
{
    for (int k = ITEM; k < MAX_BOXES; k += ITEMS) {
        for (int c = 0; c < 7; c++)
            boxes[7 * k + c] = 0;
        scores[k] = 0;
        labels[k] = -1;
    }
    BARRIER;
    for (int e = ITEM; e < CLASSES * MAX_BOXES; e += ITEMS) {
        int label = e / MAX_BOXES, place = e % MAX_BOXES;
        if (place >= kept_count[label])
            continue;
        int row = kept[e], rank = 0;
        float mine = ranked(logits[row * CLASSES + label]);
        for (int c = 0; c < CLASSES; c++)
            for (int j = 0; j < kept_count[c]; j++) {
                float other = ranked(logits[kept[c * MAX_BOXES + j] * CLASSES + c]);
                rank += other > mine || (other == mine && c * MAX_BOXES + j < e);
            }
        if (rank >= MAX_BOXES)
            continue;
        for (int c = 0; c < 7; c++)
            boxes[7 * rank + c] = found[7 * row + c];
        scores[rank] = (float)sigmoid(logits[row * CLASSES + label]);
        labels[rank] = label;
    }
}
