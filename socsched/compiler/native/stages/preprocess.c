/* Camera images resized and normalised (models/camera.py). */
#include "common.h"
#if defined(__x86_64__) && defined(__GNUC__)
#define X86
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { LANES = 4, SHORT = 16, LONG = 64 };
typedef float floats __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(16)));

#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (ints){i, j, k, l})
#endif

/* Consecutive bytes of a line from `offset`; the bytes of a vector that are among them, as bits. */
typedef struct {
    uint64_t members;
    int64_t offset;
} window;

/* How vectors of pixels, four bytes each, the channels in the lower ones, are made of a row's lines: a vector has
   `depth` windows of each line, the first `used` of which count, and for each the number that every byte of the vector
   has in the window, or ABSENT. */
typedef struct {
    window *windows;
    uint8_t *orders;
    int32_t size, vectors, lines, depth, used[3];
} picks;

typedef struct {
    picks sides[2];       /* left and right neighbours of the rectangle's columns, and the weight of the right ones */
    float *weight;
    uint32_t *rows[2][2]; /* two source rows: the pixels of both sides */
    uint8_t *ends;        /* lines shorter than a window */
    float *line, *mixed;  /* a row of output in fp32: one channel after the other, and interleaved */
    int exact;            /* no column lies between two pixels, as when the ratio is odd */
} arrays;

enum { ABSENT = 0x80 };

/* What the processor has: instructions that reorder 16 bytes, or 64. */
enum { SHUFFLES, WIDE, WIDEST };

/* SOCSCHED_128_BIT: vectors as wide as those of Arm's cores, for measurements that stand for these. */
static int level(void)
{
#if defined(X86) && !defined(SOCSCHED_128_BIT)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
        return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") ? WIDEST : WIDE;
#endif
    return SHUFFLES;
}

static int usable(const socsched_preprocess_params *p)
{
#ifdef X86
    if (!__builtin_cpu_supports("ssse3"))
        return 0;
#endif
    return p && p->format >= SOCSCHED_RGB && p->format <= SOCSCHED_NV12 && p->height > 0 && p->width > 0 &&
           p->output_height > 0 && p->output_width > 0 && p->fit_height > 0 && p->fit_width > 0 && p->top >= 0 &&
           p->left >= 0 && p->top <= p->output_height - p->fit_height && p->left <= p->output_width - p->fit_width &&
           (int64_t)p->height * p->width <= MOST_CELLS && (int64_t)p->output_height * p->output_width <= MOST_CELLS &&
           (p->format != SOCSCHED_NV12 || (p->height % 2 == 0 && p->width % 2 == 0));
}

static int interleaved(const socsched_preprocess_params *p)
{
    return p->format == SOCSCHED_RGB || p->format == SOCSCHED_BGR;
}

/* A row's lines: pixels, or luma and chroma, or three planes. */
static int lines_of(const socsched_preprocess_params *p)
{
    return interleaved(p) ? 1 : p->format == SOCSCHED_NV12 ? 2 : 3;
}

static int32_t line_bytes(const socsched_preprocess_params *p) { return p->width * (interleaved(p) ? 3 : 1); }

static const uint8_t *line_at(const socsched_preprocess_params *p, const uint8_t *image, int line, int64_t y)
{
    const int64_t plane = (int64_t)p->height * p->width;
    return image + line * plane + (p->format == SOCSCHED_NV12 && line ? y / 2 : y) * line_bytes(p);
}

static size_t share(const socsched_preprocess_params *p, void *workspace, arrays *out)
{
    room from = {workspace, 0};
    const size_t width = p->fit_width, values = 3 * (size_t)p->output_width;
    const int32_t size = level() == WIDEST ? LONG : SHORT, pixels = size / 4;
    const int32_t vectors = (p->fit_width - 1) / pixels + 1, lines = lines_of(p);
    /* Windows of a line follow each other, and none is without a byte of its own. */
    const int64_t span = (int64_t)line_bytes(p) * pixels / p->fit_width + 6;
    const int32_t depth = (int32_t)smaller(3 * pixels, span / size + 2);
    for (int i = 0; i < 2; i++) {
        window *windows = part(&from, (size_t)vectors * lines * depth, sizeof(window));
        uint8_t *orders = part(&from, (size_t)vectors * lines * depth, size);
        out->sides[i] = (picks){windows, orders, size, vectors, lines, depth, {0}};
    }
    out->weight = part(&from, width, sizeof(float));
    for (int i = 0; i < 4; i++)
        out->rows[i / 2][i % 2] = part(&from, vectors, size);
    out->ends = part(&from, 6, LONG);
    out->line = part(&from, values, sizeof(float));
    out->mixed = part(&from, p->half && p->channels_last ? values : 0, sizeof(float));
    return from.used;
}

