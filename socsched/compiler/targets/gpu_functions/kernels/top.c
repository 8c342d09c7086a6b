/* The best candidates of a map by key, equal keys by number: keys order logits, 0 is no candidate.

   A histogram over the keys' leading bits bounds how many anchors the last group must compare. */

/* A float that orders as the logit's score does in double precision: above SATURATED different logits may have the
   same score, 1 - m / 2^52 for a whole number m below 2^24, and then tie. */
FUNCTION float ranked(float logit)
{
    if (!(logit > SATURATED))
        return logit == 0 ? 0.0f : logit; /* negative zero ties with zero */
    real missing = 1 - sigmoid(logit);
    return FLOAT_OF(BITS(SATURATED) + 1 + (16777216 - (u32)(missing * (real)4503599627370496.0f)));
}

FUNCTION u32 key_of(float logit)
{
    u32 bits = BITS(ranked(logit));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

KERNEL top_clear(GLOBAL int *histogram, GLOBAL int *listed, GLOBAL int *broken)
{
    for (int i = GROUP * ITEMS + ITEM; i < BINS; i += GROUPS * TILE)
        histogram[i] = 0;
    if (GROUP == 0 && ITEM == 0)
        listed[0] = broken[0] = 0;
}

FUNCTION void offer(int number, float best, int passes, GLOBAL u32 *keys, GLOBAL int *histogram)
{
    u32 key = passes ? key_of(best) : 0;
    keys[number] = key;
    if (key)
        ATOMIC_ADD(histogram + (key >> BIN_SHIFT), 1);
}

/* Lists the candidates of the highest bins that together hold enough. */
KERNEL top_gather(const GLOBAL u32 *keys, const GLOBAL int *histogram, GLOBAL int *listed, GLOBAL u64 *list)
{
    LOCAL int room[TILE], least[1], base[1], mine[1];
    int sum = 0;
    for (int k = 0; k < BINS / TILE; k++)
        sum += histogram[BINS - 1 - (ITEM * (BINS / TILE) + k)];
    if (ITEM == 0)
        least[0] = 0;
    int above = group_prefix(room, sum) - sum;
    if (above < CANDIDATES && above + sum >= CANDIDATES) {
        int bin = BINS - 1 - ITEM * (BINS / TILE);
        while (above + histogram[bin] < CANDIDATES)
            above += histogram[bin--];
        least[0] = bin;
    }
    BARRIER;
    for (int start = GROUP * TILE; start < ANCHORS; start += GROUPS * TILE) {
        int i = start + ITEM, place = 0;
        u32 key = i < ANCHORS ? keys[i] : 0;
        int taken = key && (int)(key >> BIN_SHIFT) >= least[0];
        BARRIER;
        if (ITEM == 0)
            mine[0] = 0;
        BARRIER;
        if (taken)
            place = ATOMIC_ADD(mine, 1);
        BARRIER;
        if (ITEM == 0)
            base[0] = mine[0] ? ATOMIC_ADD(listed, mine[0]) : 0;
        BARRIER;
        if (taken)
            list[base[0] + place] = (u64)key << 32 | (0xffffffffu - (u32)i);
    }
}

/* One group: the numbers of the best candidates in order. */
KERNEL top_select(const GLOBAL u64 *list, const GLOBAL int *listed, GLOBAL int *chosen, GLOBAL int *candidates)
{
    LOCAL u64 held[ROOM];
    LOCAL int digits[256], taken[1], state[2];
    int count = listed[0];
    u64 limit = 0;
    if (count > ROOM) { /* the CANDIDATES-th best, one byte after the other */
        u64 known = 0;
        int wanted = CANDIDATES;
        for (int shift = 56; shift >= 0; shift -= 8) {
            for (int i = ITEM; i < 256; i += ITEMS)
                digits[i] = 0;
            BARRIER;
            for (int i = ITEM; i < count; i += ITEMS)
                if (shift == 56 || list[i] >> (shift + 8) == known)
                    ATOMIC_ADD(digits + (int)(list[i] >> shift & 255), 1);
            BARRIER;
            if (ITEM == 0) {
                int digit = 255, left = wanted;
                while (digits[digit] < left)
                    left -= digits[digit--];
                state[0] = digit;
                state[1] = left;
            }
            BARRIER;
            known = known << 8 | (u64)state[0];
            wanted = state[1];
            BARRIER;
        }
        limit = known;
    }
    if (ITEM == 0)
        taken[0] = 0;
    BARRIER;
    for (int i = ITEM; i < count; i += ITEMS)
        if (list[i] >= limit)
            held[ATOMIC_ADD(taken, 1)] = list[i];
    BARRIER;
    int number = taken[0];
    for (int i = ITEM; i < number; i += ITEMS) {
        u64 value = held[i];
        int order = 0;
        for (int j = 0; j < number; j++)
            order += held[j] > value;
        if (order < CANDIDATES)
            chosen[order] = (int)(0xffffffffu - (u32)(value & 0xffffffffu));
    }
    if (ITEM == 0)
        candidates[0] = number < CANDIDATES ? number : CANDIDATES;
}
