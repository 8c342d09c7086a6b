/* Greedy suppression: keeps the members of an order that no better kept member excludes.

   excludes[i][w] is a bit for each candidate 32 w to 32 w + 31 that i excludes.  All items of the group take part; the
   number kept, at most `most`, is returned to all of them. */

FUNCTION int suppress(const GLOBAL u32 *excludes, LOCAL_ARGUMENT const int *order, int length, int most,
                      LOCAL_ARGUMENT u32 *excluded, GLOBAL int *kept)
{
    int found = 0;
    for (int w = ITEM; w < WORDS; w += ITEMS)
        excluded[w] = 0;
    BARRIER;
    for (int i = 0; i < length && found < most; i++) {
        int candidate = order[i];
        int out = excluded[candidate / 32] >> candidate % 32 & 1;
        BARRIER;
        if (!out) {
            if (ITEM == 0)
                kept[found] = candidate;
            found++;
            for (int w = ITEM; w < WORDS; w += ITEMS)
                excluded[w] |= excludes[candidate * WORDS + w];
        }
        BARRIER;
    }
    return found;
}