size_t socsched_preprocess_workspace(const socsched_preprocess_params *params)
{
    arrays parts;
    return usable(params) ? share(params, NULL, &parts) : 0;
}

/* Both neighbours of pixel `index` of `target` in a row or column of `source` pixels; returns the second's weight. */
static float neighbours(int32_t index, int32_t source, int32_t target, int32_t *first, int32_t *second)
{
    double centre = (index + 0.5) * source / target - 0.5, last = source - 1;
    centre = centre > 0 ? centre : 0;
    centre = centre < last ? centre : last;
    *first = (int32_t)centre;
    *second = *first < centre ? *first + 1 : *first;
    return (float)(centre - *first);
}

/* The byte of channel `c` in its line, of the pixel in column `x`. */
static int64_t byte_at(const socsched_preprocess_params *p, int c, int64_t x)
{
    if (interleaved(p))
        return 3 * x + c;
    return p->format == SOCSCHED_NV12 && c ? x / 2 * 2 + c - 1 : x;
}

/* Finds the window of every byte of the pixels of side `number`. */
static void choose(const socsched_preprocess_params *p, int number, arrays *parts)
{
    picks *side = parts->sides + number;
    const int32_t size = side->size, pixels = size / 4;
    const int64_t depth = side->depth, windows = side->vectors * side->lines * depth;
    const int64_t last = line_bytes(p) > size ? line_bytes(p) - size : 0;
    int64_t count[3] = {0};
    memset(side->orders, ABSENT, windows * size);
    memset(side->windows, 0, windows * sizeof(window));
    for (int32_t x = 0; x < p->fit_width; x++) {
        int32_t columns[2];
        parts->weight[x] = neighbours(x, p->width, p->fit_width, columns, columns + 1);
        parts->exact &= parts->weight[x] == 0;
        if (x % pixels == 0)
            memset(count, 0, sizeof count);
        for (int c = 0; c < 3; c++) {
            const int32_t line = c < side->lines ? c : side->lines - 1, to = x % pixels * 4 + c;
            const int64_t first = (x / pixels * (int64_t)side->lines + line) * depth;
            const int64_t at = byte_at(p, c, columns[number]);
            window *of = side->windows + first;
            /* Neighbouring pixels of NV12 have the same chroma: its bytes may be a window back. */
            int64_t n = count[line] - 1;
            while (n >= 0 && at < of[n].offset)
                n--;
            if (n < 0 || at - of[n].offset >= size) {
                n = count[line]++;
                of[n].offset = smaller(at, last);
                side->used[line] = (int32_t)(n < side->used[line] ? side->used[line] : n + 1);
            }
            of[n].members |= (uint64_t)1 << to;
            side->orders[(first + n) * size + to] = (uint8_t)(at - of[n].offset);
        }
    }
}

/* A row's lines, and how far from each that of the row needed next is: processors do not foresee it. */
typedef struct {
    const uint8_t *lines[3];
    int64_t ahead[3];
} source;

