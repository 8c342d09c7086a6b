/* Voxelisation (models/pointpillars/voxelise.py): the same pillars and points in the same order as there.

   The order in which atomic operations arrive never reaches the result: the smallest index leads a pillar, prefix sums
   over the scan number the leaders, and the points of a pillar are ranked by their index. */

FUNCTION int cell_of(const GLOBAL float *point)
{
    float x = QUOTIENT(point[0] - LOW_X, SIZE_X), y = QUOTIENT(point[1] - LOW_Y, SIZE_Y);
    float z = QUOTIENT(point[2] - LOW_Z, SIZE_Z);
    if (x >= 0 && x < NX && y >= 0 && y < NY && z >= 0 && z < NZ)
        return (int)y * NX + (int)x;
    return -1;
}

KERNEL vox_clear(GLOBAL int *first, GLOBAL int *occupancy, GLOBAL int *pillars)
{
    for (int i = GROUP * ITEMS + ITEM; i < CELLS; i += GROUPS * TILE) {
        first[i] = 0x7fffffff;
        occupancy[i] = 0;
    }
    if (GROUP == 0 && ITEM == 0)
        pillars[0] = 0;
}

/* The cell of every point, the first point of every cell, and the points' numbers of arrival in their cell. */
KERNEL vox_cells(const GLOBAL float *points, const GLOBAL int *count, GLOBAL int *first, GLOBAL int *occupancy,
                 GLOBAL int *cell, GLOBAL int *arrival)
{
    int i = GROUP * ITEMS + ITEM;
    if (i >= count[0])
        return;
    int here = cell_of(points + 4 * i);
    cell[i] = here;
    if (here >= 0) {
        ATOMIC_MIN(first + here, i);
        arrival[i] = ATOMIC_ADD(occupancy + here, 1);
    }
}

FUNCTION int leads(int i, const GLOBAL int *count, const GLOBAL int *first, const GLOBAL int *cell)
{
    return i < count[0] && cell[i] >= 0 && first[cell[i]] == i;
}

/* For every tile of the scan, the number of pillars it starts and of the points in them. */
KERNEL vox_tiles(const GLOBAL int *count, const GLOBAL int *first, const GLOBAL int *occupancy, const GLOBAL int *cell,
                 GLOBAL int *tiles)
{
    LOCAL int room[TILE];
    int i = GROUP * TILE + ITEM, leader = leads(i, count, first, cell);
    int started = group_sum(room, leader);
    int held = group_sum(room, leader ? occupancy[cell[i]] : 0);
    if (ITEM == 0) {
        tiles[2 * GROUP] = started;
        tiles[2 * GROUP + 1] = held;
    }
}

/* Numbers the pillars in scan order and places their lists of points behind one another. */
KERNEL vox_number(const GLOBAL int *count, const GLOBAL int *first, const GLOBAL int *occupancy,
                  const GLOBAL int *cell, const GLOBAL int *tiles, GLOBAL int *number, GLOBAL int *start,
                  GLOBAL int *pillar_cell, GLOBAL int *pillars)
{
    LOCAL int room[TILE];
    int i = GROUP * TILE + ITEM, before = 0, held = 0;
    for (int tile = ITEM; tile < GROUP; tile += TILE) {
        before += tiles[2 * tile];
        held += tiles[2 * tile + 1];
    }
    before = group_sum(room, before);
    held = group_sum(room, held);
    int leader = leads(i, count, first, cell), size = leader ? occupancy[cell[i]] : 0;
    int order = before + group_prefix(room, leader) - leader;
    int place = held + group_prefix(room, size) - size;
    if (leader) {
        number[cell[i]] = order < MAX_PILLARS ? order : -1;
        start[cell[i]] = place;
        if (order < MAX_PILLARS)
            pillar_cell[order] = cell[i];
    }
    if (i == count[0] - 1) {
        int all = order + leader;
        pillars[0] = all < MAX_PILLARS ? all : MAX_PILLARS;
    }
}

KERNEL vox_list(const GLOBAL int *count, const GLOBAL int *cell, const GLOBAL int *arrival, const GLOBAL int *number,
                const GLOBAL int *start, GLOBAL int *list)
{
    int i = GROUP * ITEMS + ITEM;
    if (i < count[0] && cell[i] >= 0 && number[cell[i]] >= 0)
        list[start[cell[i]] + arrival[i]] = i;
}

FUNCTION void put_point(GLOBAL VOXEL *voxels, int slot, float x, float y, float z, float w)
{
    PUT_VOXEL(voxels, 4 * slot, x);
    PUT_VOXEL(voxels, 4 * slot + 1, y);
    PUT_VOXEL(voxels, 4 * slot + 2, z);
    PUT_VOXEL(voxels, 4 * slot + 3, w);
}

/* One group per pillar: its first points in scan order, then zeros; rows without a pillar get count 0, position -1. */
KERNEL vox_fill(const GLOBAL float *points, const GLOBAL int *count, const GLOBAL int *occupancy,
                const GLOBAL int *start, const GLOBAL int *list, const GLOBAL int *pillar_cell,
                const GLOBAL int *pillars, GLOBAL VOXEL *voxels, GLOBAL int *counts, GLOBAL int *coords)
{
    LOCAL int room[FILL], chosen[WHOLE(SLOTS)], taken[1];
    int p = GROUP, used = p < pillars[0], here = used ? pillar_cell[p] : 0;
    int held = used ? occupancy[here] : 0, filled = held < SLOTS ? held : SLOTS;
    const GLOBAL int *mine = list + (used ? start[here] : 0);
    if (ITEM == 0) {
        taken[0] = 0;
        counts[p] = filled;
        coords[2 * p] = used ? here % NX : -1;
        coords[2 * p + 1] = used ? here / NX : -1;
    }
    int limit = 0x7fffffff;
    if (held > SLOTS) { /* the smallest index with as many points before it as there are slots */
        int low = 0, high = count[0];
        while (low < high) {
            int middle = low + (high - low) / 2, below = 0;
            for (int j = ITEM; j < held; j += FILL)
                below += mine[j] < middle;
            if (group_sum(room, below) >= SLOTS)
                high = middle;
            else
                low = middle + 1;
        }
        limit = low;
    }
    BARRIER;
    for (int j = ITEM; j < held; j += FILL)
        if (mine[j] < limit)
            chosen[ATOMIC_ADD(taken, 1)] = mine[j];
    BARRIER;
    for (int k = ITEM; k < SLOTS; k += FILL) {
        if (k >= filled) {
            put_point(voxels, p * SLOTS + k, 0, 0, 0, 0);
            continue;
        }
        int index = chosen[k], slot = 0;
        for (int j = 0; j < filled; j++)
            slot += chosen[j] < index;
        const GLOBAL float *point = points + 4 * index;
        put_point(voxels, p * SLOTS + slot, point[0], point[1], point[2], FOURTH(point[3]));
    }
}
