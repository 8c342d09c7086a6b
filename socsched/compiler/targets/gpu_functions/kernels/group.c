/* Sums and prefix sums over the items of a group; `room` has one place per item.

   Local arrays have whole vectors of four: compilers read them so, past the last element too. */
#define WHOLE(count) (((count) + 3) / 4 * 4)

FUNCTION int group_sum(LOCAL_ARGUMENT int *room, int value)
{
    BARRIER;
    room[ITEM] = value;
    BARRIER;
    for (int step = ITEMS / 2; step > 0; step /= 2) {
        if (ITEM < step)
            room[ITEM] += room[ITEM + step];
        BARRIER;
    }
    return room[0];
}

/* The sum of the values of this item and all before it. */
FUNCTION int group_prefix(LOCAL_ARGUMENT int *room, int value)
{
    BARRIER;
    room[ITEM] = value;
    BARRIER;
    for (int step = 1; step < ITEMS; step *= 2) {
        int before = ITEM >= step ? room[ITEM - step] : 0;
        BARRIER;
        room[ITEM] += before;
        BARRIER;
    }
    return room[ITEM];
}

KERNEL set_count(GLOBAL int *count, int rows)
{
    if (GROUP == 0 && ITEM == 0)
        count[0] = rows;
}