/* Puts the pixels of `count` rows, one or two, together. */
#define GATHER(vector, zero, size, add)                                                                                \
    for (int32_t i = 0; i < side->vectors; i++) {                                                                      \
        vector first = zero, second = zero;                                                                            \
        for (int32_t line = 0; line < side->lines; line++) {                                                           \
            const int64_t from = ((int64_t)i * side->lines + line) * side->depth, end = from + side->used[line];       \
            const uint8_t *above = rows[0].lines[line], *below = rows[1].lines[line];                                  \
            const int64_t far_above = rows[0].ahead[line], far_below = rows[1].ahead[line];                            \
            for (int64_t n = from; n < end; n++) {                                                                     \
                const window *of = side->windows + n;                                                                  \
                const uint8_t *order = side->orders + n * (size);                                                      \
                first = add(first, of->members, order, above + of->offset);                                            \
                __builtin_prefetch(above + of->offset + far_above, 0, 2);                                              \
                if (count > 1) {                                                                                       \
                    second = add(second, of->members, order, below + of->offset);                                      \
                    __builtin_prefetch(below + of->offset + far_below, 0, 2);                                          \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        memcpy(pixels[0] + i * (size) / 4, &first, size);                                                              \
        if (count > 1)                                                                                                 \
            memcpy(pixels[1] + i * (size) / 4, &second, size);                                                         \
    }

#ifdef X86
#define ADD_LONG(sum, members, order, at)                                                                              \
    _mm512_mask_permutexvar_epi8(sum, members, _mm512_load_si512(order), _mm512_loadu_si512(at))
__attribute__((target("avx512vbmi,avx512bw"))) static void gather_long(const picks *side, int count,
                                                                       const source *rows, uint32_t *const *pixels)
{
    GATHER(__m512i, _mm512_setzero_si512(), LONG, ADD_LONG)
}

#define ADD_SHORT(sum, members, order, at)                                                                             \
    (sum | (bytes)_mm_shuffle_epi8(_mm_loadu_si128((void *)(at)), _mm_load_si128((void *)(order))))
__attribute__((target("ssse3")))
#elif defined(__aarch64__)
#define ADD_SHORT(sum, members, order, at) (sum | (bytes)vqtbl1q_u8(vld1q_u8(at), vld1q_u8(order)))
#else
static bytes add_short(bytes sum, uint64_t members, const uint8_t *order, const uint8_t *at)
{
    for (int i = 0; i < SHORT; i++)
        sum[i] |= members >> i & 1 ? at[order[i]] : 0;
    return sum;
}
#define ADD_SHORT add_short
#endif
static void gather_short(const picks *side, int count, const source *rows, uint32_t *const *pixels)
{
    GATHER(bytes, {0}, SHORT, ADD_SHORT)
}

/* Reads `count` source rows, the first into parts->rows[to]: the pixels of both sides unless all columns are exact. */
static void gather(const socsched_preprocess_params *p, const uint8_t *image, const int32_t *y, int count,
                   const arrays *parts, int to)
{
    const int32_t skip = (p->height - 1) / p->fit_height + 1;
    source rows[2] = {0};
    for (int i = 0; i < count; i++)
        for (int n = 0; n < lines_of(p); n++) {
            const uint8_t *line = line_at(p, image, n, y[i]);
            rows[i].ahead[n] = line_at(p, image, n, smaller(y[i] + skip, p->height - 1)) - line;
            rows[i].lines[n] = line;
            if (line_bytes(p) < parts->sides->size)
                rows[i].lines[n] = memcpy(parts->ends + (3 * i + n) * LONG, line, line_bytes(p));
        }
    for (int side = 0; side < (parts->exact ? 1 : 2); side++) {
        uint32_t *const pixels[2] = {parts->rows[to][side], parts->rows[1][side]};
#ifdef X86
        if (parts->sides->size == LONG)
            gather_long(parts->sides + side, count, rows, pixels);
        else
#endif
            gather_short(parts->sides + side, count, rows, pixels);
    }
}

/* A pixel's fourth byte is 0. */
ALWAYS float channel(uint32_t pixel, int number)
{
    return (float)(int32_t)(number == 2 ? pixel >> 16 : pixel >> 8 * number & 0xff);
}

ALWAYS float blended(float first, float second, float weight) { return first + (second - first) * weight; }

/* A value within 0 and 255.  As integers, floats from 0 on have the same order, and negative ones are less than 0. */
ALWAYS float held(float value)
{
    const float most = 255;
    int32_t bits, limit;
    memcpy(&bits, &value, sizeof bits);
    memcpy(&limit, &most, sizeof limit);
    bits = bits > 0 ? bits : 0;
    bits = bits < limit ? bits : limit;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The pixels of two source rows blended along x, then along y, and normalised; `apart` floats between channels. */
ALWAYS void finish_as(int yuv, int exact, int single, const socsched_preprocess_params *p, const arrays *parts,
                      float weight, float *line, int64_t apart)
{
    const uint32_t *restrict near = parts->rows[0][0], *restrict far = parts->rows[0][1];
    const uint32_t *restrict near_below = parts->rows[1][0], *restrict far_below = parts->rows[1][1];
    const float *restrict weights = parts->weight;
    const int64_t order = p->format == SOCSCHED_BGR ? 2 : 0; /* the channel of the first byte */
    float *restrict first = line + order * apart, *restrict middle = line + apart;
    float *restrict last = line + (2 - order) * apart;
    const float gain[3] = {p->gain[order], p->gain[1], p->gain[2 - order]};
    const float bias[3] = {p->bias[order], p->bias[1], p->bias[2 - order]};
    const float gains = p->luma, red_v = p->red_v, green_u = p->green_u, green_v = p->green_v, blue_u = p->blue_u;
    for (int64_t x = 0; x < p->fit_width; x++) {
        float value[3];
        for (int c = 0; c < 3; c++) {
            value[c] = channel(near[x], c);
            if (!exact)
                value[c] = blended(value[c], channel(far[x], c), weights[x]);
            if (!single) {
                float below = channel(near_below[x], c);
                if (!exact)
                    below = blended(below, channel(far_below[x], c), weights[x]);
                value[c] = blended(value[c], below, weight);
            }
        }
        if (yuv) {
            const float u = value[1] - 128, v = value[2] - 128, luma = held(value[0] - 16) * gains;
            value[0] = held(luma + v * red_v);
            value[1] = held(luma + u * green_u + v * green_v);
            value[2] = held(luma + u * blue_u);
        }
        first[x] = value[0] * gain[0] - bias[0];
        middle[x] = value[1] * gain[1] - bias[1];
        last[x] = value[2] * gain[2] - bias[2];
    }
}

/* Four floats as fp16 in the low halves, rounded to nearest even, as IEEE 754 converts. */
ALWAYS ints halves(floats size)
{
    ints sign = (ints)size >> 16 & 0x8000, bits = (ints)size & 0x7fffffff;
    /* The sum's last bits are those of a subnormal half, rounded. */
    ints small = (ints)((floats)bits + 0.5f) - 0x3f000000;
    ints normal = (bits - 0x37fff001 + (bits >> 13 & 1)) >> 13;
    ints large = 0x7c00 + ((bits > 0x7f800000) & 0x200);
    ints tiny = bits < 0x38800000, fits = bits < 0x47800000;
    return (small & tiny) | (normal & ~tiny & fits) | (large & ~fits) | sign;
}

/* Little endian: a word holds an even float's half below that of the next. */
ALWAYS void halve_eight(const float *from, uint16_t *to)
{
    floats first, second;
    memcpy(&first, from, sizeof first);
    memcpy(&second, from + LANES, sizeof second);
    ints even = halves(PICK(first, second, 0, 2, 4, 6)), odd = halves(PICK(first, second, 1, 3, 5, 7));
    even |= odd << 16;
    memcpy(to, &even, sizeof even);
}

#ifdef X86
/* As halve_eight, by the processor's own conversion. */
__attribute__((target("avx,f16c"))) static inline void halve_wide(const float *from, uint16_t *to)
{
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(_mm256_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}
#define HALVE_WIDE halve_wide
#else
#define HALVE_WIDE halve_eight
#endif

/* `count` floats as halves; `wide`: by eights with the processor's own conversion. */
ALWAYS void halve(int wide, const float *from, uint16_t *to, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        if (wide)
            HALVE_WIDE(from + i, to + i);
        else
            halve_eight(from + i, to + i);
    float rest[8] = {0};
    uint16_t result[8];
    for (int64_t k = i; k < count; k++)
        rest[k - i] = from[k];
    halve_eight(rest, result);
    memcpy(to + i, result, (count - i) * sizeof *to);
}

/* Pads the pixels `from` to `until` - 1 of a row of output. */
static void fill(const socsched_preprocess_params *p, float *line, int64_t apart, int32_t from, int32_t until)
{
    for (int c = 0; c < 3; c++)
        for (int32_t x = from; x < until; x++)
            line[c * apart + x] = p->padding[c];
}

/* Row `row` of output, from `line` with its channels `width` apart. */
ALWAYS void store(int wide, const socsched_preprocess_params *p, const arrays *parts, void *output, int64_t row)
{
    const int64_t width = p->output_width, plane = width * p->output_height;
    const float *restrict line = parts->line;
    if (p->channels_last) {
        float *restrict mixed = p->half ? parts->mixed : (float *)output + row * width * 3;
        for (int64_t x = 0; x < width; x++)
            mixed[3 * x] = line[x], mixed[3 * x + 1] = line[width + x], mixed[3 * x + 2] = line[2 * width + x];
        if (p->half)
            halve(wide, mixed, (uint16_t *)output + row * width * 3, width * 3);
    } else
        for (int c = 0; c < 3; c++)
            halve(wide, line + c * width, (uint16_t *)output + c * plane + row * width, width);
}

/* Row `row` of output from the pixels of two source rows, or of one if `weight`, that of the second, is 0. */
ALWAYS void write_as(int wide, const socsched_preprocess_params *p, const arrays *parts, float weight, void *output,
                     int32_t row)
{
    const int64_t width = p->output_width;
    const int direct = !p->half && !p->channels_last, yuv = p->format == SOCSCHED_NV12;
    const int64_t apart = direct ? width * p->output_height : width;
    float *line = direct ? (float *)output + row * width : parts->line;
    const int inside = row >= p->top && row - p->top < p->fit_height;
    fill(p, line, apart, 0, inside ? p->left : p->output_width);
    if (inside) {
        float *from = line + p->left;
        switch (4 * yuv + 2 * parts->exact + (weight == 0)) {
#define CASE(number)                                                                                                   \
    case number:                                                                                                       \
        finish_as(number / 4, number / 2 % 2, number % 2, p, parts, weight, from, apart);                              \
        break;
            CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
        }
        fill(p, line, apart, p->left + p->fit_width, p->output_width);
    }
    if (!direct)
        store(wide, p, parts, output, row);
}

#ifdef X86
__attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,f16c,prefer-vector-width=512"))) static void write_widest(
    const socsched_preprocess_params *p, const arrays *parts, float weight, void *output, int32_t row)
{
    write_as(1, p, parts, weight, output, row);
}

__attribute__((target("avx2,f16c"))) static void write_wide(const socsched_preprocess_params *p, const arrays *parts,
                                                            float weight, void *output, int32_t row)
{
    write_as(1, p, parts, weight, output, row);
}
#endif

static void write_row(const socsched_preprocess_params *p, const arrays *parts, float weight, void *output,
                      int32_t row)
{
#ifdef X86
    if (level() == WIDEST)
        write_widest(p, parts, weight, output, row);
    else if (level() == WIDE)
        write_wide(p, parts, weight, output, row);
    else
#endif
        write_as(0, p, parts, weight, output, row);
}

int64_t socsched_preprocess(const socsched_preprocess_params *params, const uint8_t *image, void *output,
                            int32_t first_row, int32_t last_row, void *workspace, size_t workspace_bytes)
{
    const socsched_preprocess_params *p = params;
    if (!usable(p))
        return SOCSCHED_BAD_PARAMS;
    if (!image || !output || first_row < 0 || last_row < first_row || last_row > p->output_height)
        return SOCSCHED_BAD_INPUT;
    if (unfit(workspace, workspace_bytes, socsched_preprocess_workspace(p)))
        return SOCSCHED_SMALL_WORKSPACE;
    arrays parts;
    share(p, workspace, &parts);
    parts.exact = 1;
    choose(p, 0, &parts);
    if (!parts.exact)
        choose(p, 1, &parts);
    int32_t held_rows[2] = {-1, -1};
    for (int32_t row = first_row; row < last_row; row++) {
        const int32_t y = row - p->top;
        float weight = 0;
        if (y >= 0 && y < p->fit_height) {
            int32_t wanted[2];
            weight = neighbours(y, p->height, p->fit_height, wanted, wanted + 1);
            if (held_rows[1] == wanted[0]) { /* when enlarging, rows are used again */
                for (int i = 0; i < 2; i++) {
                    uint32_t *spare = parts.rows[0][i];
                    parts.rows[0][i] = parts.rows[1][i], parts.rows[1][i] = spare;
                }
                held_rows[1] = held_rows[0], held_rows[0] = wanted[0];
            }
            const int first = held_rows[0] == wanted[0];
            const int end = weight == 0 || held_rows[1] == wanted[1] ? 1 : 2;
            if (first < end)
                gather(p, image, wanted + first, end - first, &parts, first);
            memcpy(held_rows, wanted, end * sizeof *wanted);
        }
        write_row(p, &parts, weight, output, row);
    }
    return last_row - first_row;
}
