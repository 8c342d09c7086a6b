/* Decoding of the camera's detector (models/camera_decode.py): boxes in the image, best first, one per object. */

FUNCTION float at(const GLOBAL MAP *map, int channel, int cell)
{
    return LOAD_MAP(map, NHWC ? cell * CHANNELS + channel : channel * MAP_CELLS + cell);
}

/* Score and class of every box, numbered by cell, then anchor; -1 where something is not finite. */
KERNEL camera_score(const GLOBAL MAP *map, GLOBAL real *scores, GLOBAL int *labels)
{
    int i = GROUP * ITEMS + ITEM;
    if (i >= ANCHORS)
        return;
    int cell = i / KINDS, first = i % KINDS * (5 + CLASSES), sound = 1, label = 0;
    for (int c = 0; c < 5 + CLASSES; c++)
        sound = sound && isfinite(at(map, first + c, cell));
    real total = 0, most = 0;
    float best = at(map, first + 5, cell);
    for (int c = 1; c < CLASSES; c++)
        best = fmax(best, at(map, first + 5 + c, cell));
    for (int c = 0; c < CLASSES; c++)
        total += exponential((real)at(map, first + 5 + c, cell) - best);
    for (int c = CLASSES - 1; c >= 0; c--) {
        real share = exponential((real)at(map, first + 5 + c, cell) - best) / total;
        label = share >= most ? c : label;
        most = share >= most ? share : most;
    }
    scores[i] = sound ? sigmoid(at(map, first + 4, cell)) * most : -1;
    labels[i] = label;
}

KERNEL camera_clear(GLOBAL int *candidates)
{
    if (GROUP == 0 && ITEM == 0)
        candidates[0] = 0;
}

/* The numbers of the best boxes in order. */
KERNEL camera_rank(const GLOBAL real *scores, GLOBAL int *chosen, GLOBAL int *candidates)
{
    int i = GROUP * TILE + ITEM, rank = 0;
    if (i >= ANCHORS || !(scores[i] > LEAST_SCORE))
        return;
    for (int j = 0; j < ANCHORS; j++)
        rank += scores[j] > scores[i] || (scores[j] == scores[i] && j < i);
    if (rank < CANDIDATES) {
        chosen[rank] = i;
        ATOMIC_ADD(candidates, 1);
    }
}

KERNEL camera_boxes(const GLOBAL MAP *map, const GLOBAL int *chosen, const GLOBAL int *candidates,
                    GLOBAL float *found)
{
    const real sizes[2 * KINDS] = {SIZES}, scale[2] = {SCALE}, shift[2] = {SHIFT};
    int k = GROUP * ITEMS + ITEM;
    if (k >= candidates[0])
        return;
    int cell = chosen[k] / KINDS, anchor = chosen[k] % KINDS, first = anchor * (5 + CLASSES);
    for (int axis = 0; axis < 2; axis++) {
        real centre = sigmoid(at(map, first + axis, cell)) + (axis ? cell / COLUMNS : cell % COLUMNS);
        real half_size = exponential(at(map, first + 2 + axis, cell)) * sizes[2 * anchor + axis] / 2;
        real pixels = axis ? IMAGE_HEIGHT : IMAGE_WIDTH;
        real low = (centre - half_size) * scale[axis] - shift[axis];
        real high = (centre + half_size) * scale[axis] - shift[axis];
        found[4 * k + axis] = (float)fmin(fmax(low, (real)0), pixels);
        found[4 * k + 2 + axis] = (float)fmin(fmax(high, (real)0), pixels);
    }
}

FUNCTION int clash(const GLOBAL float *a, const GLOBAL float *b)
{
    real wide = fmin((real)a[2], (real)b[2]) - fmax((real)a[0], (real)b[0]);
    real tall = fmin((real)a[3], (real)b[3]) - fmax((real)a[1], (real)b[1]);
    real both = fmax(wide, (real)0) * fmax(tall, (real)0);
    real whole = ((real)a[2] - a[0]) * ((real)a[3] - a[1]) + ((real)b[2] - b[0]) * ((real)b[3] - b[1]) - both;
    return (whole > 0 ? both / whole : 0) > MOST_IOU;
}

KERNEL camera_overlaps(const GLOBAL float *found, const GLOBAL int *labels, const GLOBAL int *chosen,
                       const GLOBAL int *candidates, GLOBAL u32 *excludes)
{
    LOCAL u32 word[1];
    int i = GROUP / WORDS, j = GROUP % WORDS * 32 + ITEM;
    if (ITEM == 0)
        word[0] = 0;
    BARRIER;
    if (i < candidates[0] && j < candidates[0] && labels[chosen[i]] == labels[chosen[j]]
        && clash(found + 4 * i, found + 4 * j))
        ATOMIC_OR(word, 1u << ITEM);
    BARRIER;
    if (ITEM == 0)
        excludes[GROUP] = word[0];
}

/* One group: suppression, and the boxes kept; rows past the last have label -1. */
KERNEL camera_write(const GLOBAL real *scores, const GLOBAL int *labels, const GLOBAL int *chosen,
                    const GLOBAL int *candidates, const GLOBAL float *found, const GLOBAL u32 *excludes,
                    GLOBAL int *kept, GLOBAL float *boxes, GLOBAL float *best, GLOBAL int *label)
{
    LOCAL int order[WHOLE(CANDIDATES)];
    LOCAL u32 excluded[WHOLE(WORDS)];
    for (int k = ITEM; k < CANDIDATES; k += ITEMS)
        order[k] = k;
    BARRIER;
    int number = suppress(excludes, order, candidates[0], MAX_BOXES, excluded, kept);
    for (int k = ITEM; k < MAX_BOXES; k += ITEMS) {
        int row = k < number ? kept[k] : 0;
        for (int c = 0; c < 4; c++)
            boxes[4 * k + c] = k < number ? found[4 * row + c] : 0;
        best[k] = k < number ? (float)scores[chosen[row]] : 0;
        label[k] = k < number ? labels[chosen[row]] : -1;
    }
}
