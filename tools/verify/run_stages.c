/* Calls host stages with the arguments in a file and writes their outputs: python -m tools.verify.host_stages. */
#include "../../socsched/compiler/native/stages/stages.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, INPUT = 0, OUTPUT = 1, NUMBER = 2 };

static int64_t number(FILE *from)
{
    int64_t value;
    if (fread(&value, sizeof value, 1, from) != 1)
        exit(2);
    return value;
}

static int64_t call(int64_t stage, const void *params, int64_t *words, void **at, void *workspace, size_t size)
{
    switch (stage) {
    case 0:
        return socsched_voxelise(params, at[0], words[1], at[2], at[3], at[4], workspace, size);
    case 1:
        return socsched_decode_anchors(params, at[0], at[1], at[2], at[3], at[4], at[5], at[6], workspace, size);
    case 2:
        return socsched_decode_centres(params, at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], at[9],
                                       at[10], workspace, size);
    case 3:
        return socsched_decode_image_boxes(params, at[0], at[1], at[2], at[3], at[4], workspace, size);
    default:
        return socsched_preprocess(params, at[0], at[1], (int32_t)words[2], (int32_t)words[3], workspace, size);
    }
}

static size_t needed(int64_t stage, const void *params)
{
    switch (stage) {
    case 0:
        return socsched_voxelise_workspace(params);
    case 1:
        return socsched_decode_anchors_workspace(params);
    case 2:
        return socsched_decode_centres_workspace(params);
    case 3:
        return socsched_decode_image_boxes_workspace(params);
    default:
        return socsched_preprocess_workspace(params);
    }
}

int main(int count, char **names)
{
    FILE *from = count == 3 ? fopen(names[1], "rb") : NULL, *to = count == 3 ? fopen(names[2], "wb") : NULL;
    if (!from || !to)
        return 2;
    for (int64_t left = number(from); left > 0; left--) {
        int64_t stage = number(from), bytes = number(from), kinds[MOST] = {0}, words[MOST] = {0};
        void *at[MOST] = {0}, *params = malloc(bytes);
        if (fread(params, 1, bytes, from) != (size_t)bytes)
            return 2;
        int64_t length = number(from);
        for (int64_t i = 0; i < length && i < MOST; i++) {
            kinds[i] = number(from), words[i] = number(from);
            if (kinds[i] == NUMBER)
                continue;
            /* exactly as large as stated, for the sanitizer; a page of 0 bytes still has an address */
            at[i] = malloc(words[i] ? words[i] : 1);
            if (kinds[i] == INPUT && fread(at[i], 1, words[i], from) != (size_t)words[i])
                return 2;
            if (kinds[i] == OUTPUT)
                memset(at[i], 0, words[i]);
        }
        size_t size = needed(stage, params), room = (size + 63) / 64 * 64;
        void *workspace = aligned_alloc(64, room ? room : 64);
        memset(workspace, 0xa5, size);
        int64_t result = call(stage, params, words, at, workspace, size);
        fwrite(&result, sizeof result, 1, to);
        for (int64_t i = 0; i < length; i++) {
            if (kinds[i] == OUTPUT)
                fwrite(at[i], 1, words[i], to);
            free(at[i]);
        }
        free(workspace);
        free(params);
    }
    fclose(from);
    return fclose(to) != 0;
}
