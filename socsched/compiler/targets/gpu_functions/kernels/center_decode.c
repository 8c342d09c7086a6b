/* Decoding of a centre head (models/centerpoint/decode.py): boxes, best first, one per object. */

FUNCTION float at(const GLOBAL MAP *map, int channel, int channels, int cell)
{
    return LOAD_MAP(map, NHWC ? cell * channels + channel : channel * ANCHORS + cell);
}

FUNCTION int best_class(const GLOBAL MAP *heatmap, int cell)
{
    int label = 0;
    for (int c = 1; c < CLASSES; c++)
        label = at(heatmap, c, CLASSES, cell) > at(heatmap, label, CLASSES, cell) ? c : label;
    return label;
}

/* A cell's value is its best logit; short heading vectors disqualify it. */
KERNEL center_score(const GLOBAL MAP *heatmap, const GLOBAL MAP *rot, const GLOBAL float *norms, GLOBAL u32 *keys,
                    GLOBAL int *histogram, GLOBAL int *broken)
{
    int cell = GROUP * ITEMS + ITEM;
    if (cell >= ANCHORS)
        return;
    int sound = 1, label = best_class(heatmap, cell), passes = 0;
    float best = at(heatmap, label, CLASSES, cell);
    for (int c = 0; c < CLASSES; c++)
        sound = sound && !isnan(at(heatmap, c, CLASSES, cell));
    sound = sound && !isinf(best);
    if (!sound)
        ATOMIC_ADD(broken, 1);
    else if (best > THRESHOLD)
        passes = !((float)length_of(at(rot, 0, 2, cell), at(rot, 1, 2, cell)) < norms[label]);
    offer(cell, best, passes, keys, histogram);
}

KERNEL center_boxes(const GLOBAL MAP *heatmap, const GLOBAL MAP *reg, const GLOBAL MAP *height, const GLOBAL MAP *dim,
                    const GLOBAL MAP *rot, const GLOBAL MAP *vel, const GLOBAL int *chosen,
                    const GLOBAL int *candidates, GLOBAL float *found, GLOBAL real *footprints, GLOBAL int *usable,
                    GLOBAL int *broken)
{
    int k = GROUP * ITEMS + ITEM;
    if (k >= candidates[0])
        return;
    int cell = chosen[k], sound = 1;
    GLOBAL float *box = found + 11 * k;
    box[0] = (float)(((real)(cell % COLUMNS) + at(reg, 0, 2, cell)) * PILLAR_X + CORNER_X);
    box[1] = (float)(((real)(cell / COLUMNS) + at(reg, 1, 2, cell)) * PILLAR_Y + CORNER_Y);
    for (int c = 0; c < 3; c++)
        box[3 + c] = (float)exponential(at(dim, c, 3, cell));
    box[2] = at(height, 0, 1, cell) - box[5] / 2;
    box[6] = (float)angle_of(at(rot, 0, 2, cell), at(rot, 1, 2, cell));
    box[7] = at(vel, 0, 2, cell);
    box[8] = at(vel, 1, 2, cell);
    for (int c = 0; c < 9; c++)
        sound = sound && isfinite(box[c]);
    int label = best_class(heatmap, cell);
    box[9] = (float)sigmoid(at(heatmap, label, CLASSES, cell));
    box[10] = (float)label;
    usable[k] = sound;
    if (!sound)
        ATOMIC_ADD(broken, 1);
    put_footprint(footprints + 7 * k, box[0], box[1], box[3], box[4], box[6]);
}

FUNCTION float squared_gap(const GLOBAL float *a, const GLOBAL float *b)
{
    float x = a[0] - b[0], y = a[1] - b[1];
    return x * x + y * y;
}

/* A group of 32 for every candidate and word of its row: the centres within the circle. */
KERNEL center_circles(const GLOBAL float *found, const GLOBAL int *candidates, GLOBAL u32 *excludes)
{
    LOCAL u32 word[1];
    int i = GROUP / WORDS, j = GROUP % WORDS * 32 + ITEM;
    if (ITEM == 0)
        word[0] = 0;
    BARRIER;
    if (i < candidates[0] && j < candidates[0] && squared_gap(found + 11 * i, found + 11 * j) < CIRCLE_2)
        ATOMIC_OR(word, 1u << ITEM);
    BARRIER;
    if (ITEM == 0)
        excludes[GROUP] = word[0];
}

/* One group: the usable candidates, each the best within its circle. */
KERNEL center_suppress(const GLOBAL int *usable, const GLOBAL int *candidates, const GLOBAL u32 *excludes,
                       GLOBAL int *kept, GLOBAL int *kept_count)
{
    LOCAL int order[WHOLE(CANDIDATES)], room[TILE];
    LOCAL u32 excluded[WHOLE(WORDS)];
    int length = 0;
    for (int start = 0; start < candidates[0]; start += TILE) {
        int k = start + ITEM, member = k < candidates[0] && usable[k];
        int place = length + group_prefix(room, member) - member;
        if (member)
            order[place] = k;
        length += room[TILE - 1];
    }
    BARRIER;
    int found = suppress(excludes, order, length, MAX_BOXES, excluded, kept);
    if (ITEM == 0)
        kept_count[0] = found;
}

/* A group per kept box: whether no better one, kept later or not, overlaps it. */
KERNEL center_clear(const GLOBAL float *found, const GLOBAL real *footprints, const GLOBAL int *kept,
                    const GLOBAL int *kept_count, GLOBAL int *clear)
{
    LOCAL int room[FILL];
    int i = GROUP, blocked = 0;
    if (i < kept_count[0])
        for (int j = ITEM; j < i; j += FILL) {
            int mine = kept[i], other = kept[j];
            blocked += squared_gap(found + 11 * mine, found + 11 * other) <= SEARCH_2
                       && overlap(footprints + 7 * other, footprints + 7 * mine, MOST_IOU);
        }
    blocked = group_sum(room, blocked);
    if (ITEM == 0)
        clear[i] = i < kept_count[0] && !blocked;
}

KERNEL center_write(const GLOBAL float *found, const GLOBAL int *kept, const GLOBAL int *clear, GLOBAL float *boxes,
                    GLOBAL float *scores, GLOBAL int *labels, GLOBAL float *velocities)
{
    for (int k = ITEM; k < MAX_BOXES; k += ITEMS) {
        for (int c = 0; c < 7; c++)
            boxes[7 * k + c] = 0;
        scores[k] = velocities[2 * k] = velocities[2 * k + 1] = 0;
        labels[k] = -1;
    }
    BARRIER;
    for (int i = ITEM; i < MAX_BOXES; i += ITEMS) {
        if (!clear[i])
            continue;
        int place = 0;
        for (int j = 0; j < i; j++)
            place += clear[j];
        const GLOBAL float *box = found + 11 * kept[i];
        for (int c = 0; c < 7; c++)
            boxes[7 * place + c] = box[c];
        scores[place] = box[9];
        labels[place] = (int)box[10];
        velocities[2 * place] = box[7];
        velocities[2 * place + 1] = box[8];
    }
}
